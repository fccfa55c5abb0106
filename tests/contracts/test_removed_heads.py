"""What every line of `FAMILIES` keeps when heads are removed: the answers that it gives with them switched off, and its files."""

import json

import pytest
import torch
from test_families import TINY, answer, example, names, reads, rough
from torch.testing import assert_close

from saccade.engine import fast
from saccade.explain.ablate import ablate_heads, list_heads, parse_head, prune_heads, zero_heads
from saccade.models.build import new
from saccade.models.capabilities import Modality
from saccade.models.io.safetensors_header import read_header
from saccade.models.load import load
from saccade.models.prune_heads import unprune
from saccade.models.registry import FAMILIES
from saccade.parts.multihead_attention import Attention

HEADLESS = ("rnn", "rnn_lm", "rnn_encoder", "senet", "captioner_rnn", "listen_attend_spell", "kernel_regression")
DRAWN = ("bigbird",)  # blocks for each head
CUT = [family for family in FAMILIES if family.name not in (*HEADLESS, *DRAWN)]
PUBLISHED = [family for family in CUT if family.weight_map is not None]


def some(model):
    """The second head of each even layer, and in grouped attention the second of each group."""
    groups = 3 if model.family.name in ("llama", "mistral", "qwen2", "qwen3", "gemma3") else 99
    return [one for one in list_heads(model) if one.layer % 2 == 0 and one.head is not None and one.head % groups == 1]


@pytest.mark.parametrize("family", CUT, ids=names)
def test_removed_is_switched_off(family):
    model, batch = rough(family), example(family)
    off = some(model)
    smaller = prune_heads(model, off)
    with torch.no_grad(), ablate_heads(model, off):
        wanted = answer(model, batch)
    with torch.no_grad():
        assert_close(answer(smaller, batch), wanted, rtol=0, atol=1e-5)
    assert sum(p.numel() for p in smaller.parameters()) < sum(p.numel() for p in model.parameters())
    assert len(list_heads(smaller)) == len(list_heads(model)) - len(off)
    with torch.no_grad():
        assert_close(answer(zero_heads(model, off), batch), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", CUT, ids=names)
def test_a_smaller_model_is_a_smaller_file_and_comes_back(family, tmp_path):
    model, batch = rough(family), example(family)
    smaller = prune_heads(model, some(model))
    model.save(tmp_path / "all")
    smaller.save(tmp_path / "fewer")
    files = [read_header(tmp_path / name / "model.safetensors") for name in ("all", "fewer")]
    before, after = (max(one.end for one in file.values()) for file in files)
    removed = [p.numel() - smaller.get_parameter(n).numel() for n, p in model.named_parameters()]
    assert before - after >= 4 * sum(removed) > 0  # and what the published class has beside it
    again = load(tmp_path / "fewer")
    assert again.kept_heads == smaller.kept_heads
    assert {n: p.shape for n, p in again.named_parameters()} == {n: p.shape for n, p in smaller.named_parameters()}
    with torch.no_grad():
        assert_close(answer(again, batch), answer(smaller, batch), rtol=0, atol=1e-6)
    told = json.loads((tmp_path / "fewer" / "config.json").read_text(encoding="utf-8"))
    assert all(1 not in heads and 0 in heads for heads in told["kept_heads"].values())


@pytest.mark.parametrize("family", PUBLISHED, ids=names)
def test_made_whole_it_has_the_published_shape_and_the_same_answers(family, tmp_path):
    model, batch = rough(family), example(family)
    off = some(model)
    smaller = prune_heads(model, off)
    full = unprune(smaller)
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
    smaller = prune_heads(model, some(model)).train()
    answer(smaller, batch).square().mean().backward()
    for part in smaller.modules():
        if isinstance(part, Attention) and part.kept_heads is not None:
            assert part.value.weight.grad is not None
            assert part.value.weight.grad.abs().sum() > 0


@pytest.mark.parametrize("family", [f for f in CUT if reads(f) is not Modality.IMAGE], ids=names)
def test_the_engine_takes_it(family):
    model, batch = rough(family), example(family)
    smaller = prune_heads(model, some(model))
    with torch.no_grad():
        assert_close(answer(fast(smaller, "float32"), batch), answer(smaller, batch), rtol=0, atol=1e-4)


def test_heads_are_removed_one_after_the_other():
    family = next(f for f in FAMILIES if f.name == "gpt2")
    model, batch = rough(family), example(family)
    once = prune_heads(model, [parse_head(model, "0.0"), parse_head(model, "0.2")])
    twice = prune_heads(
        prune_heads(model, [parse_head(model, "0.0")]), [parse_head(model, "0.1")]
    )  # what was head 2 is head 1 now
    assert once.kept_heads == twice.kept_heads == {"stack.layers.0.attention.branch": (1,)}
    assert_close(answer(twice, batch), answer(once, batch))


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in DRAWN], ids=names)
def test_what_is_drawn_for_each_head_is_refused_by_name(family):
    model = rough(family)
    with pytest.raises(ValueError, match=r"samples random blocks for all of its 3 heads.*ablate"):
        prune_heads(model, list_heads(model)[:1])


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in HEADLESS], ids=names)
def test_what_has_no_heads_is_refused_by_name(family):
    model = new(family, TINY[family.name])
    with pytest.raises(ValueError, match=r"no attention|no separate projections"):
        prune_heads(model, list_heads(model)[:1])


