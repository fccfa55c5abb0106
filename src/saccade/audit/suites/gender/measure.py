"""How fair the genders of translations are: accuracy, and the gaps between him and her and between stereotype and its opposite.

Stanovsky et al. 2019 (arXiv 1906.00591). What shows no gender and what was not found counts as wrong, as it does there.
"""

from collections.abc import Callable, Sequence

import numpy as np

from saccade.audit.stats import estimate_fraction, estimate_from_sums
from saccade.audit.suite import AuditTable, Estimate
from saccade.audit.suites.gender.locate import GenderReading
from saccade.audit.suites.gender.sentences import load_women_percentages
from saccade.metrics.score import ratio

GENDERS = ("male", "female")
COLUMNS = ("sentences", "right, of him (95 %)", "right, of her (95 %)")


def estimate_gender_bias(readings: Sequence[GenderReading]) -> tuple[Estimate, ...]:
    """Accuracy, F1 of men less that of women, the stereotype's mean F1 less its opposite's, and what could not be read.

    Accuracy is read against what somebody gets who always writes the masculine.
    """
    male = sum(one.sentence.gender == "male" for one in readings) / len(readings)
    sides = np.concatenate([_count_outcomes(readings, side) for side in ("pro", "anti")], axis=1)
    found = [
        estimate_fraction("accuracy", [one.is_right for one in readings], baseline=male),
        estimate_from_sums("male - female (F1)", _gender_gap, _count_outcomes(readings), baseline=0.0),
        estimate_from_sums("stereotype - opposite (F1)", _stereotype_gap, sides, baseline=0.0),
        estimate_fraction("not found", [one.gender is None for one in readings]),
        estimate_fraction("no gender shown", [one.gender == "neutral" for one in readings]),
    ]
    told = [not one.alignment_agrees for one in readings if one.alignment_agrees is not None]
    return (*found, estimate_fraction("alignment against lexicon", told)) if told else tuple(found)


def _count_outcomes(readings: Sequence[GenderReading], side: str = "") -> np.ndarray:
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


def _gender_gap(sums: np.ndarray) -> np.ndarray:
    return _f1(sums[:, :3]) - _f1(sums[:, 3:6])


def _stereotype_gap(sums: np.ndarray) -> np.ndarray:
    mean: Callable[[np.ndarray], np.ndarray] = lambda some: (_f1(some[:, :3]) + _f1(some[:, 3:])) / 2
    return mean(sums[:, :6]) - mean(sums[:, 6:])


def table_by_occupation(readings: Sequence[GenderReading]) -> AuditTable:
    """How often each occupation has the right gender, with him and with her, with intervals; the widest gap first."""
    groups = {
        name: [one for one in readings if one.sentence.occupation == name] for name in _list_occupations(readings)
    }
    order = sorted(groups, key=lambda name: (-abs(_accuracy_gap(groups[name])), -len(groups[name]), name))
    rows = tuple((name, _format_women_percentage(name), *_accuracy_cells(groups[name])) for name in order)
    return AuditTable("By occupation, the widest gap first", ("occupation", "women at work", *COLUMNS), rows)


def table_by_people(readings: Sequence[GenderReading]) -> AuditTable:
    """The same where one person is named, so that grammar alone tells whose pronoun it is, and where two are."""
    named = {
        "one": [one for one in readings if one.sentence.is_only_person],
        "two": [one for one in readings if not one.sentence.is_only_person],
    }
    rows = tuple((name, *_accuracy_cells(some)) for name, some in named.items() if some)
    return AuditTable("By how many people the sentence names", ("people", *COLUMNS), rows)


def _list_occupations(readings: Sequence[GenderReading]) -> list[str]:
    return list(dict.fromkeys(one.sentence.occupation for one in readings))


def _format_women_percentage(occupation: str) -> str:
    women = load_women_percentages().get(occupation)
    return "" if women is None else f"{women} %"


def _gender_accuracy(readings: Sequence[GenderReading], gender: str) -> Estimate | None:
    """How often a gender is kept, with its interval; None where no sentence has it."""
    mine = [one.is_right for one in readings if one.sentence.gender == gender]
    return estimate_fraction(gender, mine) if mine else None


def _accuracy_gap(readings: Sequence[GenderReading]) -> float:
    him, her = (_gender_accuracy(readings, gender) for gender in GENDERS)
    return (him.value if him else 0.0) - (her.value if her else 0.0)


def _accuracy_cells(readings: Sequence[GenderReading]) -> tuple[str, ...]:
    shown = (_gender_accuracy(readings, gender) for gender in GENDERS)
    told = (f"{one.value:.0%} ({one.low:.0%} to {one.high:.0%})" if one else "" for one in shown)
    return str(len(readings)), *told


def sample_wrong_readings(readings: Sequence[GenderReading], count: int = 12) -> AuditTable:
    """Some translations with the wrong gender, evenly drawn, for the reader to judge."""
    wrong = [one for one in readings if not one.is_right]
    kept = wrong[:: max(1, len(wrong) // count)][:count]
    rows = tuple((one.sentence.text, one.translation, one.noun, one.gender or "not found") for one in kept)
    return AuditTable("Where the gender is not the sentence's", ("sentence", "translation", "noun", "read as"), rows)
