"""What every line of `FAMILIES` keeps when heads are removed: the answers that it gives with them switched off, and its files."""

import json

import pytest
import torch
from test_families import PICTURES, TINY, answer, example, names, rough
from torch.testing import assert_close

from saccade.engine import fast
from saccade.explain.ablate import named, remove, silence, switches, without
from saccade.models.cut import whole
from saccade.models.header import read_header
from saccade.models.load import load
from saccade.models.new import new
from saccade.models.table import FAMILIES
from saccade.parts.multihead import Attention

HEADLESS = ("rnn", "rnn_language", "rnn_reader", "senet", "captioner_rnn", "kernel")
DRAWN = ("bigbird",)  # blocks for each head
CUT = [family for family in FAMILIES if family.name not in (*HEADLESS, *DRAWN)]
PUBLISHED = [family for family in CUT if family.names is not None]


def some(model):
    """The second head of each even layer, and in grouped attention the second of each group."""
    groups = 3 if model.family.name in ("llama", "mistral", "qwen2", "qwen3", "gemma3") else 99
    return [one for one in switches(model) if one.layer % 2 == 0 and one.head is not None and one.head % groups == 1]


@pytest.mark.parametrize("family", CUT, ids=names)
def test_removed_is_switched_off(family):
    model, batch = rough(family), example(family)
    off = some(model)
    smaller = remove(model, off)
    with torch.no_grad(), without(model, off):
        wanted = answer(model, batch)
    with torch.no_grad():
        assert_close(answer(smaller, batch), wanted, rtol=0, atol=1e-5)
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in model.parameters())
    assert len(switches(smaller)) == len(switches(model)) - len(off)
    with torch.no_grad():
        assert_close(answer(silence(model, off), batch), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", CUT, ids=names)
def test_a_smaller_model_is_a_smaller_file_and_comes_back(family, tmp_path):
    model, batch = rough(family), example(family)
    smaller = remove(model, some(model))
    model.save(tmp_path / "all")
    smaller.save(tmp_path / "fewer")
    files = [read_header(tmp_path / name / "model.safetensors") for name in ("all", "fewer")]
    before, after = (max(one.end for one in file.values()) for file in files)
    removed = [p.numel() - smaller.get_parameter(n).numel() for n, p in model.named_parameters()]
    assert before - after >= 4 * sum(removed) > 0  # and what the published class has beside it
    again = load(tmp_path / "fewer")
    assert again.kept == smaller.kept
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in smaller.named_parameters()}
    with torch.no_grad():
        assert_close(answer(again, batch), answer(smaller, batch), rtol=0, atol=1e-6)
    told = json.loads((tmp_path / "fewer" / "config.json").read_text(encoding="utf-8"))
    assert all(1 not in heads and 0 in heads for heads in told["kept"].values())


@pytest.mark.parametrize("family", PUBLISHED, ids=names)
def test_made_whole_it_has_the_published_shape_and_the_same_answers(family, tmp_path):
    model, batch = rough(family), example(family)
    off = some(model)
    smaller = remove(model, off)
    full = whole(smaller)
    assert {n: p.shape for n, p in full.named_parameters()} == {n: p.shape for n, p in model.named_parameters()}
    with torch.no_grad():
        assert_close(answer(full, batch), answer(smaller, batch), rtol=0, atol=1e-5)
    full.save(tmp_path / "out")
    assert "saccade" not in json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    back = load(tmp_path / "out")
    with torch.no_grad():
        assert_close(answer(back, batch), answer(smaller, batch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", CUT, ids=names)
def test_what_is_left_learns(family):
    model, batch = rough(family), example(family)
    smaller = remove(model, some(model)).train()
    answer(smaller, batch).square().mean().backward()
    for part in smaller.modules():
        if isinstance(part, Attention) and part.kept is not None:
            assert part.value.weight.grad is not None
            assert part.value.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("family", [f for f in CUT if f.name not in PICTURES], ids=names)
def test_the_engine_takes_it(family):
    model, batch = rough(family), example(family)
    smaller = remove(model, some(model))
    with torch.no_grad():
        assert_close(answer(fast(smaller, "float32"), batch), answer(smaller, batch), rtol=0, atol=1e-4)


def test_heads_are_removed_one_after_the_other():
    family = next(f for f in FAMILIES if f.name == "gpt2")
    model, batch = rough(family), example(family)
    once = remove(model, [named(model, "0.0"), named(model, "0.2")])
    twice = remove(remove(model, [named(model, "0.0")]), [named(model, "0.1")])  # what was head 2 is head 1 now
    assert once.kept == twice.kept == {"stack.layers.0.attention.branch": (1,)}
    assert_close(answer(twice, batch), answer(once, batch))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in DRAWN], ids=names)
def test_what_is_drawn_for_each_head_is_refused_by_name(family):
    model = rough(family)
    with pytest.raises(ValueError, match=r"draws blocks for each of its 3 heads.*silence"):
        remove(model, switches(model)[:1])


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in HEADLESS], ids=names)
def test_what_has_no_heads_is_refused_by_name(family):
    model = new(family, TINY[family.name])
    with pytest.raises(ValueError, match=r"no attention|no heads with projections"):
        remove(model, switches(model)[:1])


def test_what_cannot_be_left_is_said():
    llama = rough(next(f for f in FAMILIES if f.name == "llama"))  # six heads, of which three share a key head
    with pytest.raises(ValueError, match=r"3 heads at a time share one key head.*Remove whole groups"):
        remove(llama, [named(llama, "0.1")])
    group = remove(llama, [named(llama, f"0.{head}") for head in (0, 1, 2)])
    assert group.get_submodule("body.stack.layers.0.attention.branch.key").out_features == 2
    with pytest.raises(ValueError, match="left without a head"):
        remove(llama, [one for one in switches(llama) if one.layer == 1])
    with pytest.raises(ValueError, match=r"no head '0.9'; its heads are all.self.0.0, .* to all.self.1.5"):
        named(llama, "0.9")
    t5 = rough(next(f for f in FAMILIES if f.name == "t5"))
    with pytest.raises(ValueError, match=r"'0.1' can be encoder.self.0.1 or decoder.self.0.1 or decoder.across.0.1"):
        named(t5, "0.1")
    assert named(t5, "across.0.1").kind == "across"


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([1], "a table of attentions"),
        ({"stack.layers.0.attention.branch": "01"}, "a list of heads"),
        ({"stack.layers.0.attention.branch": [0, 3]}, "has 3 heads"),
        ({"stack.layers.0.attention.branch": [-1]}, "has 3 heads"),
        ({"stack.layers.0.attention.branch": [1, 0]}, "numbered from 0 and upwards"),
        ({"stack.layers.0.attention.branch": []}, "without a head"),
        ({"stack.layers.0.attention.branch": [True]}, "a list of heads"),
        ({"stack.layers.7.attention.branch": [0]}, "no attention"),
        ({"stack.layers.0.feedforward.branch": [0]}, "no heads with projections"),
    ],
)
def test_a_config_that_lies_about_its_heads_is_refused(tmp_path, kept, said):
    model = rough(next(f for f in FAMILIES if f.name == "bert"))
    remove(model, [named(model, "0.1")]).save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"kept": kept}), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"config\.json.*{said}"):
        load(tmp_path / "m")
