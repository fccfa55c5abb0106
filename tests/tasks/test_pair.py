"""Two texts at once: the sample's gold by enumerating worlds, the pair form, numbers in the user's units, bad pairs."""

import io
import json
import math
import re
from collections import Counter
from dataclasses import asdict, replace
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.metrics import f1_score

from saccade import text
from saccade.cli import main
from saccade.data import Example, Records
from saccade.data.samples import get_sample, pairs
from saccade.data.splits import Splits
from saccade.errors import DataError
from saccade.metrics import f1, f1_threshold, pearson, resample_indices, spearman
from saccade.models.build import new
from saccade.models.families.transformer import Config as Sizes
from saccade.tasks.infer_task import infer_task
from saccade.tasks.pair import Config, Pair
from saccade.tasks.predict import evaluate, predict
from saccade.tasks.runs.run import open_run
from saccade.training import prepare as jobs
from saccade.training.config import Config as Training
from saccade.training.prepare import Job, PreparedRun, prepare
from saccade.training.run import run_training

# the sample: what sentences mean, read from their words and tried on worlds

SENTENCE = re.compile(
    r"(?:there (?:is|are) )?(?P<amount>some|no|(?:exactly|at least|at most) \w+)(?: (?P<color>red|black|white|brown))?"
    r" (?P<kind>\w+)(?: (?P<activity>sleep|wait|rest|eat)s?)? (?P<place>(?:in|on|by|at) the \w+)\."
)
LEAVES = {
    kind: [name for name in table if name not in table.values()]
    for kind, table in (("kind", pairs.HYPERNYMS), ("place", pairs.ENCLOSING_PLACES))
}
THINGS = list(product(LEAVES["kind"], pairs.COLORS[1:], pairs.ACTIVITIES[1:], LEAVES["place"]))


def above(name, table):
    """A kind or place and all that it lies in."""
    return {name} | (above(table[name], table) if table[name] else set())


def meaning(sentence):
    """Which of all things a sentence counts, and which counts it allows, from its words alone."""
    found = SENTENCE.fullmatch(sentence[0].lower() + sentence[1:])
    assert found, sentence
    kind = {"ponies": "pony"}.get(found["kind"], found["kind"])
    kind = kind if kind in pairs.HYPERNYMS else kind.removesuffix("s")
    counted = [
        kind in above(thing, pairs.HYPERNYMS)
        and found["place"] in above(place, pairs.ENCLOSING_PLACES)
        and found["color"] in (None, colour)
        and found["activity"] in (None, doing)
        for thing, colour, doing, place in THINGS
    ]
    *word, last = found["amount"].split()
    number = pairs.NUMBER_WORDS.index(last) if word else 0
    allowed = {
        "some": lambda n: n >= 1,
        "no": lambda n: n == 0,
        "exactly": lambda n: n == number,
        "at least": lambda n: n >= number,
        "at most": lambda n: n <= number,
    }[" ".join(word) or last]
    return counted, allowed


def judged(first, second):
    """What holds in all worlds with up to seven things of each sort that the two sentences tell apart."""
    (one, allowed), (other, wanted) = meaning(first), meaning(second)
    sorts = sorted({pair for pair in zip(one, other, strict=True) if any(pair)})
    found = set()
    for counts in product(range(8), repeat=len(sorts)):
        x, y = (sum(n for n, sort in zip(counts, sorts, strict=True) if sort[side]) for side in (0, 1))
        if allowed(x):
            found.add(wanted(y))
    return {(True,): "entailment", (False,): "contradiction", (False, True): "neutral"}[tuple(sorted(found))]


def test_the_gold_of_the_sample_is_what_holds_in_every_world():
    for example in get_sample("pairs").make(150, 5):
        assert judged(example["first"], example["second"]) == example["label"], example.values


