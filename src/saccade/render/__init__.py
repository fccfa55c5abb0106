"""Rendering of static graphics: SVG charts, heatmaps, tables and HTML pages, for reports, audits, studies and the server."""
