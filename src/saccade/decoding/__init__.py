"""From scores to texts: one loop over `start` and `step` that serves every writer."""

from saccade.decoding.loop import Choose, follow, generate, greedy, write

__all__ = ["Choose", "follow", "generate", "greedy", "write"]
