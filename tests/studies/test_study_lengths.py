"""The study of lengths: groups by hand, BLEU of a group as sacrebleu says it, and the whole study on a few joined lines."""

import json

import pytest
import sacrebleu

from saccade.cli import main
from saccade.data import Example
from saccade.studies.lengths import study
from saccade.studies.lengths.study import count_sentences, group_by_words, score_by_length
from saccade.studies.study import StudyPlan, is_trained


def texts(counts):
    """An example for each number of words."""
    return [Example({"source": " ".join(["w"] * count), "target": " ".join(["v"] * count)}) for count in counts]


@pytest.mark.parametrize(
    ("words", "name"), [(1, "1 to 5"), (5, "1 to 5"), (6, "6 to 10"), (40, "31 to 40"), (41, "over 40")]
)
def test_borders_belong_to_the_shorter_group(words, name, monkeypatch):
    monkeypatch.setattr(study, "MIN_TEXTS_PER_GROUP", 1)
    assert [group.name for group in group_by_words(texts([words]))] == [name]


def test_groups_hold_every_text_once_and_leave_few_out(monkeypatch):
    monkeypatch.setattr(study, "MIN_TEXTS_PER_GROUP", 2)
    found = group_by_words(texts([3, 50, 7, 4, 8, 2]))
    assert [(group.name, group.text_indices) for group in found] == [("1 to 5", [5, 0, 3]), ("6 to 10", [2, 4])]
    assert [group.mean_length for group in found] == [3.0, 7.5]


@pytest.mark.parametrize("count", range(1, 7))
def test_sentences_that_were_joined_are_counted(count):
    parts = ["I'm ill.", "Why?", "Stop!", "He said: “No.”", "Tom waits...", "It costs 3.50 here."]
    assert count_sentences(" ".join(parts[:count])) == count


def test_bleu_of_a_group_is_that_of_sacrebleu_on_its_texts(monkeypatch):
    monkeypatch.setattr(study, "MIN_TEXTS_PER_GROUP", 2)
    gold = ["the cat sat on the mat .", "a dog ran off today .", "one more of these long lines for you to read now ."]
    examples = [Example({"source": text, "target": text}) for text in [*gold, gold[2]]]
    right, wrong = (
        [*gold, gold[2]],
        ["the cat sat on a mat .", "a dog ran away today .", "one more line to read now .", "no"],
    )
    found = score_by_length(examples, {"right": right, "wrong": wrong})
    assert [(group["name"], group["texts"]) for group in found["by_words"]] == [("6 to 10", 2), ("11 to 15", 2)]
    for group, some in zip(found["by_words"], ([0, 1], [2, 3]), strict=True):
        theirs = sacrebleu.corpus_bleu([wrong[i] for i in some], [[right[i] for i in some]]).score
        assert group["bleu"]["wrong"]["value"] == pytest.approx(theirs)
        assert group["bleu"]["right"]["value"] == pytest.approx(100)
    assert found["overall"]["wrong"]["value"] == pytest.approx(sacrebleu.corpus_bleu(wrong, [right]).score)


def test_the_members_are_the_recipes_on_joined_texts(tmp_path):
    attention, fixed = study.plan_runs(StudyPlan(tmp_path, ("pairs.txt",), minutes=100.0))
    assert attention.job.model_fields["decoder"] == "bahdanau"
    assert fixed.job.model_fields["decoder"] == "sutskever"
    assert attention.job.task_fields["max_tokens"] == fixed.job.task_fields["max_tokens"] == 160
    assert attention.minutes == fixed.minutes == 42.5
    assert attention.job.data == (str(tmp_path / "data"),)
    assert not list(tmp_path.iterdir())


def test_one_run_is_not_enough(tmp_path):
    with pytest.raises(ValueError, match="two runs"):
        study.plan_runs(StudyPlan(tmp_path, trained_runs=("only",)))


def test_the_whole_study_and_again_with_its_runs(tmp_path, monkeypatch, capsys):
    pairs = "".join(f"w{i % 7} w{i % 5} {i}.\tv{i % 7} v{i % 5} {i}.\n" for i in range(90))
    (tmp_path / "pairs.txt").write_text(pairs, encoding="utf-8")
    monkeypatch.setattr(study, "HELD_OUT_SENTENCES", 20)
    monkeypatch.setattr(study, "MIN_TEXTS_PER_GROUP", 1)
    monkeypatch.setattr(study, "load_recipe", small)
    out = tmp_path / "study"
    assert (
        main(["study", "lengths", "--data", str(tmp_path / "pairs.txt"), "--out", str(out), "--minutes", "0.002"]) == 0
    )
    plan = StudyPlan(out, (str(tmp_path / "pairs.txt"),), minutes=0.002)
    assert all(is_trained(out / member.name, member.job) for member in study.plan_runs(plan))
    record = json.loads((out / "record.json").read_text(encoding="utf-8"))
    assert record["runs"] == ["attention", "fixed vector"]
    held = (out / "data" / "test.txt").read_text(encoding="utf-8").splitlines()
    assert record["texts"] == len(held) == sum(group["texts"] for group in record["by_sentences"])
    by_hand = sum(row.split("\t")[0].count(".") == 1 for row in held)
    assert {group["name"]: group["texts"] for group in record["by_sentences"]}.get("1", 0) == by_hand
    assert (out / "plot.png").stat().st_size > 5_000
    capsys.readouterr()
    runs = [str(out / "attention"), str(out / "fixed-vector")]
    asked = [
        "study",
        "lengths",
        "--trained-runs",
        *runs,
        "--data",
        str(out / "data" / "test.txt"),
        "--out",
        str(tmp_path / "again"),
        "--json",
    ]
    assert main(asked) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["runs"] == ["attention", "fixed-vector"]
    assert [list(group["bleu"].values()) for group in again["by_words"]] == [
        list(group["bleu"].values()) for group in record["by_words"]
    ]


def small(name):
    """The recipe of a name, of a size that trains in no time."""
    from saccade.studies.study import load_recipe

    raw = load_recipe(name)
    raw["model"] |= {"width": 8, "vocab": 300}
    raw["train"] |= {"batch_tokens": 256, "eval_every": 0, "max_eval_examples": 5}
    return raw
