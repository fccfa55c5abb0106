"""Fast inference: any model in a form that answers the same, sooner."""

from saccade.engine.choice import Choice, choice
from saccade.engine.memory import Memory
from saccade.engine.model import Fast, fast
from saccade.engine.quality import Quality, quality

__all__ = ["Choice", "Fast", "Memory", "Quality", "choice", "fast", "quality"]
