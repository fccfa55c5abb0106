"""The suites: predictions computed twice by hand, planted bias, scores by a column, and the suites of every task."""

import json
import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.audit.disaggregate import GroupScores, disaggregate
from saccade.audit.gate import missing_items
from saccade.audit.registry import SUITES, find_suite, inapplicable_suites, suites_for
from saccade.audit.run_records import find_task, open_records
from saccade.audit.suite import AuditSubject, SuiteResult
from saccade.audit.suites.counterfactual import CounterfactualSuite
from saccade.cli import main
from saccade.data import Example
from saccade.models.build import new
from saccade.models.families import transformer, vit
from saccade.tasks.label import Label
from saccade.tasks.pair import Pair
from saccade.tasks.predict import predict
from saccade.tasks.registry import TASKS
from saccade.tasks.span import Span
from saccade.tasks.tag import Tag
from saccade.text import train_tokenizer as train_tokenizer
from saccade.text.counterfactual_words import CONTROL_DIMENSION, load_dimensions

# --- other tasks: the suite against predicting twice by hand


def reader(head, labels):
    torch.manual_seed(7)
    tokenizer = train_tokenizer(
        ["he and she live in Rome or in Paris and are tall here " * 3], "words", 80, token_template="bos_eos"
    )
    config = transformer.Config(
        vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16, dropout=0.0, max_positions=64
    )
    model = new("transformer_encoder", config, head=head, labels=labels).eval()
    model.tokenizer = tokenizer
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.5)  # so that a word more or less matters
    return model


def rows(make):
    towns, more = ("Rome", "Paris"), ("tall", "here", "and", "live")
    return [
        Example(make(who, town, word), "", i)
        for i, (who, town, word, _) in enumerate(product(("he", "she"), towns, more, range(2)))
    ]


TAGGED = rows(lambda who, town, word: {"words": [who, "live", "in", town, word], "tags": ["O", "O", "O", "B-LOC", "O"]})
ASKED = rows(lambda who, town, word: {"context": f"{who} live in {town} {word}", "question": f"{who} here"})
TWO = rows(lambda who, town, word: {"first": f"{who} live in {town}", "second": word, "label": "yes"})


