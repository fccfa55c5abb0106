"""The shipped contracts: all of saccade's own entries keep them, and each mistake in a mechanism fails the right requirement."""

import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import saccade
from saccade.attention import ALL_FEATURES, MECHANISMS, Mechanism, MechanismEntry, ScaledDot
from saccade.checking.entries import REQUIREMENTS, check_entry
from saccade.checking.mechanism_contract import check_mechanism
from saccade.checking.model_contracts import check_family, check_position, check_task
from saccade.checking.pytest_plugin import pytest_configure
from saccade.cli import main
from saccade.models.registry import FAMILIES, get_family
from saccade.parts.position import POSITIONS, AdditivePosition, PositionEntry
from saccade.plugins import REGISTRATIONS, load_plugin
from saccade.tasks.grade import Grade
from saccade.tasks.registry import task_class

pytestmark = pytest.mark.usefixtures("unregistered")
KNOWN_EXCEPTIONS = {  # what saccade's own families do by intent
    "dalle": ["gradients"],  # its autoencoder is trained before
    "gemma3": ["files"],  # of two layers nobody can tell whether every third or every sixth would attend to everything
}


def scaled_oracle(module, q, k, mask, head):
    return torch.softmax(q @ k.T / math.sqrt(q.size(-1)) + mask, -1)


class Tempered(Mechanism):
    """A parameter for each head."""

    def __init__(self, heads):
        super().__init__()
        self.temperature = nn.Parameter(torch.full((heads, 1, 1), 2.0))

    def scores(self, q, k):
        return q @ k.mT / self.temperature


def tempered_oracle(module, q, k, mask, head):
    return torch.softmax(q @ k.T / module.temperature[head] + mask, -1)


def failures(report):
    return [finding.name for finding in report.failures]


def entry_of(make, oracle=scaled_oracle, supports=ALL_FEATURES):
    entry = MechanismEntry("mine", make, "softmax(q·k)", supports=supports, oracle=oracle)
    saccade.register(mechanism=entry)
    return entry


@pytest.mark.parametrize("entry", MECHANISMS, ids=lambda entry: entry.name)
def test_every_mechanism_of_saccade_keeps_the_contract(entry):
    assert failures(check_mechanism(entry)) == []


def test_a_parameter_for_each_head():
    report = check_mechanism(entry_of(lambda width, heads, length: Tempered(heads), tempered_oracle))
    assert report.ok, str(report)
    assert report["formula"].deviation < 1e-14


class Leaky(ScaledDot):
    """Normalizes over all keys, also later ones."""

    def normalize(self, scores, sight):
        return super().normalize(scores - 0.1 * scores.mean(-1, keepdim=True) * scores, sight)


class WrongScale(ScaledDot):
    def scores(self, q, k):
        return super().scores(q, k) * 1.01

    def attend(self, q, k, v, sight):
        return Mechanism.attend(self, q, k, v, sight)


class FastWithoutMask(ScaledDot):
    def attend(self, q, k, v, sight):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)


class Unused(ScaledDot):
    def __init__(self):
        super().__init__()
        self.forgotten = nn.Parameter(torch.ones(3))


class Detached(ScaledDot):
    def transform_qk(self, q, k):
        return q.detach(), k


class Float32Constant(Mechanism):
    def scores(self, q, k):
        return q @ k.mT / math.sqrt(q.size(-1)) * torch.ones(1, 1, dtype=torch.float32)

    def attend(self, q, k, v, sight):
        return (self.weights(q, k, sight).to(self.scores(q, k).dtype) @ v.to(self.scores(q, k).dtype)).to(
            torch.promote_types(q.dtype, torch.float32)
        )


class Stateful(ScaledDot):
    count = 0.0

    def scores(self, q, k):
        self.count += 1
        return super().scores(q, k) * (1 + 0.01 * self.count)

    def attend(self, q, k, v, sight):
        return Mechanism.attend(self, q, k, v, sight)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (WrongScale, {"formula"}),
        (Leaky, {"formula", "fast path"}),
        (FastWithoutMask, {"fast path", "no visible key", "causality", "padding"}),
        (Unused, {"gradients"}),
        (Detached, {"fast path", "gradients"}),
        (Float32Constant, {"half precision"}),
        (Stateful, {"watch", "fast path"}),
    ],
)
def test_a_mistake_fails_its_requirement(make, expected):
    found = failures(check_mechanism(entry_of(lambda width, heads, length: make())))
    assert found
    assert set(found) & expected, found


def test_a_mechanism_without_an_oracle_fails_and_is_told_how_to_write_one():
    report = check_mechanism(entry_of(lambda width, heads, length: ScaledDot(), oracle=None))
    assert failures(report) == ["formula"]
    assert "mine declares no oracle" in report["formula"].message
    assert check_entry("mechanism", "dot")["formula"].status == "not applicable"


def test_a_parameter_that_starts_neutral_is_not_forgotten():
    class Sharpened(ScaledDot):
        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def transform_qk(self, q, k):
            return q * self.factor, k

    assert failures(check_mechanism(entry_of(lambda width, heads, length: Sharpened()))) == ["formula"]


