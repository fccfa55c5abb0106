"""The study `listops`: nested lists of the Long Range Arena (ListOps)."""
