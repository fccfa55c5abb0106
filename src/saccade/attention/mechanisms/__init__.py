"""The attention mechanisms, one file each: the formula as `scores` or `weights`, and the fast path."""
