"""The data of a task: what is asked of a record, what of it is gold, and what can be known of the data beforehand."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from saccade.data import Example, Role


class TaskData:
    sample: str  # the built-in data it runs on when there is no file
    is_text_stream: bool = False  # running text, whose last tenth is held out, not one line in ten
    gold_roles: tuple[str, ...] = ()  # the roles that are answered: without them a record is a question
    predicts_per_example: ClassVar[bool] = True  # a record without gold asks something; of running text, none does
    column_names: Mapping[str, str] = MappingProxyType({})  # the columns that the user named, role by role
    notes: tuple[str, ...] = ()  # what `fit` saw in the data, in lines for a person

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        """What it asks of a record; without its gold a record can still be answered."""
        raise NotImplementedError

    def input_roles(self, paths: Sequence[str] = ()) -> tuple[Role, ...]:
        """What it asks of a record that is to be answered."""
        return tuple(role for role in self.roles(paths) if role.name not in self.gold_roles)

    def fit(self, examples: Sequence[Example]) -> None:
        """Learn what has to be known of the data before a model is built: for most tasks, nothing."""

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        """Whether records that fill the roles are sensible ones, as almost anything can be read as almost anything."""
        return True

    def unlabeled_mask(self, examples: Sequence[Example]) -> list[bool]:
        """Of each example whether its gold is kept back, as that of some test sets is: for most tasks, never."""
        return [False] * len(examples)

    def make_record(self, *texts: str) -> dict[str, Any]:
        """A record by role, of one text or several as a person would type them."""
        return dict(zip((role.name for role in self.input_roles()), texts, strict=False))

    def get_input_texts(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        """The texts of a record, in the order in which a model reads them."""
        found = (record.get(role.name) for role in self.input_roles())
        return tuple(text for text in found if isinstance(text, str))

    def parse_input(self, record: Mapping[str, Any]) -> Example | None:
        """The question that a record asks; None where it lacks something."""
        asked = [role.name for role in self.input_roles()]
        whole = self.predicts_per_example and all(name in record for name in asked)
        return Example(dict(record)) if whole else None
