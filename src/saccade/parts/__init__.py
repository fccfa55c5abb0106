"""The parts that models are assembled from: positions, multi-head attention, layers, stacks, heads, recurrence, state."""
