"""Exact match and F1 of extracted answers as SQuAD counts them, and the threshold at which to say that there is no answer.

The rules are those of SQuAD 2.0's own script: case, punctuation, English articles and white space do not count; of several
gold answers the best match counts; a question without an answer is right when nothing is said. Without such questions the
numbers are those of SQuAD 1.1. Rajpurkar, Jia and Liang, 2018: https://aclanthology.org/P18-2124/
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.metrics.texts import normalize_answer
from saccade.text.scripts import split_words

GoldAnswers = Sequence[Sequence[str]]  # the gold answers of each question; none where it has no answer


def answer_match(gold: Sequence[str], answer: str) -> float:
    """1 if what was said is one of the gold answers, or nothing where there is none.

    >>> answer_match(["the Eiffel Tower", "Paris"], "Eiffel tower!"), answer_match([], "Paris"), answer_match([], "")
    (1.0, 0.0, 1.0)
    """
    return float(normalize_answer(answer) in _normalize_gold(gold))


def answer_f1(gold: Sequence[str], answer: str) -> float:
    """The F1 of the words that were said, against the gold answer that they fit best; in Chinese, Japanese or Thai of the
    characters, as MLQA and CMRC count them.

    >>> answer_f1(["a small red boat"], "red boat"), answer_f1([], ""), answer_f1(["boat"], ""), answer_f1(["東京都"], "東京")
    (0.8, 1.0, 0.0, 0.8)
    """
    words = split_words(normalize_answer(answer))
    return max(_token_f1(split_words(right), words) for right in _normalize_gold(gold))


def squad(
    gold: GoldAnswers, answers: Sequence[str], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> list[Score]:
    """F1 and exact match of all answers, "" being no answer; where both kinds of questions occur, of each kind too.

    >>> for score in squad([["Ann"], ["a red boat"]], ["ann", "boat"]):
    ...     print(f"{score.name} {score.value:.3f}")
    f1 0.833
    exact_match 0.500
    """
    check_pairs("squad", gold, answers)
    kinds: list[tuple[str, str, Callable[[Sequence[str], str], float], bool | None]] = [
        ("f1", "f1", answer_f1, None),
        ("exact_match", "exact", answer_match, None),
    ]
    if 0 < sum(map(bool, gold)) < len(gold):
        kinds += [
            ("answerable_f1", "HasAns_f1", answer_f1, True),
            ("answerable_exact_match", "HasAns_exact", answer_match, True),
            ("unanswerable_accuracy", "NoAns_exact", answer_match, False),
        ]
    found = []
    for name, theirs, value, kind in kinds:
        pairs = [(g, a) for g, a in zip(gold, answers, strict=True) if kind is None or bool(g) is kind]
        rows = np.array([[value(g, a), 1.0] for g, a in pairs]).reshape(-1, 2)
        found.append(
            measure(name, ratio, rows, signature=f"SQuAD 2.0 {theirs}", bootstrap_samples=bootstrap_samples, seed=seed)
        )
    return found


def best_threshold(
    margins: Sequence[float], answered_scores: Sequence[float], unanswered_scores: Sequence[float]
) -> float:
    """The margin above which to say nothing, so that the sum of scores is the highest; of several, the middle of the widest.

    A margin is how much surer a model is of no answer than of its best one; `said` and `silent` are what each question
    scores when that answer is given and when none is.

    >>> best_threshold([-3.0, -1.0, 2.0], answered_scores=[1.0, 0.5, 0.0], unanswered_scores=[0.0, 0.0, 1.0])
    0.5
    """
    order = np.argsort(margins, kind="stable")
    levels, first = np.unique(np.asarray(margins, float)[order], return_index=True)
    gains = np.add.reduceat((np.asarray(answered_scores, float) - np.asarray(unanswered_scores, float))[order], first)
    totals = np.concatenate([[0.0], gains.cumsum()])  # when the questions up to each level are answered
    edges = np.concatenate([[levels[0] - 2.0], levels, [levels[-1] + 2.0]])  # beyond the ends, a step of one
    best = np.flatnonzero(totals >= totals.max() - 1e-9)
    widest = best[np.argmax(edges[best + 1] - edges[best])]
    return float((edges[widest] + edges[widest + 1]) / 2)


def _normalize_gold(gold: Sequence[str]) -> list[str]:
    """Gold answers as they are compared; one of which nothing is left does not count, and none at all is no answer."""
    return [right for right in map(normalize_answer, gold) if right] or [""]


def _token_f1(reference: list[str], answer: list[str]) -> float:
    if not reference or not answer:
        return float(reference == answer)
    same = sum((Counter(reference) & Counter(answer)).values())
    return 2 * same / (len(reference) + len(answer))
