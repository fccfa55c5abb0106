"""The attention mechanisms, one per file: the definition as `scores` or `weights`, and a fast path."""
