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

from saccade.metrics.porter import stem
from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.metrics.texts import Gold, _as_reference_lists
from saccade.text.scripts import split_words

ASCII_WORD_PATTERN = re.compile(r"[a-z0-9]+")
MIN_ASCII_FRACTION = 0.95  # of the letters
RougeTokenizer = Callable[[str], list[str]]


class RougeScore(NamedTuple):
    """One answer against one right text."""

    precision: float
    recall: float
    f1: float


def words(text: str) -> list[str]:
    """The words as the reference package cuts them.

    >>> words("It's 7-2 for Bodø/Glimt!")
    ['it', 's', '7', '2', 'for', 'bod', 'glimt']
    """
    return ASCII_WORD_PATTERN.findall(text.lower())


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


def rouge_tokenizer(gold: Gold) -> RougeTokenizer:
    """The reference's words where the texts are written in a to z, and words of any script where they are not.

    >>> rouge_tokenizer(["a café"]) is words, rouge_tokenizer(["Ужин готов"]) is any_words
    (True, True)
    """
    letters = [letter for right in _as_reference_lists(gold) for text in right for letter in text if letter.isalpha()]
    return words if sum(map(str.isascii, letters)) >= MIN_ASCII_FRACTION * len(letters) - 1 else any_words


def rouge(
    gold: Gold,
    answers: Sequence[str],
    rouge_type: str = "1",
    *,
    tokenizer: RougeTokenizer = words,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """The mean F1 of one of KINDS over the examples, 0 to 1; of several right texts the nearest counts.

    >>> rouge(["the cat sat on the mat"], ["a cat sat on a mat"], "2").value
    0.4
    """
    name = f"rouge_{rouge_type.lower()}"
    if rouge_type not in ROUGE_TYPES:
        raise ValueError(f"There is no ROUGE-{rouge_type}; known are {', '.join(ROUGE_TYPES)}.")
    check_pairs(name, gold, answers)
    rows = []
    for i, (right, said) in enumerate(zip(_as_reference_lists(gold), answers, strict=True)):
        if not right:
            raise ValueError(f"{name}: example {i} has no right text; give at least one.")
        rows.append([max(ROUGE_TYPES[rouge_type](text, said, tokenizer).f1 for text in right), 1.0])
    signature = f"words:{tokenizer.__name__}"
    return measure(
        name, ratio, np.array(rows).reshape(-1, 2), signature=signature, bootstrap_samples=bootstrap_samples, seed=seed
    )


def rouge_n(n: int, reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-N: runs of so many words that both have, each as often as in the one that has it less often."""
    a, b = (_ngrams(tokenizer(text), n) for text in (reference, answer))
    return _make_score((a & b).total(), a.total(), b.total())


def rouge_l(reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-L: the longest row of words that both have in the same order, with others between."""
    a, b = tokenizer(reference), tokenizer(answer)
    return _make_score(int(_lcs_table(a, b)[-1, -1]), len(a), len(b))


def rouge_lsum(reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-Lsum: sentences stand on lines of their own; what each has in common with any of the other text's is joined."""
    a, b = ([tokenizer(line) for line in text.split("\n") if line] for text in (reference, answer))
    left, also = Counter(word for line in a for word in line), Counter(word for line in b for word in line)
    sizes = left.total(), also.total()
    hits = 0
    for line in a:
        for place in sorted({place for other in b for place in _lcs_positions(line, other)}):
            word = line[place]
            if left[word] and also[word]:  # no word of either text is counted twice
                left[word] -= 1
                also[word] -= 1
                hits += 1
    return _make_score(hits, *sizes)


ROUGE_TYPES: dict[str, Callable[[str, str, RougeTokenizer], RougeScore]] = {
    "1": lambda right, said, split: rouge_n(1, right, said, split),
    "2": lambda right, said, split: rouge_n(2, right, said, split),
    "L": rouge_l,
    "Lsum": rouge_lsum,
}


def _ngrams(tokens: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))


def _make_score(hits: int, reference_count: int, answer_count: int) -> RougeScore:
    if not hits:
        return RougeScore(0.0, 0.0, 0.0)
    return RougeScore(hits / answer_count, hits / reference_count, 2 * hits / (reference_count + answer_count))


def _lcs_table(a: Sequence[str], b: Sequence[str]) -> np.ndarray:
    """The longest common row of each pair of beginnings, (len(a) + 1, len(b) + 1).

    A row of the table is a running maximum: a word in common adds one to the field before it.
    """
    numbers: dict[str, int] = {}
    first, second = (np.array([numbers.setdefault(word, len(numbers)) for word in side], int) for side in (a, b))
    table = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i, word in enumerate(first):
        table[i + 1, 1:] = np.maximum.accumulate(np.maximum(table[i, 1:], table[i, :-1] + (second == word)))
    return table


def _lcs_positions(a: Sequence[str], b: Sequence[str]) -> list[int]:
    """Where in `a` the words of a longest common row stand; of several rows, the one that the reference walks back to."""
    table, i, j, found = _lcs_table(a, b), len(a), len(b), list[int]()
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i, j - 1] > table[i - 1, j]:
            j -= 1
        else:
            i -= 1
    return found
