"""Building blocks of models: positions, multi-head attention, layers, stacks, heads, recurrence, state."""
