"""Benchmarks against other libraries, and the scripts that generate pages of results; run from the root of the repository."""
