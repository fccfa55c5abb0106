"""The model families, one file each: config, architecture, and the map of the published weights."""
