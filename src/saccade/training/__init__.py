"""Training: configuration, loop, evaluation, crash-safe checkpoints with exact resume, and distributed training."""
