"""Building blocks of models: positional encodings, multi-head attention, layers, stacks, heads, recurrent layers, state."""
