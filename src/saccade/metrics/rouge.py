"""ROUGE for summaries: overlap with the reference in words (1), bigrams (2) and the longest common subsequence (L).

The numbers are those of the package `rouge-score`: every character other than a to z and digits separates words, case is
ignored, and the score of an example is its F1. Lin, 2004: https://aclanthology.org/W04-1013/
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
MIN_ASCII_FRACTION = 0.95  # fraction of the letters of the references
RougeTokenizer = Callable[[str], list[str]]


class RougeScore(NamedTuple):
    """Precision, recall and F1 of one prediction against one reference."""

    precision: float
    recall: float
    f1: float


def words(text: str) -> list[str]:
    """The words of a text, tokenized as `rouge-score` does.

    >>> words("It's 7-2 for Bodø/Glimt!")
    ['it', 's', '7', '2', 'for', 'bod', 'glimt']
    """
    return ASCII_WORD_PATTERN.findall(text.lower())


def stems(text: str) -> list[str]:
    """The stemmed words of a text; words of up to three letters are unchanged.

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
    """The tokenizer of `rouge-score` if the references are written in a to z, otherwise words of any script.

    >>> rouge_tokenizer(["a café"]) is words, rouge_tokenizer(["Ужин готов"]) is any_words
    (True, True)
    """
    letters = [letter for texts in _as_reference_lists(gold) for text in texts for letter in text if letter.isalpha()]
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
    """Mean ROUGE F1, 0 to 1, for one of ROUGE_TYPES; of several references the best match counts.

    >>> rouge(["the cat sat on the mat"], ["a cat sat on a mat"], "2").value
    0.4
    """
    name = f"rouge_{rouge_type.lower()}"
    if rouge_type not in ROUGE_TYPES:
        raise ValueError(f"There is no ROUGE-{rouge_type}; known are {', '.join(ROUGE_TYPES)}.")
    check_pairs(name, gold, answers)
    rows = []
    for i, (references, answer) in enumerate(zip(_as_reference_lists(gold), answers, strict=True)):
        if not references:
            raise ValueError(f"{name}: example {i} has no reference; give at least one.")
        rows.append([max(ROUGE_TYPES[rouge_type](text, answer, tokenizer).f1 for text in references), 1.0])
    signature = f"words:{tokenizer.__name__}"
    return measure(
        name, ratio, np.array(rows).reshape(-1, 2), signature=signature, bootstrap_samples=bootstrap_samples, seed=seed
    )


def rouge_n(n: int, reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-N: the n-grams that both texts have, each counted as often as in the text that has fewer of it."""
    a, b = (_ngrams(tokenizer(text), n) for text in (reference, answer))
    return _make_score((a & b).total(), a.total(), b.total())


def rouge_l(reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-L: the longest common subsequence of words."""
    a, b = tokenizer(reference), tokenizer(answer)
    return _make_score(int(_lcs_table(a, b)[-1, -1]), len(a), len(b))


def rouge_lsum(reference: str, answer: str, tokenizer: RougeTokenizer) -> RougeScore:
    """ROUGE-Lsum: one sentence per line; unites the common subsequences of each reference sentence with all sentences."""
    a, b = ([tokenizer(line) for line in text.split("\n") if line] for text in (reference, answer))
    unused_a, unused_b = Counter(word for line in a for word in line), Counter(word for line in b for word in line)
    sizes = unused_a.total(), unused_b.total()
    hits = 0
    for line in a:
        for position in sorted({position for other in b for position in _lcs_positions(line, other)}):
            word = line[position]
            if unused_a[word] and unused_b[word]:  # no word of either text is counted twice
                unused_a[word] -= 1
                unused_b[word] -= 1
                hits += 1
    return _make_score(hits, *sizes)


ROUGE_TYPES: dict[str, Callable[[str, str, RougeTokenizer], RougeScore]] = {
    "1": lambda reference, answer, tokenizer: rouge_n(1, reference, answer, tokenizer),
    "2": lambda reference, answer, tokenizer: rouge_n(2, reference, answer, tokenizer),
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
    """The length of the longest common subsequence (LCS) of each pair of prefixes, (len(a) + 1, len(b) + 1).

    A row of the table is a running maximum: a common word adds one to the cell diagonally before it.
    """
    ids: dict[str, int] = {}
    first, second = (np.array([ids.setdefault(word, len(ids)) for word in words], int) for words in (a, b))
    table = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    for i, word in enumerate(first):
        table[i + 1, 1:] = np.maximum.accumulate(np.maximum(table[i, 1:], table[i, :-1] + (second == word)))
    return table


def _lcs_positions(a: Sequence[str], b: Sequence[str]) -> list[int]:
    """The positions in `a` of a longest common subsequence; of several, the one that `rouge-score` backtracks to."""
    table, i, j, positions = _lcs_table(a, b), len(a), len(b), list[int]()
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            positions.append(i)
        elif table[i, j - 1] > table[i - 1, j]:
            j -= 1
        else:
            i -= 1
    return positions
