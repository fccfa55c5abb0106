"""Sparse attention: sliding-window, BigBird and LSH attention, computed blockwise without a Q x K tensor."""
