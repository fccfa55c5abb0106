"""Continuous batching: requests that join and leave a batch while it runs."""
