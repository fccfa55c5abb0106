"""Fast inference: any model in a form that answers the same, sooner."""

from saccade.engine.choice import Choice, choice
from saccade.engine.memory import Memory
from saccade.engine.model import Fast, fast
from saccade.engine.quality import Quality, quality
from saccade.engine.slots import Full, Slots
from saccade.engine.ticket import Event, Ticket

__all__ = [
    "Choice",
    "Event",
    "Fast",
    "Full",
    "Memory",
    "Quality",
    "Slots",
    "Ticket",
    "choice",
    "fast",
    "quality",
]
