"""`run.card()`, `run.audit()` and `run.export()`: the same gate as the commands, and values that a script can use."""

import json
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
import transformers

import saccade
from saccade.audit.gate import ExportRefused
from saccade.audit.run_records import find_license
from saccade.audit.statements import QUESTIONS
from saccade.cli import main
from saccade.errors import ModelError, UsageError

SIZES = {"width": 16, "layers": 1, "heads": 2, "ffn_width": 16, "max_positions": 32}
ROWS = [{"text": f"{'he' if i % 2 else 'she'} is number {i}", "label": "odd" if i % 2 else "even"} for i in range(90)]


@pytest.fixture
def run(tmp_path):
    return saccade.train(
        "label", ROWS, family="bert", out=tmp_path / "run", architecture=SIZES, train={"max_steps": 2, "seed": 3}
    )


def answer_all(run):
    path = Path(run.path) / "statements.toml"
    text = path.read_text()
    for question in QUESTIONS:
        if question.is_required:
            text = text.replace(f'\n{question.name} = ""', f'\n{question.name} = "Known."')
    path.write_text(text)


def test_the_gate_says_in_three_lines_what_satisfies_it_and_that_satisfies_it(run, tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ExportRefused) as refused:
        run.export(out)
    title, statements, audits, reason = str(refused.value).splitlines()
    assert title.endswith("is not ready for export:")
    assert "data statement lacks language_variety" in statements
    assert "run.card(init=True)" in statements
    assert "the suite data has not been run" in audits
    assert audits.endswith("run.audit()")
    assert f'run.export("{out}", unaudited="REASON")' in reason
    assert isinstance(refused.value, ValueError)
    run.card(init=True)
    answer_all(run)
    run.audit(progress=False)
    assert not run.card().missing
    assert run.export(out, format="hf") == out
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    tokenizer = transformers.AutoTokenizer.from_pretrained(out)
    logits = theirs(**tokenizer(ROWS[0]["text"], return_tensors="pt")).logits.detach().numpy()[0]
    ours = run.predict(ROWS[0]["text"], engine="off").probabilities
    expected = np.exp(logits) / np.exp(logits).sum()
    assert [ours[theirs.config.id2label[i]] for i in range(2)] == pytest.approx(list(expected), abs=1e-5)


def test_the_commands_of_the_refusal_are_those_of_the_command_line(run, tmp_path, capsys):
    assert main(["export", str(run.path), str(tmp_path / "out")]) == 4
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    for line, command in zip(lines[1:], ("card RUN --init", "audit RUN", "export RUN OUT --unaudited"), strict=True):
        assert f"saccade {command}".replace("RUN", str(run.path)).replace("OUT", str(tmp_path / "out")) in line


def test_the_card_states_what_the_run_knows(run):
    card = run.card(init=True)
    text = str(card)
    config = tomllib.loads((Path(run.path) / "config.toml").read_text())
    result = json.loads((Path(run.path) / "result.json").read_text())
    counts = [sum(row["label"] == label for row in ROWS[:80]) for label in ("odd", "even")]
    assert max(counts) / sum(counts) == pytest.approx(0.5)
    for fact in (config["run"]["digest"], f"{result['parameters']:,}", "bert", "seed = 3", "2, ended by", "random"):
        assert fact in text
    score = result["scores"]["dev"][0]
    assert f"| dev | accuracy | {score['value']:.4g} | {score['low']:.4g} to {score['high']:.4g} |" in text
    baseline = result["baselines"]["dev"]
    assert f"Baseline on dev: {baseline['description']} reaches accuracy {baseline['value']:.4g}." in text
    assert re.search(r"- \*\*Time:\*\* \d+\.\d minutes", text)
    assert re.search(r"- \*\*Hardware:\*\* .+, \d+ cores, device cpu", text)
    blanks = re.findall(r"not stated; only a person can say, in statements.toml: \\\[(\w+)\\\] (\S+)", text)
    assert {(q.table, q.name) for q in QUESTIONS if q.is_required} <= {(t, n.replace("\\", "")) for t, n in blanks}
    assert [path.name for path in card.paths] == ["statements.toml", "README.md", "looks.png", "card.html"]
    assert card._repr_markdown_().startswith("**Not audited, not described.**")
    assert (Path(run.path) / "model" / "README.md").read_text() == text


