"""Two texts in one object, as sets of translations have them: {"translation": {"en": "a dog", "de": "ein Hund"}}."""

from collections.abc import Mapping, Sequence

from saccade.data.read.base import Record


def holds_objects(name: str, records: Sequence[Record]) -> bool:
    """Whether a column holds objects, so that texts are to be sought in their fields."""
    return any(isinstance(record.fields.get(name), Mapping) for record in records)


def find_text_pair(records: Sequence[Record]) -> tuple[str, str] | None:
    """The two columns of records that have one object of exactly two texts; None where there is no such object, or several.

    >>> find_text_pair([Record(1, {"id": 0, "translation": {"hu": "kutya", "ro": "câine"}})])
    ('translation.hu', 'translation.ro')
    """
    found = {
        (f"{name}.{first}", f"{name}.{second}")
        for record in records
        for name, value in record.fields.items()
        if isinstance(value, Mapping) and len(value) == 2 and all(isinstance(text, str) for text in value.values())
        for first, second in [list(value)]
    }
    return found.pop() if len(found) == 1 else None


def find_other_column(pair: tuple[str, str] | None, name: str) -> str | None:
    """The second column of a pair, where `name` is the first, and the other way round."""
    if pair is None or name not in pair:
        return None
    return pair[1] if name == pair[0] else pair[0]
