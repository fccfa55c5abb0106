"""The study `peptides`: generated peptides compared with real ones."""
