"""HTTP API and server of the web viewer."""
