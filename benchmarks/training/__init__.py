"""Training throughput beside transformers and plain PyTorch."""
