"""What `look` keeps for every line of `FAMILIES`: names for all, rows that sum to one, no padding, the answer untouched."""

import pytest
import torch
from test_families import TEXTS, answer, example, names, numbers, rough
from torch.testing import assert_close

import saccade
from saccade.attention import Mechanism, watch
from saccade.attention.watch import Downsample, TopK
from saccade.data import Batch, Text
from saccade.explain.ablate import ablate_heads, list_heads
from saccade.explain.maps import AttentionMaps
from saccade.models.registry import FAMILIES

UNEVEN = ("linformer",)  # mixes all keys first, so that what a token gets of each can be less than nothing


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_every_look_has_names_and_whole_rows(family):
    looks = saccade.look(rough(family), example(family))
    assert looks.model == family.name
    assert len(looks)
    for seen in looks:
        assert seen.weights.shape == (len(seen.heads), len(seen.query_names), len(seen.key_names)), seen.title
        assert all(seen.query_names), seen.title
        assert all(seen.key_names), seen.title
        assert seen.weights.isfinite().all()
        if seen.kind in ("self", "cross", "image") and family.name not in UNEVEN:
            assert seen.sums_to_one, seen.title
            assert_close(seen.weights.sum(-1), torch.ones(seen.weights.shape[:2]), rtol=0, atol=1e-4)
        elif seen.kind in ("gate", "channel"):
            assert not seen.sums_to_one
            assert ((seen.weights >= 0) & (seen.weights <= 1)).all()


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_what_is_shown_is_what_was_computed(family):
    """The maps are those of `watch` over one pass of the first row alone, module by module; the answer stays bit for bit."""
    model, batch = rough(family), example(family)
    with torch.no_grad():
        plain = answer(model, batch)
    looks = saccade.look(model, batch)
    with torch.no_grad(), watch(model) as seen:
        again = answer(model, batch)
    assert torch.equal(plain, again)
    assert all(module.watcher is None for module in model.modules() if hasattr(module, "watcher"))
    for one in looks:
        if one.name.endswith("near.mechanism"):
            continue  # two looks in one, which has a test of its own
        parts = [look.weights[0] for look in seen if look.name == one.name]
        if one.kind == "channel":
            assert_close(one.weights[0, 0], parts[0], rtol=1e-4, atol=1e-5)
            continue
        whole = torch.cat(
            [part.flatten(3) if part.dim() > 3 else part for part in parts], 0 if one.kind == "gate" else 1
        )
        whole = whole.transpose(0, 1) if one.kind == "gate" else whole.flatten(2)
        rows = min(whole.size(1), one.weights.size(1))  # of a text that goes on, the last token is read as well
        columns = min(whole.size(2), one.weights.size(2))
        assert_close(one.weights[:, :rows, :columns], whole[:, :rows, :columns], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left", [True, False], ids=["left", "right"])
@pytest.mark.parametrize("family", TEXTS, ids=names)
def test_padding_never_shows(family, left):
    model, batch = rough(family), example(family)
    short, long = numbers(4, seed=5).tolist(), numbers(7).tolist()
    padded = Batch(Text.pad([short, long], pad_left=left), batch.target)
    alone = Batch(Text(torch.tensor([short])), Text(batch.target.tokens[:1]))
    for one, other in zip(saccade.look(model, padded), saccade.look(model, alone), strict=True):
        assert (one.query_names, one.key_names) == (other.query_names, other.key_names)
        assert torch.equal(one.weights, other.weights)


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_looks_come_back_from_a_file(family, tmp_path):
    looks = saccade.look(rough(family), example(family))
    again = AttentionMaps.load(looks.save(tmp_path / "looks.safetensors"))
    assert (again.model, again.texts, again.answer) == (looks.model, looks.texts, looks.answer)
    for one, other in zip(again, looks, strict=True):
        assert (one.name, one.kind, one.layer, one.heads, one.gates) == (
            other.name,
            other.kind,
            other.layer,
            other.heads,
            other.gates,
        )
        assert (one.query, one.key) == (other.query, other.key)
        assert_close(one.weights, other.weights, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", TEXTS, ids=names)
def test_rows_layers_and_the_largest_weights_can_be_chosen(family):
    model, batch = rough(family), example(family)
    whole = {one.name: one for one in saccade.look(model, batch)}
    for one in saccade.look(model, batch, layers=[-1], queries=[1, 4]):
        assert one.query_names == [whole[one.name].query_names[i] for i in (1, 4)]
        assert_close(one.weights, whole[one.name].weights[:, [1, 4]], rtol=1e-4, atol=1e-6)
    for one in saccade.look(model, batch, reduce=TopK(2)):
        if one.key_index is not None:
            best = whole[one.name].weights.topk(2).values
            assert_close(one.weights, best, rtol=1e-4, atol=1e-6)
            assert_close(one.to_dense().amax(-1), best[..., 0].clamp(min=0), rtol=1e-4, atol=1e-6)
    for one in saccade.look(model, batch, reduce=Downsample(3)):
        if one.kind in ("self", "cross"):
            assert one.weights.size(2) <= 3
            assert one.weights.size(1) <= 3 or family.name == "rnn"  # which asks row by row
            assert (len(one.query_names), len(one.key_names)) == tuple(one.weights.shape[1:])


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_every_head_and_layer_can_be_switched_off(family):
    """Each switch changes the answer while it is off and nothing afterwards; all heads off is the layer off."""
    model, batch = rough(family), example(family)
    with torch.no_grad():
        plain = answer(model, batch)
        heads, layers = list_heads(model), list_heads(model, whole_layers=True)
        assert heads
        assert layers
        for switch in [*heads, *layers]:
            with ablate_heads(model, [switch]):
                assert not torch.equal(answer(model, batch), plain), switch
        assert torch.equal(answer(model, batch), plain)
        for layer in layers:
            own = [head for head in heads if head.module_names == layer.module_names]
            with ablate_heads(model, own):
                one = answer(model, batch)
            with ablate_heads(model, [layer]):
                assert_close(one, answer(model, batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", [f for f in TEXTS if f.name in ("bert", "gpt2", "t5", "longformer")], ids=names)
def test_layers_that_nobody_looks_at_do_not_change_those_that_are(family):
    model, batch = rough(family), example(family)
    whole = saccade.look(model, batch)
    ran: list[str] = []
    placed = [
        layer.register_forward_hook(lambda *_: ran.append(""))
        for n, layer in model.named_modules()
        if n.endswith("layers.1")
    ]
    for one in saccade.look(model, batch, layers=[0]):
        same = next(m for m in whole if (m.name, m.side) == (one.name, one.side))
        assert torch.equal(one.weights, same.weights)
    assert ("" in ran) == (family.name != "bert")  # of a reader without a task the pass ends where the look does
    for hook in placed:
        hook.remove()
    with torch.no_grad():
        assert answer(model, batch).isfinite().all()


@pytest.mark.parametrize("family", FAMILIES, ids=names)
def test_value_norms_are_those_of_the_values_that_each_mechanism_was_given(family):
    """Caught on their way in, by a hook; maps that have none say why, and gates and channels never have any."""
    model, batch = rough(family), example(family)
    caught: dict[str, torch.Tensor] = {}

    def keep(name):
        return lambda _, given: caught.__setitem__(name, given[2].detach())

    mechanisms = [(name, part) for name, part in model.named_modules() if isinstance(part, Mechanism)]
    placed = [part.register_forward_pre_hook(keep(name)) for name, part in mechanisms]
    looks = saccade.look(model, batch)
    for handle in placed:
        handle.remove()
    for seen in looks:
        if seen.value_norms is None:
            assert seen.kind in ("gate", "channel") or seen.name.endswith("near.mechanism"), seen.name
            with pytest.raises(ValueError, match="has no value norms"):
                seen.weight_by_value_norm()
            continue
        values = caught[seen.name][0].flatten(1, -2)  # (H, K, D)
        wanted = values.pow(2).sum(-1).sqrt().repeat_interleave(len(seen.heads) // len(values), dim=0)
        assert_close(seen.value_norms, wanted)
        assert_close(seen.weight_by_value_norm().weights, seen.weights * wanted[:, None])
