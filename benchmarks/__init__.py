"""Measurements against other packages, and what makes the pages of results; run as modules from the root of the repository."""
