"""Families of models that read recordings."""
