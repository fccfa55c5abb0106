"""Looks as data and as pictures."""