def test_the_sample_has_thousands_of_different_pairs_and_its_labels_are_balanced():
    made = get_sample("pairs").make(4000, 1)
    assert len({(e["first"], e["second"]) for e in made}) == 4000
    found = Counter(e["label"] for e in made)
    assert set(found) == set(pairs.LABELS)
    assert max(found.values()) < 1.1 * min(found.values())
    for words in (e[name] for e in made for name in ("first", "second")):
        one = bool(re.search(r"\bone\b", words))
        found = SENTENCE.fullmatch(words[0].lower() + words[1:])
        assert found
        assert (found["kind"] in pairs.HYPERNYMS) == one, words  # else it is a plural
        assert re.search(
            r"There is |(sleep|wait|rest|eat)s " if one else r"There are |(sleep|wait|rest|eat) ", words
        ), words


# metrics


def test_correlations_are_scipy_s_with_ties_and_without():
    rng = np.random.default_rng(3)
    for gold, said in [(rng.normal(size=37), rng.normal(size=37)), (rng.integers(0, 5, 53), rng.integers(0, 4, 53))]:
        assert pearson(gold, said).value == pytest.approx(stats.pearsonr(gold, said).statistic, abs=1e-12)
        assert spearman(gold, said).value == pytest.approx(stats.spearmanr(gold, said).statistic, abs=1e-12)


@pytest.mark.parametrize(("ours", "theirs"), [(pearson, stats.pearsonr), (spearman, stats.spearmanr)])
def test_intervals_correlate_each_draw_anew(ours, theirs):
    rng = np.random.default_rng(4)
    gold = rng.integers(0, 6, 41).astype(float)
    said = gold + rng.normal(size=41)
    found = ours(gold, said, bootstrap_samples=60, seed=7)
    rows = np.random.Generator(np.random.PCG64(7)).integers(41, size=(60, 41))
    values = [theirs(gold[row], said[row]).statistic for row in rows]
    assert [found.low, found.high] == pytest.approx(np.quantile(values, [0.025, 0.975]).tolist(), abs=1e-12)


def test_what_never_varies_goes_together_with_nothing():
    for metric in (pearson, spearman):
        assert metric([0.1] * 7, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]).value == 0.0
        assert metric([3.0], [3.0]).value == 0.0
        with pytest.raises(ValueError, match="of no examples"):
            metric([], [])


def test_f1_of_the_sought_class_is_scikit_learn_s():
    rng = np.random.default_rng(5)
    gold, said = (rng.choice(["0", "1"], 97).tolist() for _ in range(2))
    assert f1(gold, said, "1").value == pytest.approx(f1_score(gold, said, pos_label="1"))
    assert f1(gold, said, "1").signature == "positive:1"


def test_the_threshold_of_the_highest_f1_is_found_by_trying_all():
    rng = np.random.default_rng(3)
    chances, right = rng.integers(1, 20, 60) / 20, rng.random(60) < 0.6  # with ties
    best = []
    for draw in np.concatenate(list(resample_indices(60, 40, 7))):
        levels = sorted(set(chances), reverse=True)  # also those that a draw has none of
        values = [f1_score(right[draw], chances[draw] >= level, zero_division=0) for level in levels]
        at = int(np.argmax(values))
        best.append((levels[at] + [*levels[1:], 0.0][at]) / 2)
    assert f1_threshold(chances.tolist(), right.tolist(), bootstrap_samples=40, seed=7) == pytest.approx(
        np.median(best)
    )


# what is asked


def made(*golds):
    return [Example({"first": f"a {i}", "second": f"b {i}", "label": gold}, "f.tsv", i) for i, gold in enumerate(golds)]


@pytest.mark.parametrize(
    ("golds", "kind"),
    [
        (["0", "1", "0"], "label"),
        ([str(i % 10) for i in range(40)], "label"),
        ([str(i % 11) for i in range(40)], "number"),
        (["1", "2.5", "3"], "number"),
        (["1.0", "2.0"], "label"),
        (["1", "2", "neutral"], "label"),
        (["1.5", "2.5", "inf"], "label"),
    ],
)
def test_gold_is_a_number_where_it_looks_like_a_measure(golds, kind):
    task = Pair()
    task.fit(made(*golds))
    assert task.config.target_type == kind
    assert bool(task.notes) == (kind == "number")
    told = Pair(Config(target_type="label"))
    told.fit(made(*golds))
    assert not told.is_regression


