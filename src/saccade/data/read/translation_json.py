"""Parallel texts in one JSON object, as in translation datasets: {"translation": {"en": "a dog", "de": "ein Hund"}}."""

from collections.abc import Mapping, Sequence

from saccade.data.read.base import Record


def holds_objects(name: str, records: Sequence[Record]) -> bool:
    """Whether a column holds objects, whose fields may be the texts."""
    return any(isinstance(record.fields.get(name), Mapping) for record in records)


def find_text_pair(records: Sequence[Record]) -> tuple[str, str] | None:
    """The two columns of an object with exactly two texts; None if the records have no such object, or several.

    >>> find_text_pair([Record(1, {"id": 0, "translation": {"hu": "kutya", "ro": "câine"}})])
    ('translation.hu', 'translation.ro')
    """
    pairs = {
        (f"{name}.{first}", f"{name}.{second}")
        for record in records
        for name, value in record.fields.items()
        if isinstance(value, Mapping) and len(value) == 2 and all(isinstance(text, str) for text in value.values())
        for first, second in [list(value)]
    }
    return pairs.pop() if len(pairs) == 1 else None


def find_other_column(pair: tuple[str, str] | None, name: str) -> str | None:
    """The other column of a pair; None if `name` is not one of the two."""
    if pair is None or name not in pair:
        return None
    return pair[1] if name == pair[0] else pair[0]
