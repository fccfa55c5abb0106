"""Training that can be killed at any moment and goes on as if nothing had happened."""
