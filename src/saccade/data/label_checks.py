"""Checks of a column of labels: are there too many for labels, and do some differ only by case or white space?"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from saccade.data.example import Example
from saccade.data.read.header import is_number
from saccade.errors import DataError

MIN_EXAMPLES_PER_LABEL = 2  # mean number of training examples below which a column is hardly one of labels
LABELS_ALWAYS_ALLOWED = 20  # also in a file with few records
MAX_NAMES_SHOWN = 3
MAX_PAIRS_SHOWN = 5
ID_PATTERN = re.compile(r"(?=.*\d)[\w.:/-]+")


def default_max_labels(count: int) -> int:
    """The largest plausible number of labels for a number of gold labels: half of it, and 20 in any case.

    >>> default_max_labels(4408), default_max_labels(8)
    (2204, 20)
    """
    return max(LABELS_ALWAYS_ALLOWED, count // MIN_EXAMPLES_PER_LABEL)


def describe_many_labels(counts: Mapping[str, int], max_labels: int = 0) -> str:
    """What a column with too many labels seems to be; "" if they are not too many. 0 takes `default_max_labels`.

    >>> describe_many_labels({f"u{i}": 1 for i in range(30)})
    "30 labels for 30 records, such as 'u0', 'u1' and 'u2': is this a column of ids?"
    >>> describe_many_labels({"good": 20, "bad": 10})
    ''
    """
    total = sum(counts.values())
    if len(counts) <= (max_labels or default_max_labels(total)):
        return ""
    names = list(counts)
    shown = [repr(name if len(name) <= 40 else f"{name[:39]}…") for name in names[:MAX_NAMES_SHOWN]]
    listed = f"{', '.join(shown[:-1])} and {shown[-1]}"
    return f"{len(names):,} labels for {total:,} records, such as {listed}: {_guess_kind(names)}"


def _guess_kind(names: Sequence[str]) -> str:
    def most(test: Iterable[bool]) -> bool:
        return sum(test) > 0.9 * len(names)

    if most(is_number(name) for name in names):
        return "is this a number to predict, or a column of ids?"
    if most(ID_PATTERN.fullmatch(name) is not None for name in names):
        return "is this a column of ids?"
    if sum(len(name.split()) for name in names) > 2 * len(names):
        return "is this a column of free text?"
    return "is this the column of labels?"


def check_label_count(
    counts: Mapping[str, int], max_labels: int, examples: Sequence[Example], column: str, *, number_task: str = ""
) -> None:
    """Raise an error for a column that has too many labels; `number_task` is the task that predicts a number instead."""
    question = describe_many_labels(counts, max_labels)
    if not question:
        return
    allowed = f"{max_labels:,} (task.max_labels)" if max_labels else f"{default_max_labels(sum(counts.values())):,}"
    rule = "" if max_labels else f", half as many as records and {LABELS_ALWAYS_ALLOWED} in any case"
    number = f" use saccade train {number_task} for numbers," if number_task and "number" in question else ""
    raise DataError(
        f"{question} At most {allowed} are expected{rule}",
        file=examples[0].file,
        hint=f"name the column of the labels with --columns {column}=COLUMN,{number} "
        f"or allow them with --task.max-labels {len(counts)}",
    )


def describe_similar_labels(counts: Mapping[str, int]) -> str:
    """A warning about labels that differ only by case or white space; "" if there are none.

    >>> describe_similar_labels({"spam": 20, "ham": 70, "Spam": 3, "spam ": 1})
    "labels that differ only by case or white space count as different: 'spam' (20), 'Spam' (3) and 'spam ' (1)"
    """
    by_form: dict[str, list[str]] = defaultdict(list)
    for name in counts:
        by_form["".join(name.split()).casefold()].append(name)
    groups = [sorted(names, key=lambda name: -counts[name]) for names in by_form.values() if len(names) > 1]
    if not groups:
        return ""
    texts = [[f"{name!r} ({counts[name]:,})" for name in names] for names in groups]
    shown = [f"{', '.join(names[:-1])} and {names[-1]}" for names in texts[:MAX_PAIRS_SHOWN]]
    more = f"; and {len(groups) - MAX_PAIRS_SHOWN:,} more" if len(groups) > MAX_PAIRS_SHOWN else ""
    return f"labels that differ only by case or white space count as different: {'; '.join(shown)}{more}"
