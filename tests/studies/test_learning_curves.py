"""The study of pretraining: shares of labels that lie within each other, intervals by another path, and a whole one, small."""

import json
import math
import statistics
from collections import Counter

import pytest
import torch

from saccade.data import Example
from saccade.models.load import load
from saccade.studies import pretraining
from saccade.studies.learning_curves import STUDENT_T_QUANTILES, confidence_half_width, make_points
from saccade.studies.pretraining import INITIALIZATIONS, LABEL_FRACTIONS, STUDY, LabelFraction, plan_runs, sample_labels
from saccade.studies.study import StudyPlan, measure_and_write, train_runs
from saccade.training.events import RunRefused, RunResult
from saccade.training.prepare import prepare as ready

TINY = {"embedding_width": 8, "width": 8, "layers": 1, "heads": 2, "ffn_width": 8, "vocab": 300, "position": "rotary"}


def labelled(count: int) -> list[Example]:
    return [Example({"text": f"text {i}", "label": "ab"[i % 3 == 0]}) for i in range(count)]


def test_a_share_has_each_label_in_its_proportion_and_lies_within_a_larger_one_of_the_same_seed():
    rows = labelled(300)
    small, large = ([example["text"] for example in sample_labels(rows, part, 4)] for part in (0.1, 0.5))
    assert set(small) < set(large)
    assert Counter(example["label"] for example in sample_labels(rows, 0.1, 4)) == {"a": 20, "b": 10}
    assert small != [example["text"] for example in sample_labels(rows, 0.1, 5)]
    assert sorted(example["text"] for example in sample_labels(rows, 1.0, 4)) == sorted(
        example["text"] for example in rows
    )


def test_a_label_that_is_rare_is_never_left_out():
    rows = [*labelled(20), Example({"text": "rare", "label": "z"})]
    assert "z" in {example["label"] for example in sample_labels(rows, 0.01, 0)}


def test_students_quantiles_are_those_of_scipy():
    stats = pytest.importorskip("scipy.stats")
    assert (
        pytest.approx([stats.t.ppf(0.975, df) for df in range(1, len(STUDENT_T_QUANTILES) + 1)], abs=5e-4)
        == STUDENT_T_QUANTILES
    )


def test_an_interval_holds_draws_and_test_alike():
    score = lambda value: {"value": value, "low": value - 0.03, "high": value + 0.03}
    ours, theirs = [0.60, 0.66, 0.63], [0.55, 0.58, 0.58]
    found = make_points({"x": [*map(score, ours)], "y": [*map(score, theirs)]}, 70, baseline="y")
    drawn = 4.303 * statistics.stdev(ours) / math.sqrt(3)
    assert found["x"].high - found["x"].value == pytest.approx(math.sqrt(drawn**2 + 0.03**2))
    assert found["x"].gain is not None
    assert found["x"].gain["value"] == pytest.approx(0.06)
    assert found["x"].gain["high"] - 0.06 == pytest.approx(4.303 * statistics.stdev([0.05, 0.08, 0.05]) / math.sqrt(3))
    assert found["y"].gain is None
    assert confidence_half_width([0.5]) == 0.0


def test_both_read_for_equally_long_and_all_learn_from_the_same_labels(tmp_path):
    found = {member.name: member for member in plan_runs(StudyPlan(tmp_path, ("text.txt", "labels"), minutes=60))}
    assert found["masked_lm"].minutes == found["replaced_token_detection"].minutes
    assert (
        found["replaced_token_detection"].job.task_fields["discriminator_weight"]
        == pretraining.ELECTRA_CONFIG["replaced_token_detection"]["discriminator_weight"]
    )
    assert "discriminator_weight" not in found["masked_lm"].job.task_fields
    assert found["masked_lm"].job.model == found["replaced_token_detection"].job.model
    assert len(found) == 2 + len(INITIALIZATIONS) * sum(share.samples for share in LABEL_FRACTIONS)
    assert sum(member.minutes for member in found.values()) < 60
    for share in LABEL_FRACTIONS:
        for number in range(share.samples):
            jobs = [found[f"{share.name}-{one.name}-{number}"].job for one in INITIALIZATIONS]
            assert len({job.data for job in jobs}) == 1
            assert [job.model.rsplit("/", 1)[1] for job in jobs] == ["init", "masked_lm", "replaced_token_detection"]
            kept = ("lr", "weight_decay")
            others = [{k: v for k, v in job.train_fields.items() if k not in kept} for job in jobs]
            assert others[0] == others[1] == others[2]


