"""Continuous batching: requests join and leave a batch while it is decoded."""