@pytest.mark.parametrize(("feature", "name"), [("permutation", "order of keys"), ("gradients", "gradients")])
def test_what_is_not_declared_must_not_hold(feature, name):
    supports = ALL_FEATURES - {feature}
    assert failures(check_mechanism(entry_of(lambda w, h, n: ScaledDot(), supports=supports))) == [name]


@pytest.mark.parametrize("feature", ["causal", "pattern", "bias"])
def test_what_is_not_declared_must_be_refused(feature):
    supports = ALL_FEATURES - {feature}
    report = check_mechanism(entry_of(lambda w, h, n: ScaledDot(), supports=supports))
    assert failures(report) == ["unsupported"]
    assert report["unsupported"].message == f"{feature} is not declared, and not refused"


@pytest.mark.parametrize("entry", POSITIONS, ids=lambda entry: entry.name)
def test_every_position_scheme_of_saccade_keeps_the_contract(entry):
    assert failures(check_position(entry)) == (["order"] if entry.name == "none" else [])


def test_a_position_scheme_that_counts_padding_fails():
    class FromShape(AdditivePosition):
        def add_to_input(self, x, pos):
            rows, columns = torch.arange(x.size(1), dtype=x.dtype), torch.arange(x.size(2), dtype=x.dtype)
            return x + torch.sin(rows[:, None] * (columns + 1))

    report = check_position(PositionEntry("from_shape", lambda w, h, n: FromShape(), "added to the embeddings"))
    assert failures(report) == ["incremental", "padding"]


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_every_family_of_saccade_keeps_the_contract(family):
    assert failures(check_family(family)) == KNOWN_EXCEPTIONS.get(family.name, [])


def test_a_family_that_declares_a_wrong_path_fails():
    family = get_family("transformer_encoder")
    wrong = replace(family, capabilities=lambda config: replace(family.capabilities(config), layers=("blocks",)))
    report = check_family(wrong)
    assert failures(report) == ["capabilities"]
    assert "the body has no blocks" in report["capabilities"].message


@pytest.mark.parametrize(
    "name", ["grade", *(pytest.param(name, marks=pytest.mark.nightly) for name in ("label", "tag", "translate"))]
)
def test_tasks_of_saccade_keep_the_contract(name):
    assert failures(check_task(task_class(name))) == []


def test_a_mean_instead_of_a_sum_fails():
    class MeanGrade(Grade):
        name, aliases = "mean_grade", ()

        def loss(self, model, batch):
            return super().loss(model, batch) / len(batch.items)

        def to_prediction(self, answer, example):
            raise RuntimeError("not written yet")

    saccade.register(task=MeanGrade)
    assert failures(check_task(MeanGrade)) == ["loss", "answers"]


@pytest.mark.parametrize(("file", "lines"), [("tempered.py", 20), ("lab.py", 23)])
def test_the_plugins_of_the_docs_are_short_and_keep_their_contracts(file, lines, tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text(encoding="utf-8")
    text = re.search(rf"```python {re.escape(file)}\n(.*?)```", page, re.S)[1]
    assert len([line for line in text.splitlines() if line.strip()]) <= lines
    (tmp_path / file).write_text(text, encoding="utf-8")
    load_plugin(str(tmp_path / file))
    assert REGISTRATIONS
    for kind, name in list(REGISTRATIONS):
        assert failures(check_entry(kind, name)) == []


PLUGIN = """
import torch, saccade
from saccade.attention import MechanismEntry, ScaledDot

def oracle(module, q, k, mask, head):
    return torch.softmax(q @ k.T / q.size(-1) ** {power} + mask, -1)

saccade.register(mechanism=MechanismEntry("mine", lambda width, heads, length: ScaledDot(), "softmax(q·k)", oracle=oracle))
"""


def test_the_command_tests_what_a_plugin_registers(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("right.py").write_text(PLUGIN.format(power=0.5), encoding="utf-8")
    assert main(["check", "--plugin", "right.py"]) == 0
    assert "the mechanism mine" in capsys.readouterr().out
    assert main(["check", "--plugin", "right.py", "--mechanism", "mine", "--json"]) == 0
    assert main(["check", "--mechanism", "minee"]) == 2
    assert "did you mean 'mine'?" in capsys.readouterr().err
    assert main(["check", "--position", "rotary", "module:factory"]) == 2
    assert "not both" in capsys.readouterr().err


def test_the_pytest_plugin_has_a_test_for_each_requirement(tmp_path):
    (tmp_path / "wrong.py").write_text(PLUGIN.format(power=0.4), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-v", "-p", "saccade.checking.pytest_plugin", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, "--saccade-plugin", "wrong.py"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout
    assert f"1 failed, {len(REQUIREMENTS['mechanism']) - 2} passed, 1 skipped" in done.stdout
    assert "weights of the oracle, full pattern, padding none, no bias (deviation" in done.stdout
    assert "mechanism mine::formula" in done.stdout
    with pytest.raises(pytest.UsageError, match=r"there is no file nowhere\.py"):
        pytest_configure(SimpleNamespace(getoption=lambda name: ["nowhere.py"]))
