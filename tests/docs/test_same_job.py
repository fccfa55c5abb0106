"""The table of docs/coming-from.md counts the lines of the programs below it, and the one with saccade runs."""

import re
from pathlib import Path

import pandas as pd

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"^```python same_job_(\w+)\.py\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))


def test_the_table_counts_the_lines_of_the_programs():
    rows = re.findall(r"^\| ([\w-]+) \| (\d+) \|", PAGE, re.MULTILINE)
    table = {name.replace("scikit-learn", "sklearn"): int(count) for name, count in rows}
    assert table == {name: sum(bool(line.strip()) for line in text.splitlines()) for name, text in PROGRAMS.items()}
    assert len(table) == 3


def test_the_program_with_saccade_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = {"lovely": "good", "great": "good", "awful": "bad", "dull": "bad"}
    for name, count in (("reviews", 30), ("test", 8), ("new", 3)):
        rows = [{"text": f"a {word} film {n}", "label": words[word]} for n in range(count) for word in words]
        pd.DataFrame(rows).to_csv(f"{name}.csv", index=False)
    names: dict[str, object] = {}
    text = PROGRAMS["saccade"].replace('out="runs/reviews")', 'out="runs/reviews", train={"max_steps": 2})')
    exec(compile(text, "same_job_saccade.py", "exec"), names)
    assert len(names["predictions"]) == 12  # type: ignore[arg-type]
    assert "macro avg" in capsys.readouterr().out
