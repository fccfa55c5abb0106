"""The HTTP API, and the server of the web viewer."""
