"""The export gate: models need both statements and current audits, or a reason that the card states."""

import json
import shutil

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from test_card import TINY, fill

from saccade.audit.card import read_card_digest
from saccade.audit.fingerprints import hash_weights
from saccade.audit.gate import ExportRefused, check_gate, missing_items
from saccade.audit.run_records import find_task, open_records
from saccade.cli import main
from saccade.models.load import load


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A run that was audited and described."""
    home = tmp_path_factory.mktemp("gate")
    rows = "".join(f"{'he' if i % 2 else 'she'} is number {i}\t{'pos' if i % 3 else 'neg'}\n" for i in range(90))
    (home / "things.tsv").write_text("text\tlabel\n" + rows)
    run = home / "run"
    assert main(["train", "label", "--data", str(home / "things.tsv"), "--out", str(run), *TINY.split()]) == 0
    assert main(["card", str(run), "--init"]) == 0
    fill(run)
    assert main(["audit", str(run)]) == 0
    assert main(["card", str(run)]) == 0
    return home


@pytest.fixture
def run(made, tmp_path):
    """A copy of the run that a test may damage."""
    return shutil.copytree(made / "run", tmp_path / "run")


def test_a_model_with_statements_and_audits_is_exported(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["card", str(run), "--check"]) == 0
    assert main(["export", str(run), str(out)]) == 0
    assert main(["card", str(out), "--check"]) == 0
    text = (out / "README.md").read_text()
    assert "**Audited and described.**" in text
    assert "All of speakers." in text
    assert (out / "README.md").read_text() == (run / "model" / "README.md").read_text()
    assert "](looks.png)" in text
    assert "### Suite data" in text
    assert (
        text.count("The suite was run, but there was nothing that it could measure.") == 1
    )  # nine held-out texts are too few to swap
    assert "<h3>Suite counterfactual</h3>" in (run / "card.html").read_text()
    assert (out / "looks.png").read_bytes() == (run / "model" / "looks.png").read_bytes()
    one, other = load(run).state_dict(), load(out).state_dict()
    assert all((one[name] == other[name]).all() for name in one)


def test_exported_weights_carry_the_hash_of_their_card(run, tmp_path):
    import hashlib

    out = tmp_path / "out"
    assert main(["export", str(run), str(out)]) == 0
    with safe_open(out / "model.safetensors", "pt") as file:
        assert file.metadata() == {
            "format": "pt",
            "card": hashlib.sha256((out / "README.md").read_bytes()).hexdigest(),
        }
    assert read_card_digest(run / "model") is None
    assert hash_weights(out) == hash_weights(run / "model")  # metadata does not count


def test_a_card_that_was_changed_later_is_detected(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["export", str(run), str(out)]) == 0
    (out / "README.md").write_text((out / "README.md").read_text() + "It is perfect.\n")
    assert main(["card", str(out), "--check"]) == 4
    assert "not the card with which these weights were exported" in capsys.readouterr().out
    (out / "README.md").unlink()
    assert main(["card", str(out), "--check"]) == 4
    assert main(["card", str(out)]) == 2  # an exported model has no records to build a card from


def test_a_model_without_statements_is_refused(run, tmp_path, capsys):
    (run / "statements.toml").unlink()
    assert main(["export", str(run), str(tmp_path / "out")]) == 4
    err = capsys.readouterr().err
    assert "data statement" in err
    assert "harm statement" in err
    assert "--init" in err
    assert not (tmp_path / "out").exists()


def test_one_missing_answer_is_enough_for_a_refusal(run, tmp_path, capsys):
    text = (
        (run / "statements.toml")
        .read_text()
        .replace('affected_people = "All of affected_people."', 'affected_people = "not stated"')
    )
    (run / "statements.toml").write_text(text)
    assert main(["export", str(run), str(tmp_path / "out")]) == 4
    assert "harm statement lacks affected_people" in capsys.readouterr().err


@pytest.mark.parametrize("suite", ["data", "counterfactual"])
def test_a_model_without_an_audit_is_refused(run, tmp_path, capsys, suite):
    raw = json.loads((run / "audit.json").read_text())
    del raw["suites"][suite]
    (run / "audit.json").write_text(json.dumps(raw))
    assert main(["export", str(run), str(tmp_path / "out")]) == 4
    assert f"the suite {suite} has not been run" in capsys.readouterr().err


def test_changed_weights_make_an_audit_stale(run, tmp_path, capsys):
    path = run / "model" / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[0]
    tensors[name].view(-1)[0] += 1e-3
    save_file(tensors, path, {"format": "pt"})
    assert main(["export", str(run), str(tmp_path / "out")]) == 4
    err = capsys.readouterr().err
    assert err.count("is stale (the weights were") == 2
    assert main(["audit", str(run)]) == 0
    assert main(["export", str(run), str(tmp_path / "out")]) == 0


def test_weights_that_were_only_saved_again_do_not(run, tmp_path):
    path = run / "model" / "model.safetensors"
    save_file(load_file(path), path, {"format": "pt", "note": "copied"})
    assert missing_items(open_records(run), find_task(run)) == []


def test_changed_data_make_an_audit_stale(made, run, tmp_path, capsys):
    data = made / "things.tsv"
    before = data.read_text()
    try:
        data.write_text(before + "one more thing\tpos\n")
        assert main(["export", str(run), str(tmp_path / "out")]) == 4
        assert "is stale (the data" in capsys.readouterr().err
        assert main(["audit", str(run)]) == 3
        assert "have changed since training" in capsys.readouterr().err
    finally:
        data.write_text(before)
    assert missing_items(open_records(run), find_task(run)) == []


def test_an_audit_of_other_data_does_not_count(run, tmp_path):
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\n" + "".join(f"thing {i}\tpos\n" for i in range(30)))
    assert main(["audit", str(run), "--suite", "data", "--data", str(other)]) == 0
    with pytest.raises(ExportRefused, match="was run on other data"):
        check_gate(open_records(run), find_task(run))


def test_a_reason_opens_the_gate_and_is_stated_on_the_card(run, tmp_path, capsys):
    (run / "statements.toml").unlink()
    (run / "audit.json").unlink()
    out = tmp_path / "out"
    assert main(["export", str(run), str(out), "--unaudited", "only for a *demo* <now>"]) == 0
    assert "loads in   saccade" in capsys.readouterr().out
    text = (out / "README.md").read_text()
    assert "**Not audited, not described.**" in text
    assert "for this reason: only for a \\*demo\\* &lt;now&gt;" in text
    assert main(["card", str(out), "--check"]) == 4
    assert main(["export", str(run), str(tmp_path / "more"), "--unaudited", "  "]) == 2


def test_an_imported_model_passes_without_its_training_data(run, tmp_path, capsys):
    """It has no config.toml, so its training data are not available, and its card says so."""
    (run / "config.toml").unlink()
    (run / "audit.json").unlink()
    data = tmp_path / "test.tsv"
    data.write_text("text\tlabel\n" + "".join(f"he is {i}\tpos\nshe is {i}\tneg\n" for i in range(15)))
    assert main(["audit", str(run), "--data", str(data)]) == 0
    assert main(["export", str(run), str(tmp_path / "out")]) == 0


def test_a_suite_that_was_never_run_is_named(run, tmp_path, capsys):
    (run / "config.toml").unlink()
    (run / "audit.json").unlink()
    data = tmp_path / "test.tsv"
    data.write_text("text\tlabel\n" + "".join(f"he is {i}\tpos\nshe is {i}\tneg\n" for i in range(15)))
    assert main(["audit", str(run), "--suite", "counterfactual", "--data", str(data)]) == 0
    assert main(["export", str(run), str(tmp_path / "out")]) == 4
    assert "the suite data has not been run" in capsys.readouterr().err
