"""The registry of tasks, one line each."""

from saccade.errors import UsageError
from saccade.suggest import suggest
from saccade.tasks.base import Task
from saccade.tasks.caption import Caption
from saccade.tasks.grade import Grade
from saccade.tasks.label import Label
from saccade.tasks.language import Language
from saccade.tasks.paint import Paint
from saccade.tasks.pair import Pair
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.regress import Regress
from saccade.tasks.span import Span
from saccade.tasks.speech.transcribe import Transcribe
from saccade.tasks.summarize import Summarize
from saccade.tasks.tag import Tag
from saccade.tasks.translate import Translate

# in the order in which they are tried when the task of a file is inferred
TASKS: list[type[Task]] = [
    Span,
    Tag,
    Grade,
    Label,
    Pair,
    Summarize,
    Translate,
    Caption,
    Transcribe,
    Regress,
    Language,
    Pretrain,
    Paint,
]


def task_class(name: str) -> type[Task]:
    """The task with this name or alias, such as "ner"; an unknown name raises an error that suggests the nearest."""
    for entry in TASKS:
        if name == entry.name or name in entry.aliases:
            return entry
    names = [known for entry in TASKS for known in (entry.name, *entry.aliases)]
    raise UsageError(f"There is no task {name!r}; {suggest(name, names)}")
