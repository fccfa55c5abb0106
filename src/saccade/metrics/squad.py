"""SQuAD exact match and F1 of extracted answers, and the threshold for predicting that a question has no answer.

The rules are those of the SQuAD 2.0 evaluation script: case, punctuation, English articles and whitespace are ignored; of
several gold answers the best match counts; for a question without an answer, the empty prediction is correct. Without such
questions the numbers are those of SQuAD 1.1. Rajpurkar, Jia and Liang, 2018: https://aclanthology.org/P18-2124/
"""

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.metrics.texts import normalize_answer
from saccade.text.scripts import split_words

GoldAnswers = Sequence[Sequence[str]]  # the gold answers of each question; empty if it has no answer


def answer_match(gold: Sequence[str], answer: str) -> float:
    """Exact match: 1 if the prediction is one of the gold answers, or is empty where there are none.

    >>> answer_match(["the Eiffel Tower", "Paris"], "Eiffel tower!"), answer_match([], "Paris"), answer_match([], "")
    (1.0, 0.0, 1.0)
    """
    return float(normalize_answer(answer) in _normalize_gold(gold))


def answer_f1(gold: Sequence[str], answer: str) -> float:
    """The token F1 of a prediction against the best matching gold answer.

    Tokens are words; in Chinese, Japanese and Thai they are characters, as in MLQA and CMRC.

    >>> answer_f1(["a small red boat"], "red boat"), answer_f1([], ""), answer_f1(["boat"], ""), answer_f1(["東京都"], "東京")
    (0.8, 1.0, 0.0, 0.8)
    """
    words = split_words(normalize_answer(answer))
    return max(_token_f1(split_words(reference), words) for reference in _normalize_gold(gold))


def squad(
    gold: GoldAnswers, answers: Sequence[str], *, bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES, seed: int = 0
) -> list[Score]:
    """F1 and exact match, where "" predicts no answer; with both kinds of questions, also for each kind.

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
    scores = []
    for name, squad_name, value, kind in kinds:
        pairs = [(g, a) for g, a in zip(gold, answers, strict=True) if kind is None or bool(g) is kind]
        rows = np.array([[value(g, a), 1.0] for g, a in pairs]).reshape(-1, 2)
        signature = f"SQuAD 2.0 {squad_name}"
        scores.append(measure(name, ratio, rows, signature=signature, bootstrap_samples=bootstrap_samples, seed=seed))
    return scores


def best_threshold(
    margins: Sequence[float], answered_scores: Sequence[float], unanswered_scores: Sequence[float]
) -> float:
    """The margin above which to predict no answer, such that the sum of the scores is highest.

    A margin is the score of no answer minus the score of the best answer. `answered_scores` and `unanswered_scores` are the
    scores of each question with that answer and with no answer. If several ranges are best, the middle of the widest is returned.

    >>> best_threshold([-3.0, -1.0, 2.0], answered_scores=[1.0, 0.5, 0.0], unanswered_scores=[0.0, 0.0, 1.0])
    0.5
    """
    order = np.argsort(margins, kind="stable")
    levels, first = np.unique(np.asarray(margins, float)[order], return_index=True)
    gains = np.add.reduceat((np.asarray(answered_scores, float) - np.asarray(unanswered_scores, float))[order], first)
    totals = np.concatenate([[0.0], gains.cumsum()])  # if the questions up to each margin are answered
    edges = np.concatenate([[levels[0] - 2.0], levels, [levels[-1] + 2.0]])  # one step of 1 beyond each end
    best = np.flatnonzero(totals >= totals.max() - 1e-9)
    widest = best[np.argmax(edges[best + 1] - edges[best])]
    return float((edges[widest] + edges[widest + 1]) / 2)


def _normalize_gold(gold: Sequence[str]) -> list[str]:
    """The normalized gold answers without empty ones; [""] if none is left, which stands for no answer."""
    return [text for text in map(normalize_answer, gold) if text] or [""]


def _token_f1(reference: list[str], answer: list[str]) -> float:
    if not reference or not answer:
        return float(reference == answer)
    shared = sum((Counter(reference) & Counter(answer)).values())
    return 2 * shared / (len(reference) + len(answer))