def test_the_baseline_is_the_most_frequent_label_of_training(run):
    result = json.loads((Path(run.path) / "result.json").read_text())
    train = [example["label"] for example in run.data.train.examples]
    most = max(set(train), key=train.count)
    held_out = [example["label"] for example in run.held_out]
    assert result["baselines"]["dev"]["value"] == pytest.approx(held_out.count(most) / len(held_out))


def test_a_card_that_a_person_has_edited_is_kept(run, capsys):
    run.card()
    run.card()  # nobody has edited it
    readme = Path(run.path) / "model" / "README.md"
    readme.write_text(edited := readme.read_text().replace("# run", "# The best run"))
    with pytest.raises(ModelError, match="has been edited since it was written"):
        run.card()
    assert main(["card", str(run.path), "--init"]) == 4
    assert "--force" in capsys.readouterr().err
    assert readme.read_text() == edited
    assert not (Path(run.path) / "statements.toml").exists()
    assert any("does not match" in line for line in run.card(check=True).missing)
    assert readme.read_text() == edited
    run.card(force=True)
    assert "# run\n" in readme.read_text()
    with pytest.raises(UsageError, match="--check writes nothing"):
        run.card(check=True, force=True)


def test_answers_are_kept_unless_force_is_given(run):
    run.card(init=True)
    answer_all(run)
    path = Path(run.path) / "statements.toml"
    with pytest.raises(ModelError, match="already exists"):
        run.card(init=True)
    assert path.read_text().count('"Known."') == sum(question.is_required for question in QUESTIONS)
    run.card(init=True, force=True)
    assert "Known." not in path.read_text()


def test_an_audit_returns_its_results(run):
    report = run.audit("data", progress=False)
    assert list(report.suites) == ["data"]
    stored = json.loads((Path(run.path) / "audit.json").read_text())
    assert stored["suites"]["data"]["result"]["interpretation"] == report["data"].interpretation
    assert "gender" in report.inapplicable
    assert "gender: not run, because" in repr(report)
    assert "<table>" in report._repr_html_()
    assert report.as_dict()["file"] == str(Path(run.path) / "audit.json")
    with pytest.raises(UsageError, match="did you mean 'data'"):
        run.audit("dato")
    with pytest.raises(UsageError, match="--bad-words is for suites of generated text"):
        run.audit(bad_words=__file__)


def test_a_format_that_transformers_does_not_know_is_refused(tmp_path):
    run = saccade.train(
        "label", ROWS, out=tmp_path / "own", architecture={"width": 16, "layers": 1}, train={"max_steps": 1}
    )
    with pytest.raises(ModelError, match="has no published format"):
        run.export(tmp_path / "out", format="hf", unaudited="a test")
    assert not (tmp_path / "out").exists()
    assert run.export(tmp_path / "out", unaudited="a test") == tmp_path / "out"
    with pytest.raises(UsageError, match="did you mean 'hf'"):
        run.export(tmp_path / "more", format="hff", unaudited="a test")


def test_the_license_of_the_base_model_is_on_the_card(run, tmp_path):
    readme = Path(run.path) / "model" / "README.md"
    readme.write_text('---\nlibrary_name: x\nlicense: "apache-2.0"\n---\nA card of others.\n')
    assert find_license(str(run.path)) == find_license(str(Path(run.path) / "model")) == "apache-2.0"
    assert find_license("") == find_license(str(tmp_path / "nothing")) == ""
    tuned = saccade.train("label", ROWS, model=run.path, out=tmp_path / "tuned", train={"max_steps": 1})
    assert "whose license is apache-2.0" in str(tuned.card())
