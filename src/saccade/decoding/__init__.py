"""From scores to texts: one loop over `start` and `step` that serves every writer."""

from saccade.decoding.choose import Draw, greedy
from saccade.decoding.loop import Choose, follow, generate, write

__all__ = ["Choose", "Draw", "follow", "generate", "greedy", "write"]
