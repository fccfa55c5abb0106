"""The data of a task: the roles of a record, which of them are gold, and what is learned from the data before training."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from saccade.data import Example, Role


class TaskData:
    sample: str  # name of the built-in sample dataset
    is_text_stream: bool = False  # running text: the last tenth is held out, not every tenth record
    gold_roles: tuple[str, ...] = ()  # roles that are predicted; the others are the input
    predicts_per_example: ClassVar[bool] = True  # one prediction per record; False for running text
    column_names: Mapping[str, str] = MappingProxyType({})  # columns named by the user: role -> column
    notes: tuple[str, ...] = ()  # remarks of `fit` on the data, shown to the user

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        """The roles that the task reads from a record, gold included; prediction does not need the gold."""
        raise NotImplementedError

    def input_roles(self, paths: Sequence[str] = ()) -> tuple[Role, ...]:
        """The roles without gold: what prediction needs of a record."""
        return tuple(role for role in self.roles(paths) if role.name not in self.gold_roles)

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn from the training data what a new model must know, such as labels; most tasks need nothing."""

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """Whether records that fill the roles look like data of this task; used to infer the task of a file."""
        return True

    def unlabeled_mask(self, examples: Sequence[Example]) -> list[bool]:
        """Whether the gold of each example is hidden, as in some public test sets; never for most tasks."""
        return [False] * len(examples)

    def make_record(self, *texts: str) -> dict[str, Any]:
        """A record (role -> text) from one or several texts typed by a user."""
        return dict(zip((role.name for role in self.input_roles()), texts, strict=False))

    def get_input_texts(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The input texts of a record, in the order in which they are encoded."""
        values = (record.get(role.name) for role in self.input_roles())
        return tuple(text for text in values if isinstance(text, str))

    def parse_input(self, record: Mapping[str, Any]) -> Example | None:
        """The example to predict for a record; None if an input role is missing."""
        names = [role.name for role in self.input_roles()]
        complete = self.predicts_per_example and all(name in record for name in names)
        return Example(dict(record)) if complete else None
