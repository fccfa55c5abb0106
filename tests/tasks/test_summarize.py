"""Summaries: what is read and cut, two lengths, column names, the sample's gold read back from its reports, the verb."""

import json
import re

import pytest

from saccade.cli import main
from saccade.data import Example, read_examples, write_examples
from saccade.data.samples import get_sample, reports
from saccade.errors import DataError
from saccade.tasks.infer_task import infer_task
from saccade.tasks.registry import task_class
from saccade.tasks.summarize import Config, Summarize, with_first_summary
from saccade.training.prepare import Job, prepare

SKY = {
    "the sun shone": 0,
    "clouds hid the sky": 1,
    "fog lay over": 2,
    "it rained": 3,
    "snow fell": 4,
    "a storm raged": 5,
}
CALLED = ["sun", "clouds", "fog", "rain", "snow", "storms"]


@pytest.fixture(scope="module")
def made():
    return get_sample("reports").make(3000, 5)


def of(made, kind):
    return [(example["source"], example["target"]) for example in made if example["kind"] == kind]


# the sample: each summary is found again by reading the report alone


def test_goals_are_counted(made):
    for text, said in of(made, "match"):
        home, away = re.match(r"(.+?) met (.+?) on \w+day\.", text).groups()
        scorers = re.findall(r"(?:scored for|in the net for|a goal for) (.+?)(?:\.| in minute)", text)
        goals = {side: scorers.count(side) for side in (home, away)}
        assert sum(goals.values()) == len(scorers) == len(re.findall(r"in minute \d", text, re.IGNORECASE))
        if goals[home] == goals[away]:
            assert said == f"{home} and {away} drew {goals[home]}-{goals[away]}."
        else:
            best = max(goals, key=goals.get)
            other = away if best == home else home
            assert said == f"{best} beat {other} {goals[best]}-{goals[other]}."


def test_the_worst_weather_and_the_span_of_degrees(made):
    for text, said in of(made, "weather"):
        day, place = re.match(r"This was (\w+) in (.+?)\.", text).groups()
        degrees = [int(found) for found in re.findall(r"(-?\d+) degrees", text)]
        worst = max(value for words, value in SKY.items() if words in text)
        assert said == f"{place} had {CALLED[worst]} on {day} and {min(degrees)} to {max(degrees)} degrees."


def test_first_price_last_price_and_the_way_between(made):
    for text, said in of(made, "trading"):
        first = int(re.search(r"(?:opened at|first price of .+? was) (\d+)", text)[1])
        last = int(re.search(r"(?:closed at|they cost) (\d+)", text)[1])
        assert str(last) in said
        assert ("rose" in said, "fell" in said) == (last > first, last < first)
        assert first == last or f"from {first} to {last}" in said
        assert re.search(r"on (\w+day)", text, re.IGNORECASE)[1] in said


def test_reports_are_many_long_and_never_hold_their_summary():
    made = get_sample("reports").make(reports.SAMPLE.default_count, 0)
    assert len({example["source"] for example in made}) == len(made) >= 4000
    assert not any(example["target"] in example["source"] for example in made)
    ratio = [len(example["source"].split()) / len(example["target"].split()) for example in made]
    assert min(ratio) > 1.5
    assert sum(ratio) / len(ratio) > 4
    counts = {kind: len(of(made, kind)) for kind in reports.REPORT_MAKERS}
    assert min(counts.values()) > 0.3 * len(made)


# files


@pytest.mark.parametrize(
    ("long", "short"),
    [("article", "highlights"), ("document", "summary"), ("dialogue", "summary"), ("text", "headline")],
)
def test_known_columns(tmp_path, long, short):
    path = tmp_path / "a.jsonl"
    rows = [{"id": i, short: f"It rained {i}.", long: f"In the morning it rained {i} times. " * 9} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = read_examples([path], Summarize().roles([]))
    assert [example["target"] for example in found.examples] == [row[short] for row in rows]
    assert found.examples[2]["source"].startswith("In the morning it rained 2 times.")
    assert infer_task([path])[0].name == "summarize"


def test_pairs_of_like_length_are_no_summaries(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("source\ttarget\n" + "a house by the sea\tein Haus am Meer\n" * 30)
    assert infer_task([path])[0].name == "translate"


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"article": "Long text.", "summary": ""}, ("summary", "the text is empty", "remove the record")),
        ({"article": None, "summary": "short"}, ("article", "missing")),
        ({"article": ["a", ["b"]], "summary": "short"}, ("article", "expected a text, got a list")),
        ({"article": ["", " "], "summary": "short"}, ("article", "the text is empty")),
        ({"article": [], "summary": "short"}, ("article", "expected a text, got a list")),
        ({"article": "Long text.", "summary": []}, ("summary", "expected a text, got a list")),
        ({"article": "Long text.", "summary": ["short", None]}, ("summary", "missing")),
        ({"article": "Long text."}, ("no summary", "it has article")),
    ],
)
def test_bad_records_are_named_with_their_place(tmp_path, row, words):
    path = tmp_path / "a.jsonl"
    good = {"article": "A long text. " * 9, "summary": "Short."}
    path.write_text("".join(json.dumps(one) + "\n" for one in (good, row)))
    with pytest.raises(DataError) as caught:
        read_examples([path], Summarize().roles([]))
    assert str(caught.value).startswith(f"{path}:2:")
    for word in words:
        assert word in str(caught.value)


