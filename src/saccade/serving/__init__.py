"""The HTTP API, and the page on top of it."""
