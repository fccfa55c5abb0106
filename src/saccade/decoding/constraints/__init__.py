"""Constrained decoding: regular expressions, choices, grammars and JSON schemas."""
