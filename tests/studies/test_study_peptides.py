"""The study of invented peptides: distances by brute force, compositions by hand, and a whole study, small."""

import json
import random
from functools import cache

import numpy as np
import pytest

from saccade.metrics import measure
from saccade.metrics.score import ratio
from saccade.studies.peptides import study
from saccade.studies.peptides.stats import composition_distance, compute_stats, nearest_similarity, shuffle_residues
from saccade.studies.peptides.study import STUDY, measure_gain, plan_runs
from saccade.studies.study import StudyPlan, measure_and_write, train_runs
from saccade.training.events import RunRefused

SMALL = {
    "model_fields": {"width": 8, "layers": 1, "heads": 2, "ffn_width": 8, "dropout": 0.0},
    "task_fields": {"tokenizer": "characters", "max_tokens": 16, "record_format": "protein"},
    "train_fields": {"epochs": 2, "batch_tokens": 128, "lr": 1e-2},
}


def steps(one: str, other: str) -> int:
    """Levenshtein's distance as it is defined."""

    @cache
    def from_here(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        exchanged = from_here(i + 1, j + 1) + (one[i] != other[j])
        return min(exchanged, from_here(i + 1, j) + 1, from_here(i, j + 1) + 1)

    return from_here(0, 0)


def test_the_nearest_is_the_nearest_of_all_by_the_definition():
    draw = random.Random(3)
    some, known = (["".join(draw.choices("KLGA", k=draw.randint(1, 11))) for _ in range(n)] for n in (13, 7))
    wanted = [max(1 - steps(one, other) / max(len(one), len(other)) for other in known) for one in some]
    assert nearest_similarity(some, known) == pytest.approx(wanted)
    assert nearest_similarity(known[:1], known) == [1.0]
    with pytest.raises(ValueError, match="give at least one"):
        nearest_similarity(some, [])


def test_what_peptides_look_like_by_hand():
    found = compute_stats(["KKLW", "DERH", "GG"])
    assert found.mean_length == pytest.approx(10 / 3)
    assert found.mean_charge == pytest.approx((2 - 1 - 1 + 1) / 3)
    assert found.hydrophobic_fraction == pytest.approx(2 / 10)
    assert sum(found.composition.values()) == pytest.approx(1)
    assert composition_distance(found, found) == 0
    assert composition_distance(compute_stats(["KKKK"]), compute_stats(["DDDD"])) == 1
    with pytest.raises(ValueError, match="1 peptides have no residues"):
        compute_stats([""])


def test_shuffling_keeps_what_a_peptide_is_made_of_and_loses_its_order():
    some = ["ACDEFGHIKLMNPQRSTVWY", "GIGKFLHSAKKFGKAFVGEIMNS"]
    found = shuffle_residues(some, 1)
    assert [sorted(one) for one in found] == [sorted(one) for one in some]
    assert found != some
    assert found == shuffle_residues(some, 1)


def test_a_gain_is_the_difference_of_two_shares():
    judged, others = [0.9, 0.2, 0.8, 0.7, 0.6], [0.1, 0.9, 0.9, 0.2, 0.3]
    taken = lambda some: measure("x", ratio, np.array([[float(c > 0.5), 1.0] for c in some])).value
    assert measure_gain(judged, others).value == pytest.approx(taken(judged) - taken(others))


def test_without_a_judge_or_data_it_says_what_is_needed(tmp_path):
    with pytest.raises(RunRefused, match="--trained-runs RUN, or labeled peptides"):
        plan_runs(StudyPlan(tmp_path))


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """Active peptides are of K and L, others of D and S; the judge is small and so is the writer."""
    draw = random.Random(0)
    for split, count in (("train", 60), ("dev", 10), ("test", 20)):
        rows = [
            f"{''.join(draw.choices('DS' if i % 2 else 'KL', k=draw.randint(4, 9)))}, {1 - i % 2}\n"
            for i in range(count)
        ]
        (tmp_path / f"{split}.csv").write_text("".join(dict.fromkeys(rows)))
    monkeypatch.setattr(study, "GENERATOR_SETTINGS", SMALL)
    monkeypatch.setattr(study, "GENERATED_PEPTIDES", 40)
    monkeypatch.setattr(study, "MAX_RESIDUES", 12)
    data = tuple(str(tmp_path / f"{split}.csv") for split in ("train", "dev", "test"))
    return StudyPlan(tmp_path / "out", data, minutes=0.05)


def test_a_small_study_goes_through(plan):
    assert [turn.study_run.name for turn in train_runs(STUDY, plan) if list(turn.events)] == ["classifier", "generator"]
    learnt = (plan.out / "data" / "train.txt").read_text().split()
    assert set("".join(learnt)) == {"K", "L"}
    record = measure_and_write("peptides", STUDY, plan)
    rows = [line.split("\t") for line in (plan.out / "generated.tsv").read_text().splitlines()[1:]]
    assert not {row[0] for row in rows} & set(learnt)
    assert record["active_fractions"]["generated"]["count"] == len(rows)
    assert record["active_fractions"]["generated"]["value"] == pytest.approx(
        sum(float(row[1]) > 0.5 for row in rows) / len(rows)
    )
    assert record["stats"]["shuffled"]["composition"] == record["stats"]["generated"]["composition"]
    assert record["composition_distance"]["shuffled"] == record["composition_distance"]["generated"]
    assert [len(grid.rows) for grid in STUDY.make_tables(record)] == [4, 5]
    assert (plan.out / "plot.png").stat().st_size > 1000
    assert json.loads((plan.out / "record.json").read_text())["classifier"] == record["classifier"]
