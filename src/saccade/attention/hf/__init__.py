"""Attention weights of models of the `transformers` package, recomputed beside its fused kernels, without importing it."""