def test_what_cannot_be_left_is_said():
    llama = rough(next(f for f in FAMILIES if f.name == "llama"))  # six heads, of which three share a key head
    with pytest.raises(ValueError, match=r"every 3 heads share a key-value head.*Remove whole groups"):
        prune_heads(llama, [parse_head(llama, "0.1")])
    group = prune_heads(llama, [parse_head(llama, f"0.{head}") for head in (0, 1, 2)])
    assert group.get_submodule("body.stack.layers.0.attention.branch.key").out_features == 2
    with pytest.raises(ValueError, match="no heads left"):
        prune_heads(llama, [one for one in list_heads(llama) if one.layer == 1])
    with pytest.raises(ValueError, match=r"no head '0.9'; its heads are all.self.0.0, .* to all.self.1.5"):
        parse_head(llama, "0.9")
    t5 = rough(next(f for f in FAMILIES if f.name == "t5"))
    with pytest.raises(
        ValueError, match=r"'0.1' is ambiguous; use encoder.self.0.1 or decoder.self.0.1 or decoder.cross.0.1"
    ):
        parse_head(t5, "0.1")
    assert parse_head(t5, "cross.0.1").kind == "cross"


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ([1], "a table of attentions"),
        ({"stack.layers.0.attention.branch": "01"}, "a list of head indices"),
        ({"stack.layers.0.attention.branch": [0, 3]}, "has 3 heads"),
        ({"stack.layers.0.attention.branch": [-1]}, "has 3 heads"),
        ({"stack.layers.0.attention.branch": [1, 0]}, "numbered from 0 in ascending order"),
        ({"stack.layers.0.attention.branch": []}, "no heads left"),
        ({"stack.layers.0.attention.branch": [True]}, "a list of head indices"),
        ({"stack.layers.7.attention.branch": [0]}, "no attention"),
        ({"stack.layers.0.feedforward.branch": [0]}, "no separate projections"),
    ],
)
def test_a_config_that_lies_about_its_heads_is_refused(tmp_path, kept, said):
    model = rough(next(f for f in FAMILIES if f.name == "bert"))
    prune_heads(model, [parse_head(model, "0.1")]).save(tmp_path / "m")
    path = tmp_path / "m" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | {"kept_heads": kept}), encoding="utf-8")
    with pytest.raises(ValueError, match=rf"config\.json.*{said}"):
        load(tmp_path / "m")