def test_one_set_alone_is_refused(tmp_path):
    with pytest.raises(RunRefused, match="text first and the labeled data last"):
        plan_runs(StudyPlan(tmp_path, ("sst2",)))


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A plan of seconds: a text, labelled lines, and a reader of a few numbers."""
    monkeypatch.setattr(pretraining, "MODEL_CONFIG", TINY)
    monkeypatch.setattr(
        pretraining, "LABEL_FRACTIONS", (LabelFraction(0.25, 2, 1, 64, 1), LabelFraction(1.0, 1, 1, 64, 1))
    )
    (tmp_path / "text.txt").write_text("the good film was long .\nthe bad film was short .\n" * 40)
    for split, count in (("train", 24), ("dev", 8), ("test", 12)):
        rows = [f"the {'good' if i % 2 else 'bad'} film {i}\t{i % 2}\n" for i in range(count)]
        (tmp_path / f"{split}.tsv").write_text("".join(rows))
    (tmp_path / "labels").mkdir()
    for split in ("train", "dev", "test"):
        (tmp_path / f"{split}.tsv").rename(tmp_path / "labels" / f"{split}.tsv")
    return StudyPlan(tmp_path / "out", (str(tmp_path / "text.txt"), str(tmp_path / "labels")), minutes=0.01)


def test_a_small_study_goes_through_and_is_not_carried_out_twice(small):
    for turn in train_runs(STUDY, small):
        assert not turn.is_trained
        assert isinstance(list(turn.events)[-1], RunResult)
    (small.out / "masked_lm" / "speed.jsonl").write_text('{"seconds": 30.0}\n{"seconds": 84.0}\n')
    record = measure_and_write("pretraining", STUDY, small)
    assert record["pretraining"]["masked_lm"]["minutes"] == 1.9, "as they were, not as they were planned"
    for name, line in record["curves"].items():
        runs = [[f"{share.name}-{name}-{n}" for n in range(share.samples)] for share in pretraining.LABEL_FRACTIONS]
        for point, some in zip(line, runs, strict=True):
            told = [json.loads((small.out / run / "result.json").read_text()) for run in some]
            values = [next(s["value"] for s in one["scores"]["test"] if s["name"] == "accuracy") for one in told]
            assert point["scores"] == values
            assert point["label_count"] == told[0]["examples"]["train"]
    assert [point["label_count"] for point in record["curves"]["masked_lm"]] == [6, 24]
    assert record["majority"] == 0.5
    assert [len(grid.rows) for grid in STUDY.make_tables(record)] == [3, 2, 2]
    assert load(small.out / "masked_lm").config.position == record["model_config"]["position"] == "rotary"
    assert (small.out / "plot.png").stat().st_size > 1000
    assert [turn.is_trained for turn in train_runs(STUDY, small)] == [True] * 11


def test_all_begin_with_the_same_weights_and_drop_what_suits_them(small):
    pretraining.prepare_data(small)
    jobs = {member.name: member.job for member in plan_runs(small)}
    assert {jobs[name].model for name in ("masked_lm", "replaced_token_detection", "25pc-from_scratch-0")} == {
        str(small.out / "init")
    }
    read, nothing = (ready(jobs[name]).model for name in ("masked_lm", "25pc-from_scratch-0"))
    assert (read.config.dropout, nothing.config.dropout) == (0.1, 0.4)
    for (name, mine), theirs in zip(read.body.state_dict().items(), nothing.body.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs), name
    assert read.tokenizer is not None
    assert nothing.tokenizer is not None
    assert read.tokenizer.encode("the good film").ids == nothing.tokenizer.encode("the good film").ids
