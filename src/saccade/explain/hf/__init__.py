"""Attention maps of models of the `transformers` package: their inputs with names, and `look` at them."""
