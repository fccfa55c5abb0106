"""`saccade doctor`: it finds what works, and it can be made to find each thing that does not."""

import json
import re
from importlib import metadata
from pathlib import Path

import pytest
import torch

from saccade.cli import doctor_checks, main
from saccade.cli.commands import doctor


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    monkeypatch.setattr(doctor_checks, "MIN_SECONDS_MEASURED", 0.02)


def only(monkeypatch, *names):
    monkeypatch.setattr(doctor_checks, "CHECKS", {name: doctor_checks.CHECKS[name] for name in names})


def test_all_is_well_here_and_nothing_is_left_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    assert "saccade works on this machine" in out
    assert all(re.search(rf"^(ok|warning) +{name}", out, re.MULTILINE) for name in doctor_checks.CHECKS)
    assert not list(tmp_path.iterdir())


def test_json_holds_every_line(monkeypatch, capsys):
    only(monkeypatch, "tokenizer")
    assert main(["doctor", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ok"] is True
    lines = {line["name"]: line for line in found["checks"]}
    assert lines["torch"]["result"] == metadata.version("torch")
    assert {"python", "cores", "memory", "disk", "devices", "hub", "tokenizer"} <= set(lines)
    assert all(line["fix"] for line in lines.values() if line["status"] != "ok")


def test_a_wrong_kernel_is_found(monkeypatch, capsys):
    from saccade.attention.mechanisms.dot import ScaledDot

    right = ScaledDot.attend
    monkeypatch.setattr(ScaledDot, "attend", lambda self, q, k, v, sight: right(self, q, k, v, sight) * 1.01)
    only(monkeypatch, "attention")
    assert main(["doctor"]) == 5
    assert "MISSING  attention" in capsys.readouterr().out


def test_a_broken_part_is_named_and_the_rest_goes_on(monkeypatch, capsys):
    def broken(name):
        raise RuntimeError("no such thing\nand more")

    monkeypatch.setattr(doctor_checks, "CHECKS", {"memory speed": broken, "tokenizer": doctor_checks.check_tokenizer})
    assert main(["doctor"]) == 5
    out = capsys.readouterr().out
    assert re.search(r"MISSING +memory speed +RuntimeError: no such thing\n +-> install", out)
    assert re.search(r"ok +tokenizer", out)


def test_a_checkpoint_that_comes_back_changed_is_found(monkeypatch):
    from saccade.training.checkpoint.read import Checkpoint

    read = Checkpoint.read_tensors
    monkeypatch.setattr(
        Checkpoint, "read_tensors", lambda self, group: {k: v + 1 for k, v in read(self, group).items()}
    )
    assert doctor_checks.check_checkpoint("checkpoint").status == "missing"


def test_no_fused_kernel_is_a_warning(monkeypatch):
    import torch.nn.functional as F

    def refuse(*args, **kinds):
        raise RuntimeError("No available kernel. Aborting execution.")

    monkeypatch.setattr(F, "scaled_dot_product_attention", refuse)
    line = doctor_checks.check_fused_kernel("fused kernel")
    assert line.status == "warning"
    assert "quadratic in the sequence length" in line.fix


def test_threads_memory_and_disk():
    assert doctor.check_threads(2, 2, "").status == "ok"
    assert doctor.check_threads(2, 2, "8").fix == "8 threads compete for 2 cores; set OMP_NUM_THREADS=2"
    assert doctor.check_threads(2, 4, "").status == "warning"
    assert doctor.check_threads(4, 4, "all").status == "ok"
    assert [doctor.check_disk(Path("."), int(free)).status for free in (1e6, 1e9, 1e10)] == ["missing", "warning", "ok"]
    assert doctor.check_free_bytes("memory", None, min_bytes=1, enough_bytes=2, fix="x").status == "warning"


def test_a_directory_that_cannot_be_written(monkeypatch):
    monkeypatch.setattr(doctor.os, "access", lambda path, mode: False)
    line = doctor.check_disk(Path("there"), 10**12)
    assert (line.status, line.result) == ("warning", "there is not writable")


@pytest.mark.parametrize(
    ("torch_is", "state"), [("2.9.1+cpu", "missing"), ("2.10.0", "ok"), ("2.13.0+cu130", "ok"), ("2.14.0", "warning")]
)
def test_versions_are_held_against_what_the_package_asks_for(monkeypatch, torch_is, state):
    monkeypatch.setattr(metadata, "requires", lambda name: ["torch<2.14,>=2.10", "pyarrow>=15; extra == 'data'"])
    monkeypatch.setattr(doctor, "find_installed_version", lambda name: torch_is if name == "torch" else "")
    lines = {line.name: line for line in doctor.check_versions()}
    assert lines["torch"].status == state
    assert lines["extra data"].status == "ok"  # optional
    assert "pip install 'saccade[data]'" in lines["extra data"].result


def test_a_package_that_is_not_there(monkeypatch):
    monkeypatch.setattr(metadata, "requires", lambda name: ["tokenizers>=0.21"])
    monkeypatch.setattr(doctor, "find_installed_version", lambda name: "")
    (line,) = [line for line in doctor.check_versions() if line.name == "tokenizers"]
    assert (line.status, line.fix) == ("missing", "pip install 'tokenizers>=0.21'")


def test_speeds_are_those_of_a_clock(monkeypatch):
    now = iter(range(1000))
    monkeypatch.setattr(
        doctor_checks.time, "perf_counter", lambda: next(now) / 10
    )  # each glance at the clock takes 0.1 s
    monkeypatch.setattr(doctor_checks, "MIN_SECONDS_MEASURED", 1.0)
    assert doctor_checks._measure_calls_per_second(lambda: None) == pytest.approx(
        9 / 1.1
    )  # nine turns, and the eleventh glance ends the count


def test_a_model_by_definition_is_the_same_model():
    model = doctor_checks._build_small_model()
    weights = [p.clone() for p in model.parameters()]
    assert doctor_checks.use_reference_attention(model) is model
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    from saccade.attention import Mechanism

    changed = [m for m in model.modules() if isinstance(m, Mechanism)]
    assert changed
    assert all(m.attend.__func__ is Mechanism.attend for m in changed)
