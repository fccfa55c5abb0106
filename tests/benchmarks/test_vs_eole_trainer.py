"""The comparison with other libraries: time limits, scores, tokens for the baselines, and the page generated from the record."""

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from saccade.data import Example
from saccade.data.example import Records
from saccade.data.splits import Splits
from saccade.metrics import accuracy

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmark(monkeypatch):
    """Loads a script of benchmarks/ by name."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = ("recipes", "vs_eole_trainer", "baseline_hf_trainer", "baseline_eole")

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    yield load
    for name in names:
        sys.modules.pop(name, None)


def splits(examples):
    return Splits(Records(examples), Records(examples[:1]), Records(examples))


@pytest.mark.parametrize(
    ("predictions", "expected"),
    [
        ([(1.0, "xx"), (2.1, "xy"), (4.0, "yy")], {"1": (0.5, 1.0), "2": (1.0, 2.1), "4": (0.5, 4.0)}),
        ([(1.4, "xx"), (1.7, "xy")], {"1": (0.5, 1.4), "2": (1.0, 1.7), "4": (1.0, 1.7)}),  # ended early
        ([(4.2, "xy")], {"1": None, "2": None, "4": (1.0, 4.2)}),  # no score before
    ],
)
def test_each_time_limit_has_the_score_at_that_time_or_the_last_one_before(benchmark, predictions, expected):
    script = benchmark("vs_eole_trainer")
    baseline = script.Baseline("Other", {}, lambda job: ((minutes, list(labels)) for minutes, labels in predictions))
    rows = [Example({"text": "a", "label": "x"}), Example({"text": "b", "label": "y"})]
    job = script.TrainingJob(script.load_recipes()["sst2"], splits(rows), None, Path("out"), (1.0, 2.0, 4.0))
    scores = script.train_baseline(baseline, job, "accuracy")
    assert {time: score and (score["value"], score["minutes"]) for time, score in scores.items()} == expected


def test_baselines_are_scored_by_the_metrics_of_saccade(benchmark):
    script = benchmark("vs_eole_trainer")
    rows = [Example({"label": label}) for label in "xyxxy"]
    assert script.compute_score("accuracy", rows, list("xxxxy")) == vars(accuracy(list("xyxxy"), list("xxxxy")))


def test_the_page_shows_the_record_and_what_is_not_measured(benchmark):
    script = benchmark("vs_eole_trainer")
    score = {"name": "bleu", "value": 41.26, "low": 39.9, "high": 42.5, "count": 9, "minutes": 4.0}
    machine = {"cpu": "a cpu", "cores": 2, "torch": "2"}
    system = {
        "settings": {"from": "its guide", "train": {"rate": 2}},
        "scores": {"10": score},
        "date": "2030-01-01",
        "machine": machine,
    }
    page = script.render_page({"translate": {"Eole": system}})
    assert "| Eole | 41.3 (39.9 to 42.5), after 4.0 min |" in page
    assert "from its guide; train: lr 2" in page
    assert page.count("Not measured yet") == len(script.BENCHMARKS) - 1
    without_baseline = script.render_page({"translate": {"saccade": system}})
    assert "Not measured yet: Eole." in without_baseline
    percent = script._format_score({**score, "value": 0.9, "low": 0.88, "high": 0.92}, 4.0)
    assert percent == "90.0 (88.0 to 92.0)"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"train": {"fit_schedule": True}}, {"10": 1, "20": 2, "40": 4}),
        ({"train": {"fit_schedule": True, "lr": 2}}, {"10": 1, "40": 4}),  # measured with other settings before
        ({"train": {}}, {"10": 1, "40": 4}),  # all scores come from one run
    ],
)
def test_a_time_limit_that_is_measured_later_is_added_if_each_has_its_own_run(benchmark, tmp_path, settings, expected):
    script = benchmark("vs_eole_trainer")
    options = SimpleNamespace(record=tmp_path / "record.json", task="translate")
    before = {"train": {"fit_schedule": True}} if settings["train"].get("fit_schedule") else settings
    script.save_scores(options, "saccade", before, {"20": {"value": 2}, "40": {"value": 3}})
    script.save_scores(options, "saccade", settings, {"10": {"value": 1}, "40": {"value": 4}})
    scores = script._read_record(options.record)["translate"]["saccade"]["scores"]
    assert [(time, score["value"]) for time, score in scores.items()] == list(expected.items())


def test_the_page_in_docs_is_generated_from_the_record(benchmark):
    script = benchmark("vs_eole_trainer")
    assert script.render_page(script._read_record(script.RECORD)) == script.PAGE.read_text(encoding="utf-8")


class TwoLetterTokenizer:
    """A tokenizer that splits words into tokens of two letters, between two special tokens."""

    def __call__(self, words, **settings):
        word_ids = [None, *(i for i, word in enumerate(words) for _ in range(0, len(word), 2)), None]
        return Encoding(list(range(len(word_ids))), word_ids)


class Encoding(dict):
    def __init__(self, input_ids, word_ids):
        super().__init__(input_ids=input_ids)
        self._word_ids = word_ids

    def word_ids(self):
        return self._word_ids


def test_gold_tags_on_tokens_are_decoded_to_the_same_tags(benchmark):
    trainer = benchmark("baseline_hf_trainer")
    recipe = object.__new__(trainer.TagRecipe)
    recipe.names, recipe.tokenizer = ["B-x", "I-x", "O"], TwoLetterTokenizer()
    rows = [
        Example({"words": ["Anna", "of", "Leeds"], "tags": ["B-x", "O", "I-x"]}),
        Example({"words": ["a"], "tags": ["O"]}),
    ]
    labels = [row["labels"] for row in recipe.encode(rows, labels=True)]
    assert labels[0] == [-100, 0, -100, 2, 1, -100, -100, -100]
    logits = [torch.nn.functional.one_hot(torch.tensor(row).clamp(min=0), 3).float() for row in labels]
    assert recipe.decode(rows, logits) == [row["tags"] for row in rows]


def test_eole_has_the_tokens_of_our_tokenizer(benchmark, tmp_path, monkeypatch):
    eole = benchmark("baseline_eole")
    recipe = SimpleNamespace(tables={"task": {"tokenizer": "bpe"}, "model": {"vocab": 300}})
    rows = [Example({"source": f"I see {i} cats.", "target": f"Je vois {i} chats, né ?"}) for i in range(9)]
    tokenizer = eole.train_tokenizer(rows, recipe)
    eole._write_tokens(tmp_path / "test.output", tokenizer, [row["target"] for row in rows])
    monkeypatch.setattr(eole, "_run", lambda *arguments: None)
    job = SimpleNamespace(out=tmp_path, eole=None)
    assert eole.translate(job, tokenizer, Path("test")) == [row["target"] for row in rows]


def test_only_the_newest_checkpoints_at_time_limits_are_kept(benchmark, tmp_path):
    eole = benchmark("baseline_eole")
    checkpoints = []
    for number, at in enumerate((1.0, 4.0, 9.9, 10.4, 15.0, 21.0, 30.0)):
        (tmp_path / f"step_{number}").mkdir()
        checkpoints = eole.remove_unneeded([*checkpoints, (at, tmp_path / f"step_{number}")], (10.0, 20.0, 40.0))
    assert [at for at, _ in checkpoints] == [9.9, 15.0, 30.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_2", "step_4", "step_6"]


def test_our_run_is_resumed_at_each_time_limit_until_it_has_ended(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    calls = []

    def train(call, check):
        calls.append(call[-1])
        out = Path(call[call.index("--out") + 1])
        out.mkdir(exist_ok=True)
        why = "train.max_minutes = 1 minutes" if len(calls) == 1 else "the end of the schedule"
        score = {"name": "accuracy", "value": 0.5 + len(calls) / 10, "low": 0.0, "high": 1.0}
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))
        (out / "speed.jsonl").write_text("".join(json.dumps({"seconds": 45.0}) + "\n" for _ in calls))

    monkeypatch.setattr(script.subprocess, "run", train)
    options = SimpleNamespace(task="label", runs=tmp_path, minutes=[1.0, 2.0, 4.0])
    scores = script.train_recipe(script.load_recipes()["sst2"], [Path("sst2")], Path("minilm"), options)
    assert calls == ["1.0", "2.0"]
    assert {time: (score["value"], score["minutes"]) for time, score in scores.items()} == {
        "1": (0.6, 1.0),
        "2": (0.7, 1.5),
        "4": (0.7, 1.5),
    }


def test_a_recipe_that_fits_its_schedule_to_the_time_has_a_run_for_each_time(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    outs = []

    def train(call, check):
        out = Path(call[call.index("--out") + 1])
        outs.append((out.name, call[-1]))
        out.mkdir()
        score = {"name": "bleu", "value": 10.0 * len(outs), "low": 0.0, "high": 99.0}
        why = f"the end of the schedule, fitted to train.max_minutes = {call[-1]} minutes"
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))

    monkeypatch.setattr(script.subprocess, "run", train)
    options = SimpleNamespace(task="translate", runs=tmp_path, minutes=[1.0, 2.0])
    scores = script.train_recipe(script.load_recipes()["tatoeba-en-fr"], [Path("pairs")], None, options)
    assert outs == [("translate-saccade-1", "1.0"), ("translate-saccade-2", "2.0")]
    assert {time: score["value"] for time, score in scores.items()} == {"1": 10.0, "2": 20.0}


def test_eole_has_the_sizes_of_our_recipe(benchmark, tmp_path):
    eole, recipe = benchmark("baseline_eole"), benchmark("vs_eole_trainer").load_recipes()["tatoeba-en-fr"]
    model = eole.make_config(tmp_path, recipe)["model"]
    ours = recipe.tables["model"]
    theirs = {"width": "hidden_size", "layers": "layers", "heads": "heads", "ffn_width": "transformer_ff"}
    assert {name: model[key] for name, key in theirs.items()} == {name: ours[name] for name in theirs}
    assert eole.settings(recipe)["model"]["vocab"] == ours["vocab"]


def test_systems_in_the_record_or_not_selected_are_not_trained(benchmark, tmp_path):
    script = benchmark("vs_eole_trainer")
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"label": {"Other": {"scores": {"1": None, "2": {"value": 0.5}}}}}))
    options = SimpleNamespace(task="label", only="", record=record, minutes=[1.0, 2.0])
    assert [script._must_train(options, name) for name in ("Other", "saccade")] == [False, True]
    options.minutes = [1.0, 2.0, 4.0]
    assert script._must_train(options, "Other")
    options.only = "saccade"
    assert [script._must_train(options, name) for name in ("Other", "saccade")] == [False, True]


def test_a_recipe_that_takes_nearly_the_time_limit_is_run_unchanged(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    calls = []

    def train(call, check):
        calls.append(call[call.index("--out") + 2 :])
        out = Path(call[call.index("--out") + 1])
        out.mkdir()
        score = {"name": "bleu", "value": 10.0, "low": 0.0, "high": 99.0}
        why = "the end of the schedule, fitted to train.max_minutes"
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))

    monkeypatch.setattr(script.subprocess, "run", train)
    recipe = script.load_recipes()["tatoeba-en-fr"]
    own = recipe.tables["train"]["max_minutes"]
    options = SimpleNamespace(task="translate", runs=tmp_path, minutes=[own / 2, own + 1])
    scores = script.train_recipe(recipe, [Path("pairs")], None, options)
    assert calls == [["--train.max-minutes", str(own / 2)], []]
    assert [score["minutes"] for score in scores.values()] == [own / 2, own]


def test_auto_settings_are_recorded_with_the_value_that_was_chosen(benchmark, tmp_path):
    script = benchmark("vs_eole_trainer")
    (tmp_path / "translate-saccade-40").mkdir()
    (tmp_path / "translate-saccade-40" / "config.toml").write_text('[train]\nprecision = "bfloat16"\nlr = 7.0\n')
    options = SimpleNamespace(task="translate", runs=tmp_path)
    recipe = script.load_recipes()["tatoeba-en-fr"]
    recipe = replace(recipe, tables={**recipe.tables, "train": {"lr": 1.0, "precision": "auto"}})
    settings = script.resolve_settings(recipe, options)
    assert settings["train"] == {"lr": 1.0, "precision": "bfloat16"}
