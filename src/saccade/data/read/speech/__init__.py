"""Layouts of speech corpora."""
