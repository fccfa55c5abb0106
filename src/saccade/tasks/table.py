"""Every task, a line each."""

from saccade.attention.table import nearest
from saccade.errors import UsageError
from saccade.tasks.caption import Caption
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.paint import Paint
from saccade.tasks.pair import Pair
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.regress import Regress
from saccade.tasks.span import Span
from saccade.tasks.summarise import Summarise
from saccade.tasks.tag import Tag
from saccade.tasks.translate import Translate

TASKS = [Regress, Language, Pretrain, Label, Pair, Span, Tag, Translate, Summarise, Caption, Paint]


def task_class(name: str) -> type:
    """The task of that name, or an error with the nearest."""
    for entry in TASKS:
        if entry.name == name:
            return entry
    raise UsageError(f"There is no task {name!r}; {nearest(name, [entry.name for entry in TASKS])}")
