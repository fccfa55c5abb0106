"""Attention maps as data and as plots."""
