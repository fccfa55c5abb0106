"""The study `grammar`: minimal pairs as in BLiMP."""
