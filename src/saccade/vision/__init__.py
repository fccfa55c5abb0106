"""Pixels to tensors and back; so far, the discrete autoencoder."""
