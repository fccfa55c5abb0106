"""Streaming datasets: texts too large for memory, read in chunks, tokenized once, and memory-mapped as token shards."""
