"""The command for studies, its table, and the page that is made from their records."""

import json
from pathlib import Path

import pytest

from saccade.cli import main
from saccade.studies.docs_page import NOT_MEASURED, fill_page
from saccade.studies.registry import STUDIES, load_study
from saccade.studies.study import StudyPlan, StudyTable, format_score
from saccade.training.events import RunResult

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_of_the_table_has_a_module_that_asks_something(name):
    found = load_study(name)
    assert found.question
    assert found.default_minutes > 0


def test_an_unknown_study_is_told_with_the_nearest(capsys):
    assert main(["study", "listop"]) == 2
    assert "did you mean 'listops'?" in capsys.readouterr().err


def test_a_study_that_lacks_its_data_says_what_it_needs(capsys, tmp_path):
    assert main(["study", "lengths", "--out", str(tmp_path / "out")]) == 2
    assert "--trained-runs RUN RUN" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("flags", [["--minutes", "-3"], ["--minutes", "inf"], ["--seed", "-1"]])
def test_what_cannot_be_asked_for_is_refused(flags, capsys, tmp_path):
    assert main(["study", "hard_vs_soft", "--dry-run", "--out", str(tmp_path / "out"), *flags]) == 2
    assert f"{flags[0]} is" in capsys.readouterr().err


def test_a_signal_ends_a_study_before_anything_is_measured(monkeypatch, capsys, tmp_path):
    begun = []

    def stopped(ready, out):
        begun.append(out.name)
        yield RunResult("a signal", 3, {}, 15)

    monkeypatch.setattr("saccade.studies.study.prepare", lambda job: None)
    monkeypatch.setattr("saccade.studies.study.run_training", stopped)
    assert main(["study", "hard_vs_soft", "--out", str(tmp_path)]) == 143
    assert begun == ["soft-0"]
    assert "interrupted at step 3, checkpoint saved" in capsys.readouterr().out
    assert not (tmp_path / "record.json").exists()


def test_help_names_every_study(capsys):
    assert main(["study", "--help"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(name in said for name in STUDIES)


def test_a_grid_as_markdown_has_a_line_for_each_row():
    lines = StudyTable("Title", ("a", "b"), [["1", "2"], ["3", "4"]], ("note",)).to_markdown().splitlines()
    assert lines == ["Title", "", "| a | b |", "|---|---|", "| 1 | 2 |", "| 3 | 4 |", "", "note"]


def test_a_score_is_shown_with_its_interval():
    assert format_score({"value": 12.34, "low": 11.0, "high": 13.0}) == "12.3 (11.0 to 13.0)"


TEXT = "before\n<!-- study lengths -->\nold\n<!-- end -->\nafter\n"


def test_a_page_has_a_table_where_there_is_a_record_and_says_so_where_there_is_none(tmp_path):
    assert fill_page(TEXT, tmp_path) == f"before\n<!-- study lengths -->\n{NOT_MEASURED}\n<!-- end -->\nafter\n"
    score = {"value": 30.0, "low": 29.0, "high": 31.0}
    groups = [{"name": "1 to 5", "mean_length": 3.5, "texts": 50, "bleu": {"a": score, "b": score}}]
    record = {
        "texts": 50,
        "runs": ["a", "b"],
        "overall": {"a": score, "b": score},
        "by_words": groups,
        "by_sentences": groups,
    }
    record |= {"study": "lengths", "date": "2026-01-02", "machine": {"cpu": "abacus"}}
    (tmp_path / "lengths.json").write_text(json.dumps(record), encoding="utf-8")
    made = fill_page(TEXT, tmp_path)
    assert "| 1 to 5 | 50 | 30.0 (29.0 to 31.0) | 30.0 (29.0 to 31.0) |" in made
    assert "2026-01-02" in made
    assert "abacus" in made
    assert "old" not in made
    assert fill_page(made, tmp_path) == made


def test_the_page_of_studies_is_what_the_records_make_it():
    text = (DOCS / "studies.md").read_text(encoding="utf-8")
    assert fill_page(text, DOCS / "results" / "studies") == text
    assert all(f"<!-- study {name} -->" in text for name in STUDIES)


def test_two_runs_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match="Two runs are named best"):
        StudyPlan(tmp_path, trained_runs=("one/best", "two/best"))
