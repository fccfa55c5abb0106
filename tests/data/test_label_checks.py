"""A column that is none of labels stops training with a question, and labels that differ only by case are warned about."""

import random
from collections import Counter

import pytest

from saccade.cli import main
from saccade.data import Example
from saccade.data.label_checks import default_max_labels, describe_many_labels, describe_similar_labels
from saccade.errors import DataError
from saccade.tasks.label import Config, Label
from saccade.tasks.pair import Config as PairConfig
from saccade.tasks.pair import Pair


def rows(labels):
    return [Example({"text": f"text {i}", "label": label}, "a.csv", i + 2) for i, label in enumerate(labels)]


WORDS = ["the", "ship", "came", "late", "into", "a", "harbor", "where", "nobody", "waited"]
COLUMNS = {
    "is this a column of ids?": [f"user-{i:04}" for i in range(300)],
    "is this a number to predict, or a column of ids?": [f"{i / 7:.3f}" for i in range(300)],
    "is this a column of free text?": [f"{' '.join(random.Random(i).sample(WORDS, 6))} {i}" for i in range(300)],
    "is this the column of labels?": [f"{a}{b}" for a in "abcdefghijklmnopqrst" for b in "abcdefghijklmno"],
}


@pytest.mark.parametrize("question", COLUMNS)
def test_too_many_labels_stop_with_a_question_until_they_are_allowed(question):
    labels = COLUMNS[question]
    assert len(set(labels)) == len(labels) == 300
    with pytest.raises(DataError) as error:
        Label().fit(rows(labels))
    said = str(error.value)
    assert question in said
    assert "300 labels for 300 records" in said
    assert "At most 150 are expected, half as many as records and 20 in any case" in said
    assert "--columns label=COLUMN" in said
    assert "--task.max-labels 300" in said
    assert ("saccade train grade" in said) == ("number" in question)
    task = Label(Config(max_labels=300))
    task.fit(rows(labels))
    assert len(task.labels) == 300
    with pytest.raises(DataError, match=r"At most 299 \(task.max_labels\) are expected"):
        Label(Config(max_labels=299)).fit(rows(labels))


@pytest.mark.parametrize(("count", "distinct", "stops"), [(100, 50, False), (100, 51, True), (12, 12, False)])
def test_half_as_many_labels_as_records_are_enough(count, distinct, stops):
    labels = [f"label {i % distinct}" for i in range(count)]
    assert len(set(labels)) == distinct
    assert bool(describe_many_labels(Counter(labels))) == stops
    assert (distinct > default_max_labels(count)) == stops


def test_several_labels_and_pairs_are_asked_the_same():
    many = [Example({"text": f"text {i}", "labels": [f"a{i}", f"b{i}"]}, "a.csv", i + 2) for i in range(40)]
    with pytest.raises(DataError, match=r"80 labels for 80 records.*column of ids\?.*--columns labels=COLUMN"):
        Label(Config(multi_label=True)).fit(many)
    pairs = [Example({"first": "a", "second": "b", "label": f"user {i} said so"}, "a.csv", i) for i in range(50)]
    with pytest.raises(DataError, match=r"50 labels for 50 records.*free text\?"):
        Pair().fit(pairs)
    Pair(PairConfig(max_labels=50)).fit(pairs)


def test_labels_that_differ_only_by_case_or_white_space_are_named_with_their_counts():
    assert describe_similar_labels({"spam": 2, "ham": 5, "eggs": 1}) == ""
    said = describe_similar_labels({"very good": 2, "bad": 1, "Very  Good": 9, "BAD": 4, "straße": 1, "STRASSE": 2})
    assert said.endswith(
        "'Very  Good' (9) and 'very good' (2); 'BAD' (4) and 'bad' (1); 'STRASSE' (2) and 'straße' (1)"
    )


def write_table(path, labels):
    path.write_text("text,label\n" + "".join(f"text {i},{label}\n" for i, label in enumerate(labels)), "utf-8")
    return path


def test_the_check_and_the_start_of_training_warn(tmp_path, capsys):
    path = write_table(tmp_path / "mail.csv", ["spam", "ham", "Spam", "spam"] * 15)
    warning = "labels that differ only by case or white space count as different: "
    assert main(["data", "check", str(path)]) == 0
    assert f"warning: {warning}'spam' (30) and 'Spam' (15)" in capsys.readouterr().out
    call = ["train", "label", "--data", str(path), "--out", str(tmp_path / "run"), "--train.max-steps", "1"]
    assert main([*call, "--model.width", "8", "--model.heads", "2"]) == 0
    assert f"warning: {warning}" in capsys.readouterr().out


def test_tags_that_differ_only_by_case_are_warned_about(tmp_path, capsys):
    lines = "".join(f"Ann B-{'PER' if i % 2 else 'per'}\nsleeps O\n\n" for i in range(30))
    (tmp_path / "names.conll").write_text(lines, "utf-8")
    assert main(["data", "check", str(tmp_path / "names.conll"), "--task", "tag"]) == 0
    assert "case or white space" in capsys.readouterr().out


def test_the_command_stops_with_exit_code_3_and_a_flag_lets_it_pass(tmp_path, capsys):
    path = write_table(tmp_path / "ids.csv", [f"user-{i}" for i in range(60)])
    call = ["train", "label", "--data", str(path), "--out", str(tmp_path / "run"), "--train.max-steps", "1"]
    call += ["--model.width", "8", "--model.heads", "2"]
    assert main(call) == 3
    said = capsys.readouterr().err
    assert "is this a column of ids?" in said
    assert main([*call, "--task.max-labels", "60"]) == 0
    assert main(["data", "check", str(path), "--task", "label"]) == 0
    assert "warning: 54 labels for 54 records" in capsys.readouterr().out
