"""The comparison with what one would otherwise pick: times, scores and pieces, and the page that is made from the record."""

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
    """A script of benchmarks/ by name, as it is when it is run there."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    names = ("recipes", "vs_eole_trainer", "rival_trainer", "rival_eole")

    def load(name):
        spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, made)
        spec.loader.exec_module(made)
        return made

    yield load
    for name in names:
        sys.modules.pop(name, None)


def splits(examples):
    return Splits(Records(examples), Records(examples[:1]), Records(examples))


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        ([(1.0, "xx"), (2.1, "xy"), (4.0, "yy")], {"1": (0.5, 1.0), "2": (1.0, 2.1), "4": (0.5, 4.0)}),
        ([(1.4, "xx"), (1.7, "xy")], {"1": (0.5, 1.4), "2": (1.0, 1.7), "4": (1.0, 1.7)}),  # it ended early
        ([(4.2, "xy")], {"1": None, "2": None, "4": (1.0, 4.2)}),  # nothing to score before
    ],
)
def test_each_time_has_the_score_of_that_time_or_the_last_before_it(benchmark, told, wanted):
    script = benchmark("vs_eole_trainer")
    rival = script.Rival("Other", {}, lambda asked: ((minutes, list(answers)) for minutes, answers in told))
    rows = [Example({"text": "a", "label": "x"}), Example({"text": "b", "label": "y"})]
    asked = script.Asked(script.load_recipes()["sst2"], splits(rows), None, Path("out"), (1.0, 2.0, 4.0))
    found = script.timed(rival, asked, "accuracy")
    assert {time: one and (one["value"], one["minutes"]) for time, one in found.items()} == wanted


def test_rivals_are_scored_by_our_own_functions(benchmark):
    script = benchmark("vs_eole_trainer")
    rows = [Example({"label": label}) for label in "xyxxy"]
    assert script.scored("accuracy", rows, list("xxxxy")) == vars(accuracy(list("xyxxy"), list("xxxxy")))


def test_the_page_tells_what_the_record_says_and_what_is_not_measured(benchmark):
    script = benchmark("vs_eole_trainer")
    score = {"name": "bleu", "value": 41.26, "low": 39.9, "high": 42.5, "count": 9, "minutes": 4.0}
    machine = {"cpu": "a cpu", "cores": 2, "torch": "2"}
    line = {"settings": {"rate": 2}, "scores": {"10": score}, "date": "2030-01-01", "machine": machine}
    made = script.page({"translate": {"Eole": line}})
    assert "| Eole | 41.3 (39.9 to 42.5), after 4.0 min |" in made
    assert "rate 2" in made
    assert made.count("Not measured yet") == len(script.MATCHES) - 1
    alone = script.page({"translate": {"saccade": line}})
    assert "Not measured yet: Eole." in alone
    share = script._cell({**score, "value": 0.9, "low": 0.88, "high": 0.92}, 4.0)
    assert share == "90.0 (88.0 to 92.0)"


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"train": {"fit_schedule": True}}, {"10": 1, "20": 2, "40": 4}),
        ({"train": {"fit_schedule": True, "lr": 2}}, {"10": 1, "40": 4}),  # it was measured with other settings before
        ({"train": {}}, {"10": 1, "40": 4}),  # times of one run belong together
    ],
)
def test_a_time_that_is_measured_later_joins_the_others_where_each_is_a_run_of_its_own(
    benchmark, tmp_path, settings, wanted
):
    script = benchmark("vs_eole_trainer")
    asked = SimpleNamespace(record=tmp_path / "record.json", what="translate")
    before = {"train": {"fit_schedule": True}} if settings["train"].get("fit_schedule") else settings
    script.keep(asked, "saccade", before, {"20": {"value": 2}, "40": {"value": 3}})
    script.keep(asked, "saccade", settings, {"10": {"value": 1}, "40": {"value": 4}})
    found = script._read(asked.record)["translate"]["saccade"]["scores"]
    assert [(time, score["value"]) for time, score in found.items()] == list(wanted.items())


def test_the_page_in_docs_is_made_from_the_record(benchmark):
    script = benchmark("vs_eole_trainer")
    assert script.page(script._read(script.RECORD)) == script.PAGE.read_text(encoding="utf-8")


class Pieces:
    """A tokenizer that cuts words into pieces of two letters, between two marks."""

    def __call__(self, words, **settings):
        owner = [None, *(i for i, word in enumerate(words) for _ in range(0, len(word), 2)), None]
        return Read(input_ids=list(range(len(owner))), owner=owner)


class Read(dict):
    def __init__(self, *, input_ids, owner):
        super().__init__(input_ids=input_ids)
        self.owner = owner

    def word_ids(self):
        return self.owner


def test_gold_tags_laid_on_pieces_come_back_as_they_were(benchmark):
    trainer = benchmark("rival_trainer")
    tags = object.__new__(trainer.Tags)
    tags.names, tags.tokenizer = ["B-x", "I-x", "O"], Pieces()
    rows = [
        Example({"words": ["Anna", "of", "Leeds"], "tags": ["B-x", "O", "I-x"]}),
        Example({"words": ["a"], "tags": ["O"]}),
    ]
    laid = [row["labels"] for row in tags.rows(rows, gold=True)]
    assert laid[0] == [-100, 0, -100, 2, 1, -100, -100, -100]
    sure = [torch.nn.functional.one_hot(torch.tensor(row).clamp(min=0), 3).float() for row in laid]
    assert tags.answers(rows, sure) == [row["tags"] for row in rows]


def test_eole_reads_and_writes_our_pieces(benchmark, tmp_path, monkeypatch):
    eole = benchmark("rival_eole")
    recipe = SimpleNamespace(tables={"task": {"tokenizer": "bpe"}, "model": {"vocab": 300}})
    rows = [Example({"source": f"I see {i} cats.", "target": f"Je vois {i} chats, né ?"}) for i in range(9)]
    tokenizer = eole.learnt(rows, recipe)
    eole._write(tmp_path / "test.said", tokenizer, [row["target"] for row in rows])
    monkeypatch.setattr(eole, "_run", lambda *words: None)
    asked = SimpleNamespace(out=tmp_path, eole=None)
    assert eole.translated(asked, tokenizer, Path("test")) == [row["target"] for row in rows]


def test_only_checkpoints_that_a_time_asks_for_are_kept(benchmark, tmp_path):
    eole = benchmark("rival_eole")
    found = []
    for number, at in enumerate((1.0, 4.0, 9.9, 10.4, 15.0, 21.0, 30.0)):
        (tmp_path / f"step_{number}").mkdir()
        found = eole.spared([*found, (at, tmp_path / f"step_{number}")], (10.0, 20.0, 40.0))
    assert [at for at, _ in found] == [9.9, 15.0, 30.0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_2", "step_4", "step_6"]


def test_our_own_run_goes_on_from_time_to_time_and_is_left_alone_when_it_has_ended(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    calls = []

    def trained(call, check):
        calls.append(call[-1])
        out = Path(call[call.index("--out") + 1])
        out.mkdir(exist_ok=True)
        why = "train.max_minutes = 1 minutes" if len(calls) == 1 else "the end of the schedule"
        score = {"name": "accuracy", "value": 0.5 + len(calls) / 10, "low": 0.0, "high": 1.0}
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))
        (out / "speed.jsonl").write_text("".join(json.dumps({"seconds": 45.0}) + "\n" for _ in calls))

    monkeypatch.setattr(script.subprocess, "run", trained)
    asked = SimpleNamespace(what="label", runs=tmp_path, minutes=[1.0, 2.0, 4.0])
    found = script.ours(script.load_recipes()["sst2"], [Path("sst2")], Path("minilm"), asked)
    assert calls == ["1.0", "2.0"]
    assert {time: (one["value"], one["minutes"]) for time, one in found.items()} == {
        "1": (0.6, 1.0),
        "2": (0.7, 1.5),
        "4": (0.7, 1.5),
    }


def test_a_recipe_that_fits_its_schedule_to_the_time_has_a_run_for_each_time(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    outs = []

    def trained(call, check):
        out = Path(call[call.index("--out") + 1])
        outs.append((out.name, call[-1]))
        out.mkdir()
        score = {"name": "bleu", "value": 10.0 * len(outs), "low": 0.0, "high": 99.0}
        why = f"the end of the schedule, fitted to train.max_minutes = {call[-1]} minutes"
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))

    monkeypatch.setattr(script.subprocess, "run", trained)
    asked = SimpleNamespace(what="translate", runs=tmp_path, minutes=[1.0, 2.0])
    found = script.ours(script.load_recipes()["tatoeba-en-fr"], [Path("pairs")], None, asked)
    assert outs == [("translate-saccade-1", "1.0"), ("translate-saccade-2", "2.0")]
    assert {time: one["value"] for time, one in found.items()} == {"1": 10.0, "2": 20.0}


def test_eole_has_the_sizes_of_our_recipe(benchmark, tmp_path):
    eole, recipe = benchmark("rival_eole"), benchmark("vs_eole_trainer").load_recipes()["tatoeba-en-fr"]
    model = eole.configured(tmp_path, recipe)["model"]
    ours = recipe.tables["model"]
    theirs = {"width": "hidden_size", "layers": "layers", "heads": "heads", "ffn_width": "transformer_ff"}
    assert {name: model[named] for name, named in theirs.items()} == {name: ours[name] for name in theirs}
    assert eole.settings(recipe)["model"]["vocab"] == ours["vocab"]


def test_who_is_in_the_record_or_not_asked_for_is_not_trained(benchmark, tmp_path):
    script = benchmark("vs_eole_trainer")
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"label": {"Other": {"scores": {"1": None, "2": {"value": 0.5}}}}}))
    asked = SimpleNamespace(what="label", who="", record=record, minutes=[1.0, 2.0])
    assert [script._wanted(asked, name) for name in ("Other", "saccade")] == [False, True]
    asked.minutes = [1.0, 2.0, 4.0]
    assert script._wanted(asked, "Other")
    asked.who = "saccade"
    assert [script._wanted(asked, name) for name in ("Other", "saccade")] == [False, True]


def test_a_recipe_whose_own_time_is_nearly_asked_for_is_run_as_it_stands(benchmark, tmp_path, monkeypatch):
    script = benchmark("vs_eole_trainer")
    calls = []

    def trained(call, check):
        calls.append(call[call.index("--out") + 2 :])
        out = Path(call[call.index("--out") + 1])
        out.mkdir()
        score = {"name": "bleu", "value": 10.0, "low": 0.0, "high": 99.0}
        why = "the end of the schedule, fitted to train.max_minutes"
        (out / "result.json").write_text(json.dumps({"stop_reason": why, "scores": {"test": [score]}}))

    monkeypatch.setattr(script.subprocess, "run", trained)
    recipe = script.load_recipes()["tatoeba-en-fr"]
    own = recipe.tables["train"]["max_minutes"]
    asked = SimpleNamespace(what="translate", runs=tmp_path, minutes=[own / 2, own + 1])
    found = script.ours(recipe, [Path("pairs")], None, asked)
    assert calls == [["--train.max-minutes", str(own / 2)], []]
    assert [one["minutes"] for one in found.values()] == [own / 2, own]


def test_settings_that_are_left_to_the_machine_are_told_as_it_settled_them(benchmark, tmp_path):
    script = benchmark("vs_eole_trainer")
    (tmp_path / "translate-saccade-40").mkdir()
    (tmp_path / "translate-saccade-40" / "config.toml").write_text('[train]\nprecision = "bfloat16"\nlr = 7.0\n')
    asked = SimpleNamespace(what="translate", runs=tmp_path)
    recipe = script.load_recipes()["tatoeba-en-fr"]
    recipe = replace(recipe, tables={**recipe.tables, "train": {"lr": 1.0, "precision": "auto"}})
    told = script.used(recipe, asked)
    assert told["train"] == {"lr": 1.0, "precision": "bfloat16"}
