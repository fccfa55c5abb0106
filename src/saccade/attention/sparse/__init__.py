"""Sparse attention: blockwise, sliding-window, BigBird and LSH attention, computed without a Q x K tensor."""