def test_lists_of_sentences_are_one_text_and_lists_of_summaries_are_several(tmp_path):
    """As SciTLDR writes them; other columns of lists, and one called title, are left alone."""
    path = tmp_path / "a.jsonl"
    long = ["The first sentence of many that stand here, one after the other.", "And a second one.", ""] * 6
    rows = [
        {"source": long, "source_labels": [0, 1], "target": ["One.", "Uno.", "Eins."], "title": "A paper"},
        {"source": " ".join(long), "source_labels": [1], "target": ["Two."], "title": "Another"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert infer_task([path])[0].name == "summarize"
    found = read_examples([path], Summarize().roles([]))
    assert [" ".join(example["source"].split()) for example in found.examples] == [" ".join(filter(None, long))] * 2
    assert [example["target"] for example in found.examples] == [["One.", "Uno.", "Eins."], "Two."]
    assert sum("joined" in line and "one of 18" in line for line in found.notes) == 1
    assert (
        sum(
            "the first is used in training, and all of them in scores" in line and "one of 3" in line
            for line in found.notes
        )
        == 1
    )
    words = main(["data", "check", str(path)])
    assert words == 0


def test_the_first_of_several_summaries_is_learnt_and_the_nearest_counts():
    task = Summarize()
    example = Example({"source": "a b c", "target": ["the cat sat", "rain fell all day"]})
    assert with_first_summary(example)["target"] == "the cat sat"
    assert list(task.tokenizer_texts([example])) == ["a b c", "the cat sat"]
    for answer in ("the cat sat", "rain fell all day"):
        assert all(score.value == 1 for score in task.score([answer], [example]))
        assert task.error_row(answer, example) is None
    scores = {score.name: score.value for score in task.score(["rain fell in the night"], [example])}
    assert scores["rouge_1"] == pytest.approx(2 * 2 / (4 + 5))  # two words of four and of five, against the second
    assert scores["rouge_2"] == pytest.approx(2 * 1 / (3 + 4))
    assert task.error_row("rain fell", example).cells["gold"] == "the cat sat / rain fell all day"


def test_a_column_that_is_missing_is_asked_for(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("article,gist\n" + "a long text,short\n" * 3)
    with pytest.raises(DataError, match=r"no column for target.*--columns target=gist"):
        read_examples([path], Summarize().roles([]))


# the task


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "reports.jsonl"
    write_examples(path, [Example(row.values) for row in get_sample("reports").make(300, 1)])
    sizes = {"width": 32, "layers": 1, "ffn_width": 64, "heads": 2}
    return prepare(
        Job("summarize", (str(path),), model_fields=sizes, task_fields={"max_tokens": 40, "max_summary_tokens": 7})
    )


def test_each_side_has_its_own_length_and_what_is_cut_is_said(ready):
    task, model, tokenizer = ready.task, ready.model, ready.model.tokenizer
    examples = ready.splits.dev.examples[:20]
    items = task.encode(examples, model)
    for example, item in zip(examples, items, strict=True):
        whole = tokenizer.encode(example["source"]).ids
        assert len(item.source) == min(len(whole), 40)
        assert item.source[:30].tolist() == whole[:30]
        assert len(item.target) <= 7
    assert max(len(item.target) for item in items) == 7
    lengths = [len(tokenizer.encode(e["source"]).ids) for e in ready.splits.dev.examples]
    share = sum(length > 40 for length in lengths) / len(lengths)
    assert any(f"{share:.1%} are longer than 40 tokens and will be truncated" in line for line in ready.notes)


def test_a_summary_is_never_longer_than_asked_for(ready):
    items = ready.task.encode(ready.splits.dev.examples[:3], ready.model)
    ready.model.eval()
    found = ready.task.answer(ready.model, ready.task.batch(items))
    assert len(found) == 3
    assert all(len(ready.model.tokenizer.encode(text, add_special_tokens=False).ids) <= 7 for text in found)


def test_the_metric_that_is_named_comes_first():
    task = task_class("summarize")
    rows = [Example({"source": "s", "target": "the cat sat on the mat"})]
    for name in ("rouge_1", "rouge_2", "rouge_l"):
        found = task(Config(metric=name)).score(["the cat on the mat sat"], rows)
        assert found[0].name == name
        assert {score.name: score.value for score in found} == {
            "rouge_1": 1.0,
            "rouge_2": pytest.approx(3 / 5),  # the cat, on the, the mat
            "rouge_l": pytest.approx(5 / 6),
        }


def test_from_the_sample_to_a_summary_by_the_verb(tmp_path, capsys):
    small = "--task.max-summary-tokens 5 --model.width 16 --model.layers 1 --model.ffn-width 16 --model.heads 2"
    small += " --train.max-steps 1 --train.max-eval-examples 2"
    path, run = tmp_path / "reports.jsonl", str(tmp_path / "run")
    assert main(["data", "get", "reports", str(path), "--count", "60"]) == 0
    assert main(["train", "summarize", "--data", str(path), "--out", run, *small.split()]) == 0
    capsys.readouterr()
    assert main(["summarize", run, "Oslo City met Lima City on Monday.", "--json"]) == 0
    assert next(iter(json.loads(capsys.readouterr().out))) == "text"
    assert main(["translate", run, "a"]) == 4
    assert "was trained for the task summarize (" in capsys.readouterr().err
