"""ROUGE: how much of a summary's words stand in the right one, alone (1), in pairs (2) and in order (L).

The numbers are those of the reference package `rouge-score`: letters other than a to z and figures part words, case is ignored,
and of each example the F1 counts. Lin, 2004: https://aclanthology.org/W04-1013/
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple
from unicodedata import category

import numpy as np

from saccade.tasks.metrics.porter import stem
from saccade.tasks.metrics.score import ROUNDS, Score, check_pairs, measure, ratio
from saccade.tasks.metrics.texts import Gold, _several
from saccade.text.scripts import split_words

ASCII = re.compile(r"[a-z0-9]+")
MOSTLY = 0.95  # of the letters
Split = Callable[[str], list[str]]


class Rouge(NamedTuple):
    """One answer against one right text."""

    precision: float
    recall: float
    f1: float


def words(text: str) -> list[str]:
    """The words as the reference package cuts them.

    >>> words("It's 7-2 for Bodø/Glimt!")
    ['it', 's', '7', '2', 'for', 'bod', 'glimt']
    """
    return ASCII.findall(text.lower())


def stems(text: str) -> list[str]:
    """The same cut back to their stems; words of up to three letters stay.

    >>> stems("The connections are tested")
    ['the', 'connect', 'are', 'test']
    """
    return [stem(word) if len(word) > 3 else word for word in words(text)]


def any_words(text: str) -> list[str]:
    """Words of any script; in scripts without spaces, such as Chinese and Thai, each character is a word.

    >>> any_words("Bodø 東京 3:1"), any_words("हिन्दी, กิน")
    (['bodø', '東', '京', '3', '1'], ['हिन्दी', 'กิ', 'น'])
    """
    return split_words("".join(c if c.isalnum() or category(c).startswith("M") else " " for c in text.lower()))


def suited(gold: Gold) -> Split:
    """The reference's words where the texts are written in a to z, and words of any script where they are not.

    >>> suited(["a café"]) is words, suited(["Ужин готов"]) is any_words
    (True, True)
    """
    letters = [letter for right in _several(gold) for text in right for letter in text if letter.isalpha()]
    return words if sum(map(str.isascii, letters)) >= MOSTLY * len(letters) - 1 else any_words


def rouge(
    gold: Gold,
    answers: Sequence[str],
    kind: str = "1",
    *,
    split: Split = words,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Score:
    """The mean F1 of one of KINDS over the examples, 0 to 1; of several right texts the nearest counts.

    >>> rouge(["the cat sat on the mat"], ["a cat sat on a mat"], "2").value
    0.4
    """
    name = f"rouge_{kind.lower()}"
    if kind not in KINDS:
        raise ValueError(f"There is no ROUGE-{kind}; known are {', '.join(KINDS)}.")
    check_pairs(name, gold, answers)
    rows = []
    for i, (right, said) in enumerate(zip(_several(gold), answers, strict=True)):
        if not right:
            raise ValueError(f"{name}: example {i} has no right text; give at least one.")
        rows.append([max(KINDS[kind](text, said, split).f1 for text in right), 1.0])
    signature = f"words:{split.__name__}"
    return measure(name, ratio, np.array(rows).reshape(-1, 2), signature=signature, rounds=rounds, seed=seed)


def runs(length: int, right: str, said: str, split: Split) -> Rouge:
    """ROUGE-N: runs of so many words that both have, each as often as in the one that has it less often."""
    a, b = (_runs(split(text), length) for text in (right, said))
    return _rouge((a & b).total(), a.total(), b.total())


def ordered(right: str, said: str, split: Split) -> Rouge:
    """ROUGE-L: the longest row of words that both have in the same order, with others between."""
    a, b = split(right), split(said)
    return _rouge(int(_table(a, b)[-1, -1]), len(a), len(b))


def by_sentences(right: str, said: str, split: Split) -> Rouge:
    """ROUGE-Lsum: sentences stand on lines of their own; what each has in common with any of the other text's is joined."""
    a, b = ([split(line) for line in text.split("\n") if line] for text in (right, said))
    left, also = Counter(word for line in a for word in line), Counter(word for line in b for word in line)
    sizes = left.total(), also.total()
    hits = 0
    for line in a:
        for place in sorted({place for other in b for place in _places(line, other)}):
            word = line[place]
            if left[word] and also[word]:  # no word of either text is counted twice
                left[word] -= 1
                also[word] -= 1
                hits += 1
    return _rouge(hits, *sizes)


KINDS: dict[str, Callable[[str, str, Split], Rouge]] = {
    "1": lambda right, said, split: runs(1, right, said, split),
    "2": lambda right, said, split: runs(2, right, said, split),
    "L": ordered,
    "Lsum": by_sentences,
}


def _runs(found: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(found[i : i + length]) for i in range(len(found) - length + 1))


def _rouge(hits: int, right: int, said: int) -> Rouge:
    if not hits:
        return Rouge(0.0, 0.0, 0.0)
    return Rouge(hits / said, hits / right, 2 * hits / (right + said))


def _table(a: Sequence[str], b: Sequence[str]) -> np.ndarray:
    """The longest common row of each pair of beginnings, (len(a) + 1, len(b) + 1).

    A row of the table is a running maximum: a word in common adds one to the field before it.
    """
    numbers: dict[str, int] = {}
    first, second = (np.array([numbers.setdefault(word, len(numbers)) for word in side], int) for side in (a, b))
    table = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i, word in enumerate(first):
        table[i + 1, 1:] = np.maximum.accumulate(np.maximum(table[i, 1:], table[i, :-1] + (second == word)))
    return table


def _places(a: Sequence[str], b: Sequence[str]) -> list[int]:
    """Where in `a` the words of a longest common row stand; of several rows, the one that the reference walks back to."""
    table, i, j, found = _table(a, b), len(a), len(b), list[int]()
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i, j - 1] > table[i - 1, j]:
            j -= 1
        else:
            i -= 1
    return found