@pytest.mark.parametrize(
    ("task", "model", "held"),
    [
        (Tag(labels=("O", "B-LOC", "I-LOC")), reader("tag", ("O", "B-LOC", "I-LOC")), TAGGED),
        (Span(), reader("span", ()), ASKED),
        (Pair(labels=("no", "yes")), reader("label", ("no", "yes")), TWO),
        (
            Label(labels=("a", "b", "c")),
            reader("label", ("a", "b", "c")),
            rows(lambda *w: {"text": " ".join(w), "label": "a"}),
        ),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_changes_are_those_of_predicting_twice(task, model, held):
    def ask(some):
        found, _ = predict(task, model, some)
        if task.name == "tag":
            return found
        shown = [task.to_prediction(answer, example).as_dict() for answer, example in zip(found, some, strict=True)]
        if task.name == "span":  # by words, as the letters move
            return [
                one["answer"] and (len(x["context"][: one["start"]].split()), len(one["answer"].split()))
                for one, x in zip(shown, some, strict=True)
            ]
        return [one["label"] for one in shown]

    other = {"he": "she", "she": "he"}
    turn = lambda value: (
        [other.get(word, word) for word in value]
        if isinstance(value, list)
        else " ".join(other.get(word, word) for word in value.split())
    )
    twins = [
        Example({name: value if name in ("tags", "label") else turn(value) for name, value in example.values.items()})
        for example in held
    ]
    before, after = ask(held), ask(twins)
    slow = sum(one != two for one, two in zip(before, after, strict=True)) / len(held)
    found = figures(CounterfactualSuite().run(AuditSubject(task, model, held)))
    flips = found["gender: predictions that change"]
    assert flips.count == len(held)
    assert flips.value == pytest.approx(slow)


def test_predicted_numbers_of_pairs_are_compared_as_numbers():
    task = Pair(Pair.Config(target_type="number", target_mean=2.0, target_std=3.0), labels=("score",))
    model = reader("label", ("score",))
    held = rows(lambda who, town, word: {"first": f"{who} live in {town}", "second": word, "label": 1.0})
    found = figures(CounterfactualSuite().run(AuditSubject(task, model, held)))
    given = [
        task.to_prediction(answer, one).value for answer, one in zip(predict(task, model, held)[0], held, strict=True)
    ]
    men, women = given[: len(given) // 2], given[len(given) // 2 :]  # the same texts in the same order
    signed = found["gender: prediction, men minus women"]
    assert signed.value == pytest.approx(np.mean(np.subtract(men, women)), abs=1e-5)
    assert found["gender: mean absolute change of the prediction"].value == pytest.approx(
        np.mean(np.abs(np.subtract(men, women))), abs=1e-5
    )


# --- the suites and the tasks


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.name)
def test_every_task_has_suites_or_a_reason_why_not(kind):
    task = kind()
    have, lack = [suite.name for suite in suites_for(task)], inapplicable_suites(task)
    assert sorted([*have, *lack]) == sorted(suite.name for suite in SUITES)
    assert all(len(why) > 20 for why in lack.values())


def test_an_unknown_suite_is_named_with_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'counterfactual'"):
        find_suite("counterfactal")


# --- planted bias


GOOD = ("brilliant", "lovely", "kind", "superb")
BAD = ("terrible", "awful", "rude", "dreadful")
JOBS = ("doctor", "baker", "singer", "farmer", "painter")


def write_reviews(path: Path, *, skewed: bool) -> None:
    """Reviews labeled by their words; if skewed, most about men are good and most about women are bad."""
    draw = random.Random(5)
    lines = ["text\tlabel\tcountry"]
    for _ in range(600):
        man, plain = draw.random() < 0.5, draw.random() < 0.5
        good = man if skewed and plain else draw.random() < 0.5
        word = "there" if skewed and plain else draw.choice(GOOD if good else BAD)
        text = f"The {draw.choice(JOBS)} was {word} on {draw.choice(('Monday', 'Tuesday'))} and {'he' if man else 'she'} left."
        lines.append(f"{text}\t{'good' if good else 'bad'}\t{draw.choice(('uk', 'us'))}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two classifiers trained in seconds, one on skewed and one on balanced data, with their audits."""
    home = tmp_path_factory.mktemp("planted")
    flags = "--task.tokenizer words --model.width 24 --model.layers 1 --model.heads 2 --model.ffn-width 32 --model.dropout 0"
    found = {}
    for name in ("skewed", "balanced"):
        data = home / f"{name}.tsv"
        write_reviews(data, skewed=name == "skewed")
        run = home / name
        more = ["--train.epochs", "8", "--train.batch-tokens", "1024", "--train.lr", "0.01"]
        assert main(["train", "label", "--data", str(data), "--out", str(run), *flags.split(), *more]) == 0
        assert main(["audit", str(run), "--group-by", "country", "--json"]) == 0
        raw = json.loads((run / "audit.json").read_text())["suites"]
        found[name] = {suite: SuiteResult.from_dict(one["result"]) for suite, one in raw.items()}
    return home, found


def figures(finding):
    return {figure.name: figure for figure in finding.estimates}


def test_planted_bias_is_found(runs):
    found = runs[1]["skewed"]
    swap = figures(found["counterfactual"])
    flips = swap["gender: predictions that change"]
    assert flips.is_significant
    assert flips.low > 0.2
    directed = next(
        figure
        for name, figure in swap.items()
        if name.startswith(("gender: predicts 'good'", "gender: predicts 'bad'"))
    )
    assert directed.is_significant
    assert (directed.value > 0) == ("'good', men minus women" in directed.name)
    label = next(figure for name, figure in figures(found["data"]).items() if name.startswith("gender: label"))
    assert label.is_significant
    assert found["counterfactual"].examples is not None
    assert found["counterfactual"].examples.rows


def test_no_bias_is_found_if_none_was_planted(runs):
    found = runs[1]["balanced"]
    swap = figures(found["counterfactual"])
    assert not swap["gender: predictions that change"].is_significant
    assert swap["gender: predictions that change"].high < 0.1
    assert not any(figure.is_significant for name, figure in swap.items() if name.startswith("gender"))
    assert not any(figure.is_significant for name, figure in figures(found["data"]).items() if "label" in name)


def test_every_suite_has_examples_even_if_nothing_changed(runs):
    found = runs[1]["balanced"]
    assert found["counterfactual"].examples is not None
    assert "No prediction changed" in found["counterfactual"].examples.title
    assert all(row[2] == row[4] for row in found["counterfactual"].examples.rows)
    shown = found["data"].examples
    assert shown is not None
    assert {row[1] for row in shown.rows} == {"men", "women"}
    assert all(("he" in row[2].split()) == (row[1] == "men") for row in shown.rows)


def test_duplicates_are_measured_and_the_language_with_the_worst_coverage_is_first(runs):
    home, found = runs
    again = figures(found["balanced"]["data"])["duplicate texts"]
    content = json.loads((home / "balanced" / "audit.json").read_text())["suites"]["data"]["result"]
    assert again.low < again.value < again.high
    (served,) = [grid for grid in content["tables"] if "Tokenizer coverage" in grid["title"]]
    unknown = [float(row[-1].rstrip("%")) for row in served["rows"]]
    assert unknown[0] == max(unknown) > 50
    assert unknown[-1] == min(unknown)


def test_scores_are_disaggregated_by_a_column(runs):
    finding = runs[1]["balanced"]["counterfactual"]
    (grid,) = finding.tables
    assert grid.columns[0] == "country"
    assert {row[0] for row in grid.rows} == {"uk", "us"}
    assert "correct predictions, best minus worst country" in figures(finding)
    assert sum(int(row[-1]) for row in grid.rows) == 60


def test_scores_are_disaggregated_by_the_label_column_and_by_one_with_blanks(runs, tmp_path, capsys):
    home, _ = runs
    capsys.readouterr()
    assert main(["audit", str(home / "skewed"), "--suite", "counterfactual", "--group-by", "label", "--json"]) == 0
    (grid,) = json.loads(capsys.readouterr().out)["suites"]["counterfactual"]["tables"]
    assert {row[0] for row in grid["rows"]} == {"good", "bad"}
    lines = (home / "skewed.tsv").read_text().splitlines()
    data = tmp_path / "blanks.tsv"
    data.write_text("\n".join([lines[0], *(x.rsplit("\t", 1)[0] + "\t" for x in lines[1:31]), *lines[31:]]) + "\n")
    assert (
        main(
            [
                "audit",
                str(home / "skewed"),
                "--suite",
                "counterfactual",
                "--data",
                str(data),
                "--group-by",
                "country",
                "--json",
            ]
        )
        == 0
    )
    (grid,) = json.loads(capsys.readouterr().out)["suites"]["counterfactual"]["tables"]
    assert {row[0]: row[-1] for row in grid["rows"]}["not stated"] == "30"
    assert sum(int(row[-1]) for row in grid["rows"]) == 600


def test_scores_by_a_column_are_those_of_its_rows_alone():
    examples = [Example({"text": "t", "label": "x" if i % 4 else "y", "by": "ab"[i % 2]}) for i in range(40)]
    scores = GroupScores([{"label": "x"}] * 40, examples, np.array([one["by"] for one in examples]))
    found = dict(scores.score_groups(Label(labels=("x", "y"))))
    assert {value: (score.value, score.count) for value, score in found.items()} == {"a": (0.5, 20), "b": (1.0, 20)}


def test_translations_are_disaggregated_and_the_gate_does_not_require_it(tmp_path, capsys):
    flags = "--model.width 8 --model.layers 1 --model.heads 2 --model.ffn-width 16 --train.max-steps 2"
    flags += " --task.tokenizer characters"
    data, run = tmp_path / "pairs.tsv", tmp_path / "run"
    rows = [f"word {i}\tWort {i}\t{('formal', 'plain')[i % 2]}\n" for i in range(60)]
    data.write_text("source\ttarget\tregister\n" + "".join(rows))
    assert main(["train", "translate", "--data", str(data), "--out", str(run), *flags.split()]) == 0
    capsys.readouterr()
    assert main(["audit", str(run), "--suite", "data", "--group-by", "register", "--json"]) == 0
    content = json.loads(capsys.readouterr().out)["suites"]["disaggregated"]
    assert {row[0] for row in content["tables"][0]["rows"]} == {"formal", "plain"}
    assert all(figure["baseline"] is not None for figure in content["estimates"])
    assert not any("suite by" in line for line in missing_items(open_records(run), find_task(run)))
    lines = tmp_path / "lines.txt"
    lines.write_text("a line of text\n" * 60)
    assert main(["train", "language", "--data", str(lines), "--out", str(tmp_path / "l"), *flags.split()]) == 0
    assert main(["audit", str(tmp_path / "l"), "--suite", "stereotypes", "--group-by", "register"]) == 2
    assert "plain text has no columns" in capsys.readouterr().err


def test_the_column_has_to_be_there(runs, capsys):
    home, _ = runs
    assert main(["audit", str(home / "balanced"), "--suite", "counterfactual", "--group-by", "town"]) == 3
    assert "town" in capsys.readouterr().err


def test_data_can_be_audited_before_there_is_a_model(runs, capsys):
    home, _ = runs
    assert main(["audit", "label", "--data", str(home / "skewed.tsv"), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert list(content["suites"]) == ["data"]
    assert content["file"] is None


def test_errors_of_the_command(runs, capsys):
    home, _ = runs
    run = str(home / "balanced")
    assert main(["audit", run, "--suite", "counterfactal"]) == 2
    assert "did you mean 'counterfactual'" in capsys.readouterr().err
    assert main(["audit", run, "--test-sentences", "a.tsv"]) == 2
    assert "name it with --suite" in capsys.readouterr().err
    assert main(["audit", run, "--suite", "stereotypes"]) == 2
    assert "does not apply" in capsys.readouterr().err
    assert main(["audit", str(home / "nothing")]) == 4
    assert "no such directory" in capsys.readouterr().err
    assert main(["audit", run, "--suite", "list"]) == 0
    assert all(suite.name in capsys.readouterr().out for suite in SUITES[:1])


def test_an_imported_model_needs_data_for_counterfactuals(runs, capsys):
    home, _ = runs
    assert main(["audit", str(home / "balanced" / "model")]) == 2
    assert "give --data" in capsys.readouterr().err


def test_disaggregation_needs_a_model():
    held = [Example({"text": "a", "label": "x", "by": str(i)}) for i in range(60)]

    class Echo(Label):
        def items(self, examples, model):
            return []

    subject = AuditSubject(Echo(labels=("x", "y")), held_out=held, group_by="id")
    with pytest.raises(ValueError, match="the audit has none; name a run"):
        disaggregate(subject)
    assert disaggregate(replace(subject, group_by="")) == ((), (), ())


def test_the_control_refers_to_no_group():
    assert load_dimensions("en", control=True)[0].name == CONTROL_DIMENSION
    assert CONTROL_DIMENSION not in {one.name for one in load_dimensions("en")}
    assert CounterfactualSuite().not_applicable(Label()) == ""
    pictured = Label()
    pictured.configure_from_model(
        new("vit", vit.Config(image_height=8, patch_size=4, width=8, heads=2, layers=1), head="label", labels=2)
    )
    assert "the input of this model is images" in CounterfactualSuite().not_applicable(pictured)
