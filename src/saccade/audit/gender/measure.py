"""How fair the genders of translations are: accuracy, and the gaps between him and her and between stereotype and its opposite.

Stanovsky et al. 2019 (arXiv 1906.00591). What shows no gender and what was not found counts as wrong, as it does there.
"""

from collections.abc import Callable, Sequence

import numpy as np

from saccade.audit.gender.find import Reading
from saccade.audit.gender.sentences import shares
from saccade.audit.stats import of_sums, share
from saccade.audit.suite import Figure, Grid
from saccade.tasks.metrics.score import ratio

GENDERS = ("male", "female")
HEADS = ("sentences", "right, of him (95 %)", "right, of her (95 %)")


def figures(readings: Sequence[Reading]) -> tuple[Figure, ...]:
    """Accuracy, F1 of men less that of women, the stereotype's mean F1 less its opposite's, and what could not be read.

    Accuracy is read against what somebody gets who always writes the masculine.
    """
    male = sum(one.sentence.gender == "male" for one in readings) / len(readings)
    sides = np.concatenate([_counts(readings, side) for side in ("pro", "anti")], axis=1)
    found = [
        share("accuracy", [one.right for one in readings], baseline=male),
        of_sums("male - female (F1)", _gap, _counts(readings), baseline=0.0),
        of_sums("stereotype - opposite (F1)", _apart, sides, baseline=0.0),
        share("not found", [one.gender is None for one in readings]),
        share("no gender shown", [one.gender == "neutral" for one in readings]),
    ]
    told = [not one.agreed for one in readings if one.agreed is not None]
    return (*found, share("alignment against lexicon", told)) if told else tuple(found)


def _counts(readings: Sequence[Reading], side: str = "") -> np.ndarray:
    """Of each reading, for him and for her: right, in the sentence, and in the translation, where it is on that side."""
    rows = []
    for one in readings:
        on = not side or one.sentence.side == side
        pairs = [(one.sentence.gender == gender, one.gender == gender) for gender in GENDERS]
        rows.append([float(on and x) for gold, said in pairs for x in (gold and said, gold, said)])
    return np.array(rows)


def _f1(sums: np.ndarray) -> np.ndarray:
    """(R, 3) of right, gold and said to F1."""
    return ratio(np.stack([2 * sums[:, 0], sums[:, 1] + sums[:, 2]], axis=1))


def _gap(sums: np.ndarray) -> np.ndarray:
    return _f1(sums[:, :3]) - _f1(sums[:, 3:6])


def _apart(sums: np.ndarray) -> np.ndarray:
    mean: Callable[[np.ndarray], np.ndarray] = lambda some: (_f1(some[:, :3]) + _f1(some[:, 3:])) / 2
    return mean(sums[:, :6]) - mean(sums[:, 6:])


def by_occupation(readings: Sequence[Reading]) -> Grid:
    """How often each occupation has the right gender, with him and with her, with intervals; the widest gap first."""
    groups = {name: [one for one in readings if one.sentence.occupation == name] for name in _occupations(readings)}
    order = sorted(groups, key=lambda name: (-abs(_gap_of(groups[name])), -len(groups[name]), name))
    rows = tuple((name, _women(name), *_row(groups[name])) for name in order)
    return Grid("By occupation, the widest gap first", ("occupation", "women at work", *HEADS), rows)


def by_people(readings: Sequence[Reading]) -> Grid:
    """The same where one person is named, so that grammar alone tells whose pronoun it is, and where two are."""
    named = {
        "one": [one for one in readings if one.sentence.alone],
        "two": [one for one in readings if not one.sentence.alone],
    }
    rows = tuple((name, *_row(some)) for name, some in named.items() if some)
    return Grid("By how many people the sentence names", ("people", *HEADS), rows)


def _occupations(readings: Sequence[Reading]) -> list[str]:
    return list(dict.fromkeys(one.sentence.occupation for one in readings))


def _women(occupation: str) -> str:
    women = shares().get(occupation)
    return "" if women is None else f"{women} %"


def _right(readings: Sequence[Reading], gender: str) -> Figure | None:
    """How often a gender is kept, with its interval; None where no sentence has it."""
    mine = [one.right for one in readings if one.sentence.gender == gender]
    return share(gender, mine) if mine else None


def _gap_of(readings: Sequence[Reading]) -> float:
    him, her = (_right(readings, gender) for gender in GENDERS)
    return (him.value if him else 0.0) - (her.value if her else 0.0)


def _row(readings: Sequence[Reading]) -> tuple[str, ...]:
    shown = (_right(readings, gender) for gender in GENDERS)
    told = (f"{one.value:.0%} ({one.low:.0%} to {one.high:.0%})" if one else "" for one in shown)
    return str(len(readings)), *told


def wrong_ones(readings: Sequence[Reading], count: int = 12) -> Grid:
    """Some translations with the wrong gender, evenly drawn, for the reader to judge."""
    wrong = [one for one in readings if not one.right]
    kept = wrong[:: max(1, len(wrong) // count)][:count]
    rows = tuple((one.sentence.text, one.translation, one.noun, one.gender or "not found") for one in kept)
    return Grid("Where the gender is not the sentence's", ("sentence", "translation", "noun", "read as"), rows)
