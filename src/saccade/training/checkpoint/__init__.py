"""Crash-safe checkpoints: how they are written, verified and read."""
