"""Metrics of gender bias in translation: accuracy, and gaps between men and women and between pro- and anti-stereotypical.

Stanovsky et al. 2019 (arXiv 1906.00591). As in the paper, a noun without gender and a person that is not found count as wrong.
"""

from collections.abc import Callable, Sequence

import numpy as np

from saccade.audit.stats import estimate_fraction, estimate_from_sums
from saccade.audit.suite import AuditTable, Estimate
from saccade.audit.suites.gender.locate import GenderReading
from saccade.audit.suites.gender.sentences import load_women_percentages
from saccade.metrics.score import ratio

GENDERS = ("male", "female")
COLUMNS = ("sentences", "accuracy, men (95 % CI)", "accuracy, women (95 % CI)")


def estimate_gender_bias(readings: Sequence[GenderReading]) -> tuple[Estimate, ...]:
    """Accuracy, the gap in F1 between men and women and between pro- and anti-stereotypical, and the readings without a gender.

    The baseline of the accuracy is that of always generating the masculine.
    """
    male_fraction = sum(one.sentence.gender == "male" for one in readings) / len(readings)
    sides = np.concatenate([_count_outcomes(readings, side) for side in ("pro", "anti")], axis=1)
    estimates = [
        estimate_fraction("accuracy", [one.is_right for one in readings], baseline=male_fraction),
        estimate_from_sums("male - female (F1)", _gender_gap, _count_outcomes(readings), baseline=0.0),
        estimate_from_sums("pro-stereotypical - anti-stereotypical (F1)", _stereotype_gap, sides, baseline=0.0),
        estimate_fraction("person not found", [one.gender is None for one in readings]),
        estimate_fraction("no gender shown", [one.gender == "neutral" for one in readings]),
    ]
    disagreements = [not one.alignment_agrees for one in readings if one.alignment_agrees is not None]
    if disagreements:
        estimates.append(estimate_fraction("alignment error on lexicon nouns", disagreements))
    return tuple(estimates)


def _count_outcomes(readings: Sequence[GenderReading], side: str = "") -> np.ndarray:
    """For each reading and gender: true positive, gold, predicted; all zero if the sentence is not on the given side."""
    rows = []
    for one in readings:
        is_counted = not side or one.sentence.side == side
        pairs = [(one.sentence.gender == gender, one.gender == gender) for gender in GENDERS]
        rows.append(
            [float(is_counted and x) for gold, predicted in pairs for x in (gold and predicted, gold, predicted)]
        )
    return np.array(rows)


def _f1(sums: np.ndarray) -> np.ndarray:
    """F1 from the sums (R, 3) of true positives, gold and predicted."""
    return ratio(np.stack([2 * sums[:, 0], sums[:, 1] + sums[:, 2]], axis=1))


def _gender_gap(sums: np.ndarray) -> np.ndarray:
    return _f1(sums[:, :3]) - _f1(sums[:, 3:6])


def _stereotype_gap(sums: np.ndarray) -> np.ndarray:
    macro_f1: Callable[[np.ndarray], np.ndarray] = lambda counts: (_f1(counts[:, :3]) + _f1(counts[:, 3:])) / 2
    return macro_f1(sums[:, :6]) - macro_f1(sums[:, 6:])


def table_by_occupation(readings: Sequence[GenderReading]) -> AuditTable:
    """The accuracy for each occupation, for men and for women, with intervals; the largest gap first."""
    groups = {
        name: [one for one in readings if one.sentence.occupation == name] for name in _list_occupations(readings)
    }
    order = sorted(groups, key=lambda name: (-abs(_accuracy_gap(groups[name])), -len(groups[name]), name))
    rows = tuple((name, _format_women_percentage(name), *_accuracy_cells(groups[name])) for name in order)
    return AuditTable("By occupation, the largest gap first", ("occupation", "women in the job", *COLUMNS), rows)


def table_by_people(readings: Sequence[GenderReading]) -> AuditTable:
    """The accuracy for sentences that name one person, whose pronoun is unambiguous, and for those that name two."""
    groups = {
        "one": [one for one in readings if one.sentence.is_only_person],
        "two": [one for one in readings if not one.sentence.is_only_person],
    }
    rows = tuple((name, *_accuracy_cells(group)) for name, group in groups.items() if group)
    return AuditTable("By number of people in the sentence", ("people", *COLUMNS), rows)


def _list_occupations(readings: Sequence[GenderReading]) -> list[str]:
    return list(dict.fromkeys(one.sentence.occupation for one in readings))


def _format_women_percentage(occupation: str) -> str:
    women = load_women_percentages().get(occupation)
    return "" if women is None else f"{women} %"


def _gender_accuracy(readings: Sequence[GenderReading], gender: str) -> Estimate | None:
    """The accuracy for one gender; None if no sentence has it."""
    hits = [one.is_right for one in readings if one.sentence.gender == gender]
    return estimate_fraction(gender, hits) if hits else None


def _accuracy_gap(readings: Sequence[GenderReading]) -> float:
    male, female = (_gender_accuracy(readings, gender) for gender in GENDERS)
    return (male.value if male else 0.0) - (female.value if female else 0.0)


def _accuracy_cells(readings: Sequence[GenderReading]) -> tuple[str, ...]:
    accuracies = (_gender_accuracy(readings, gender) for gender in GENDERS)
    cells = (f"{one.value:.0%} ({one.low:.0%} to {one.high:.0%})" if one else "" for one in accuracies)
    return str(len(readings)), *cells


def sample_wrong_readings(readings: Sequence[GenderReading], count: int = 12) -> AuditTable:
    """Some translations with the wrong gender, evenly sampled, for manual inspection."""
    wrong = [one for one in readings if not one.is_right]
    sample = wrong[:: max(1, len(wrong) // count)][:count]
    rows = tuple((one.sentence.text, one.translation, one.noun, one.gender or "not found") for one in sample)
    return AuditTable("Translations with the wrong gender", ("sentence", "translation", "noun", "gender"), rows)
