"""Training throughput compared with transformers and with a plain PyTorch loop."""
