"""ListOps: nested lists of digits with the operators MAX, MIN, MED (median) and SM (sum modulo 10), whose value is the label.

Nangia & Bowman 2018 (arXiv 1804.06028); long lists as in the Long Range Arena (Tay et al. 2020, arXiv 2011.04006). As there,
grouping brackets are dropped and the end of a list is an X: `[MAX 2 9 [MIN 4 7 ] 0 ]` becomes MAX 2 9 MIN 4 7 X 0 X.
"""

import random
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from saccade.data import Example, Role
from saccade.data.example import LABEL, TEXT
from saccade.data.read import read_examples
from saccade.errors import DataError

LIST_END = "X"
OPERATORS: dict[str, Callable[[Sequence[int]], int]] = {
    "MAX": max,
    "MIN": min,
    "MED": lambda values: int(statistics.median(values)),
    "SM": lambda values: sum(values) % 10,
}
BRACKET_TABLE = str.maketrans({"(": "", ")": "", "[": "", "]": LIST_END})
VOCABULARY = (*map(str, range(10)), *OPERATORS, LIST_END)
ROLES = (
    Role("text", "text", ("source", *TEXT.column_names)),
    Role("label", "label", ("target", *LABEL.column_names)),
)
MAX_DEPTH, MAX_VALUES = 10, 10  # nesting depth, and values per list
NESTED_PROBABILITY = 0.25  # probability that a value is a list


@dataclass(frozen=True)
class ListOpsSet:
    """A dataset of the study: lists as texts, and their values as labels."""

    name: str
    texts: list[str]
    labels: list[str]

    @property
    def max_words(self) -> int:
        return max(len(text.split()) for text in self.texts)


def normalize_text(text: str) -> str:
    """A list in the form of the Long Range Arena.

    >>> normalize_text("( ( ( [MAX 2 ) ( ( ( [MIN 4 ) 7 ) ] ) ) ] )")
    'MAX 2 MIN 4 7 X X'
    """
    return " ".join(text.translate(BRACKET_TABLE).split())


def solve(text: str) -> int:
    """The value of a list.

    >>> solve("MAX 2 9 MIN 4 7 X 0 X"), solve("SM 8 MED 1 6 3 X X"), solve("MED 2 7 X")
    (9, 1, 4)
    """
    open_lists: list[tuple[str, list[int]]] = [("MAX", [])]
    for word in text.split():
        if word in OPERATORS:
            open_lists.append((word, []))
        elif word == LIST_END:
            operator, values = open_lists.pop()
            open_lists[-1][1].append(OPERATORS[operator](values))
        else:
            open_lists[-1][1].append(int(word))
    if len(open_lists) != 1 or len(open_lists[0][1]) != 1:
        raise ValueError(f"{text[:60]!r} is not one list: each operator needs a closing {LIST_END}.")
    return open_lists[0][1][0]


def make_set(name: str, count: int, lengths: tuple[int, int], seed: int = 0) -> ListOpsSet:
    """`count` distinct lists with lengths in the range `lengths`, sampled as in the original paper."""
    rng = random.Random(f"{name} {seed}")
    labels: dict[str, str] = {}
    while len(labels) < count:
        words = list(islice(_generate_list(rng, 1), lengths[1] + 1))  # stops early if it is too long
        if lengths[0] <= len(words) <= lengths[1]:
            text = " ".join(words)
            labels[text] = str(solve(text))
    return ListOpsSet(name, list(labels), list(labels.values()))


def _generate_list(rng: random.Random, depth: int) -> Iterator[str]:
    """Generate one list, word by word."""
    yield rng.choice(list(OPERATORS))
    for _ in range(rng.randint(2, MAX_VALUES)):
        nested = depth < MAX_DEPTH and rng.random() < NESTED_PROBABILITY
        yield from _generate_list(rng, depth + 1) if nested else (str(rng.randint(0, 9)),)
    yield LIST_END


def read_sets(paths: Sequence[str]) -> list[ListOpsSet]:
    """The datasets of files or directories, one per file, from short to long; a row that is not a list raises an error."""
    files = [
        file for path in paths for file in ([Path(path)] if not Path(path).is_dir() else _list_table_files(Path(path)))
    ]
    sets = [_read_set(file) for file in files]
    return sorted(sets, key=lambda dataset: dataset.max_words)


def _list_table_files(path: Path) -> list[Path]:
    tables = sorted(file for file in path.iterdir() if ".tsv" in file.suffixes or ".csv" in file.suffixes)
    if not tables:
        hint = "give .tsv files with the columns Source and Target"
        raise DataError("no table in this directory", file=path, hint=hint)
    return tables


def _read_set(path: Path) -> ListOpsSet:
    examples = read_examples([path], ROLES).examples
    texts = [normalize_text(example["text"]) for example in examples]
    for text, example in zip(texts, examples, strict=True):
        _check_example(text, example)
    return ListOpsSet(path.name.partition(".")[0], texts, [example["label"] for example in examples])


def _check_example(text: str, example: Example) -> None:
    """Raise an error unless the text is a list and the label is its value."""
    unknown = sorted(set(text.split()) - set(VOCABULARY))
    if unknown:
        cure = f"use only {', '.join(VOCABULARY)}"
        raise DataError("not a word of ListOps", file=example.file, line=example.line, value=unknown[0], hint=cure)
    try:
        value = str(solve(text))
    except (ValueError, ArithmeticError) as error:
        raise DataError(str(error), file=example.file, line=example.line, hint="download the file again") from None
    if value != example["label"]:
        problem = f"the list has the value {value}, but the label is {example['label']}"
        raise DataError(problem, file=example.file, line=example.line, value=example["label"], hint="correct the label")
