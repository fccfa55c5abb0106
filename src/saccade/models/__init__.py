"""The model families, one short file each, and published weights in and out."""