def test_a_number_that_is_none_says_where_it_stands():
    with pytest.raises(
        DataError, match=r"f.tsv:1: the gold is not a number; column label is 'high'\. .*--task.target-type label"
    ):
        Pair(Config(target_type="number")).fit(made("2.5", "high"))


@pytest.mark.parametrize(
    ("config", "golds", "said"),
    [
        (Config(target_type="lable"), [], "task.target_type is 'lable'; known are auto, label, number"),
        (Config(metric="pearsn"), ["1.5", "2"], "gold that is a number; did you mean 'pearson'"),
        (Config(metric="pearson"), ["a", "b"], "gold that is a label; known are auto, accuracy, macro_f1, f1"),
        (Config(metric="f1"), ["a", "b", "c"], "f1 needs two labels, got 3; use macro_f1"),
        (Config(), ["a", "a"], "all 2 pairs have the label 'a'"),
        (Config(target_type="number"), ["2", "2"], "all 2 pairs have the number 2"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(config, golds, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Pair(config).fit(made(*golds))


@pytest.mark.parametrize("metric", ["auto", "accuracy", "macro_f1", "f1"])
def test_the_metric_that_is_asked_for_is_watched(metric):
    task = Pair(Config(metric=metric))
    examples = made("0", "1", "1", "1")
    task.fit(examples)
    found = task.score([{"scores": {said: 0.8, "01"[said == "0"]: 0.2}} for said in "0100"], examples)
    assert found[0].name == {"auto": "accuracy"}.get(metric, metric)
    assert {score.name: score.value for score in found}["f1"] == pytest.approx(0.5)


def test_the_threshold_is_tuned_where_f1_is_watched():
    examples = made("1", "1", "1", "0", "0")
    given = [{"scores": {"0": 1 - chance, "1": chance}} for chance in (0.9, 0.45, 0.4, 0.2, 0.1)]
    for config, tuned, value in (
        (Config(metric="f1"), True, 1.0),
        (Config(metric="f1", threshold=0.42), False, 0.8),
        (Config(), False, 0.5),
    ):
        task = Pair(config)
        task.fit(examples)
        before = {score.name: score.value for score in task.score(given, examples)}["f1"]
        task.tune(given, examples)
        assert bool(task.tuned_settings) is tuned
        assert {score.name: score.value for score in task.score(given, examples)}["f1"] == pytest.approx(value)
        assert (before == pytest.approx(value)) is not tuned
        assert task.confusion_pair(given[1], examples[1]) == ("1", "1" if tuned or config.threshold else "0")
    task = Pair(Config(metric="f1"))
    task.fit(examples)
    task.tune(given, examples)
    for others, chances in ((made(*"11120"), 0.0), (made(*"00022"), 0.5), (examples, math.nan)):
        task.tune([{"scores": {"0": 1 - chances, "1": chances}} for _ in others], others)
        assert not task.tuned_settings  # there is nothing to choose by, and what was chosen before is forgotten
    answer = {"label": "1", "scores": {"0": 0.54, "1": 0.46}}
    assert str(task.to_prediction(answer, examples[0])) == "1 46%"
    moved = Pair(Config(threshold=0.4), ("0", "1")).to_prediction(answer, examples[0])
    assert str(moved) == "1 46% (1 from 40% on)"
    assert moved.as_dict() | {"probabilities": None} == {
        "label": "1",
        "probability": 0.46,
        "probabilities": None,
        "positive": "1",
        "threshold": 0.4,
    }
    for labels, more in ((made("a", "b", "c"), {}), (made("1.5", "2.5"), {"target_type": "number"})):
        with pytest.raises(ValueError, match=r"task.threshold needs two labels.* leave it out"):
            Pair(Config(threshold=0.4, **more)).fit(labels)
    with pytest.raises(ValueError, match=r"task.threshold is 1; a probability between 0 and 1"):
        Pair(Config(threshold=1.0))


# how it is read

WORDS = " ".join(f"w{i}" for i in range(40))


SPECIAL = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]"}


def reader(labels, length=64):
    tokenizer = text.train_tokenizer([WORDS], "words", 60, special_tokens=SPECIAL, token_template="bert")
    config = Sizes(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16, max_positions=length)
    torch.manual_seed(1)
    model = new("transformer_encoder", config, head="label", labels=labels)
    model.tokenizer = tokenizer
    return model


@pytest.mark.parametrize(("one", "other"), [(20, 3), (3, 20), (20, 20), (9, 30), (2, 2)])
def test_both_texts_survive_the_cut_and_the_longer_loses_its_end(one, other):
    model = reader(("a", "b"))
    words = WORDS.split()
    example = Example({"first": " ".join(words[:one]), "second": " ".join(words[-other:])})
    (item,) = Pair(Config(max_tokens=15), labels=("a", "b")).encode([example], model)
    lengths = [one, other]
    while sum(lengths) > 12:  # three special tokens go around them
        lengths[lengths.index(max(lengths)) if lengths[0] != lengths[1] else 1] -= 1
    token = lambda word: model.tokenizer.token_to_id(word)
    wanted = [token("[CLS]"), *map(token, words[: lengths[0]]), token("[SEP]")]
    second = [*map(token, words[-other:][: lengths[1]]), token("[SEP]")]
    assert item.source.tolist() == wanted + second
    assert item.segment_ids is not None
    assert item.segment_ids.tolist() == [0] * len(wanted) + [1] * len(second)


def test_a_length_without_room_for_two_texts_is_refused():
    with pytest.raises(
        ValueError, match=r"4 tokens leave no room for two texts beside 3 special tokens; raise --task\.max-tokens"
    ):
        Pair(Config(max_tokens=4), labels=("a", "b")).encode(
            [Example({"first": "w1", "second": "w2"})], reader(("a", "b"))
        )


def test_the_order_of_the_two_matters():
    model, task = reader(("a", "b", "c")), Pair(labels=("a", "b", "c"))
    asked = [Example({"first": "w1 w2", "second": "w3"}), Example({"first": "w3", "second": "w1 w2"})]
    found, _ = predict(task, model, asked)
    assert found[0]["scores"]["a"] != pytest.approx(found[1]["scores"]["a"], abs=1e-6)


# numbers in the user's units


def graded(task=None) -> PreparedRun:
    """Eight pairs whose gold is in the thousands."""
    examples = made(*(str(1000 + 250.5 * i) for i in range(8)))
    task = task or Pair()
    task.fit(examples)
    torch.manual_seed(0)
    job, table, chosen = Job("pair"), Records(examples), task.defaults(examples, False)
    tiny = Job("pair", model_fields={"width": 32, "layers": 1, "ffn_width": 64, "heads": 2, "dropout": 0.0})
    model = jobs._build_model(tiny, task, chosen, table.examples)
    config = Training(epochs=60, lr=5e-3, batch_tokens=2048, eval_every=10_000, save_minutes=0.0)
    return PreparedRun(job, task, model, Splits(table, table, None, digest="eight"), config, chosen, [])


def test_a_run_answers_in_the_units_of_its_data_and_so_does_the_opened_one(tmp_path):
    ready = graded()
    assert asdict(ready.task.config) | {"target_mean": 0, "target_std": 0} == asdict(
        Config(target_type="number", target_mean=0, target_std=0)
    )
    gold = np.array([float(e["label"]) for e in ready.splits.dev.examples])
    assert (ready.task.config.target_mean, ready.task.config.target_std) == pytest.approx((gold.mean(), gold.std()))
    *_, result = run_training(ready, tmp_path / "run")
    assert [score.name for score in result.scores["dev"]] == ["pearson", "spearman", "mse"]
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    said = np.array([answer["score"] for answer in predict(task, model, ready.splits.dev.examples)[0]])
    assert np.abs(said - gold).max() < 0.2 * gold.std()
    assert evaluate(task, model, ready.splits.dev.examples)[0].value == pytest.approx(result.scores["dev"][0].value)
    assert re.fullmatch(r"\d{4}", str(task.to_prediction({"score": 1234.4}, ready.splits.dev.examples[0])))


def test_a_published_head_of_one_output_answers_numbers_and_one_of_entailment_takes_pairs(tmp_path):
    for labels, gold in [(("LABEL_0",), "number"), (("entailment", "neutral"), "label")]:
        reader(labels).save(tmp_path / gold)
        opened = open_run(tmp_path / gold)
        task, model = opened.task, opened.model
        assert (task.name, task.config.target_type) == ("pair", gold)
        (answer,), _ = predict(task, model, [Example({"first": "w1", "second": "w2"})])
        raw = model(task.batch(task.encode([Example({"first": "w1", "second": "w2"})], model)))
        if gold == "number":
            assert answer["score"] == pytest.approx(raw.tolist()[0][0], rel=1e-5)
    reader(("bad", "good")).save(tmp_path / "plain")
    assert open_run(tmp_path / "plain").task.name == "label"


# files and commands

SICK = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n" + "".join(
    f"{i}\tA man {i} sings\tSomebody {i} sings\t{1 + i % 7 / 2}\t{('NEUTRAL', 'ENTAILMENT')[i % 2]}\n"
    for i in range(40)
)
MRPC = "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\n" + "".join(
    f'{i % 2}\t{700 + i}\t{900 + i}\tHe said "{i}" today.\tToday he said {i}.\n' for i in range(40)
)


@pytest.mark.parametrize(("content", "first"), [(SICK, "A man 3 sings"), (MRPC, 'He said "3" today.')])
def test_the_usual_files_are_read_without_flags(tmp_path, content, first):
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    assert infer_task([tmp_path / "a.tsv"])[0].name == "pair"
    made = prepare(Job("pair", (str(tmp_path / "a.tsv"),)))
    assert first in [e["first"] for table in made.splits.as_dict().values() for e in table.examples]
    assert not made.task.is_regression
    longest = max(len(made.model.tokenizer.encode(e["first"], e["second"])) for e in made.splits.train.examples)
    assert any(line.strip().endswith(f"longest {longest}") for line in made.notes), made.notes


def test_the_same_file_is_learnt_as_similarity_where_that_is_asked(tmp_path):
    (tmp_path / "a.tsv").write_text(SICK, encoding="utf-8")
    made = prepare(Job("pair", (str(tmp_path / "a.tsv"),), task_fields={"target_type": "number"}))
    assert made.task.is_regression
    assert {e["label"] for e in made.splits.train.examples} <= {1 + i / 2 for i in range(7)}
    assert any("the gold is a number, 1 to 4" in line for line in made.notes)


def test_a_run_remembers_the_threshold_that_f1_chose(tmp_path):
    rows = [f"w{i % 7} w{i % 5}\tw{i % 7} w{i % 3}\t{int(i % 3 < 2)}\n" for i in range(90)]
    (tmp_path / "a.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows), encoding="utf-8")
    sizes = {"width": 16, "layers": 1, "ffn_width": 16, "heads": 2}
    asked = {"model_fields": sizes, "task_fields": {"metric": "f1"}, "train_fields": {"epochs": 1}}
    job = Job("pair", (str(tmp_path / "a.tsv"),), **asked)
    made = prepare(job)
    *_, result = run_training(made, tmp_path / "run")
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert task.threshold == made.task.tuned_settings["threshold"] == task.config.threshold
    assert evaluate(task, model, made.splits.dev.examples)[0].value == result.scores["dev"][0].value
    given, _ = predict(task, model, made.splits.dev.examples)
    assert all((answer["label"] == "1") is (answer["scores"]["1"] >= task.threshold) for answer in given)
    list(run_training(prepare(job), tmp_path / "run"))  # what was tuned does not keep it from going on


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    where = tmp_path_factory.mktemp("model") / "m"
    reader(("contradiction", "entailment")).save(where)
    return str(where)


def test_texts_are_taken_two_by_two_from_wherever_they_come(directory, tmp_path, capsys, monkeypatch):
    both = [("w1 w2", "w3"), ("w4", "w5 w6")]
    assert main(["predict", directory, *both[0], *both[1], "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(found) == 2
    monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{a}\t{b}\n" for a, b in both)))
    assert main(["predict", directory, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == found
    (tmp_path / "a.csv").write_text("premise,hypothesis\n" + "".join(f"{a},{b}\n" for a, b in both))
    assert main(["predict", directory, "--data", str(tmp_path / "a.csv"), "--json"]) == 0
    in_file = [row | {"line": line} for line, row in enumerate(found, 2)]
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == in_file
    assert main(["predict", directory, "--data", str(tmp_path / "a.csv"), "--columns", "first=1,second=2"]) == 0
    assert re.fullmatch(r"((entailment|contradiction) \d+%\n){2}", capsys.readouterr().out)


def test_an_odd_number_of_texts_is_refused_by_name(directory, capsys, monkeypatch):
    assert main(["predict", directory, "w1", "w2", "w3"]) == 2
    assert "Got 3 texts, but each example takes 2: first and second. The last text is 'w3'" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.StringIO("w1\tw2\nw3\n"))
    assert main(["predict", directory]) == 3
    said = capsys.readouterr().err
    assert "standard input:2: 1 texts instead of 2: first and second; got 'w3'" in said
    assert "separated by tabs" in said


@pytest.mark.parametrize("family", ["roberta", "longformer"])
def test_a_reader_with_one_segment_reads_pairs(family):
    """Its new tokenizer puts RoBERTa's tokens around the two, and its positions start after those of that padding."""
    examples = [Example({"first": "a b", "second": "b c", "label": "ab"[i % 2]}) for i in range(6)]
    task = Pair(Config(tokenizer="words"), labels=("a", "b"))
    sizes = {"width": 6, "layers": 1, "heads": 2, "ffn_width": 8, "max_positions": 32}
    chosen = replace(task.defaults(examples, False), family=family, model={})
    model = jobs._build_model(Job("pair", family=family, model_fields=sizes), task, chosen, examples)
    shown = model.tokenizer.decode(model.tokenizer.encode("a b", "b c").ids, keep_special_tokens=True)
    assert shown.split() == ["<s>", "a", "b", "</s>", "</s>", "b", "c", "</s>"]
    assert (model.config.segments, model.config.pad_id) == (1, model.tokenizer.pad_id)
    batch = task.batch(task.encode(examples, model))
    batch.source.segment_ids[0, -1] = 1  # another tokenizer may tell the two apart
    assert task.loss(model, batch).isfinite()


GOOD = "first,second,label\na,b,yes\nc,d,no\n"
BAD = {  # what the file holds, what the message must say, and the flags
    "no second text": ("first,label\na,1\nb,0\n", ("a.csv:1", "no column for second", "--columns second="), ()),
    "an empty text": (GOOD + "e,,yes\n", ("a.csv:4", "the text is empty", "second", "Fill it in"), ()),
    "no label": (GOOD + "e,f,\n", ("a.csv:4", "the label is missing", "label", "Write a label"), ()),
    "too few cells": (GOOD + "e,f\n", ("a.csv:4",), ()),
    "one class": ("first,second,label\na,b,yes\nc,d,yes\n", ("have the label 'yes'", "two labels"), ()),
    "a word for a number": (GOOD, ("a.csv:2", "a number is needed", "yes"), ("--task.target-type", "number")),
    "no number": (
        GOOD.replace("yes", "1.5").replace("no", "nan"),
        ("a.csv:3", "finite", "nan"),
        ("--task.target-type", "number"),
    ),
    "one number": (
        GOOD.replace("yes", "2").replace("no", "2"),
        ("have the number 2",),
        ("--task.target-type", "number"),
    ),
    "an unknown column": (GOOD, ("no column for second", "b side"), ("--columns", "first=first,second=b side")),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_pairs_are_refused_with_their_place(name, tmp_path, capsys):
    content, said, flags = BAD[name]
    (tmp_path / "a.csv").write_text(content)
    assert main(["train", "pair", "--data", str(tmp_path / "a.csv"), "--out", str(tmp_path / "run"), *flags]) == 3
    error = capsys.readouterr().err
    assert "Traceback" not in error
    for words in said:
        assert words in error, error
