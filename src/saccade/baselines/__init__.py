"""Baselines: simple methods without a neural network, which a trained model has to beat. One file per method."""
