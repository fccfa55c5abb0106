"""Decoders after 2022 from their published directories: greedy texts by cached generation, logits, looks, engine, refusals."""

import json

import pytest
import torch
import transformers
from torch.testing import assert_close

from saccade.attention import watch
from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.engine import fast
from saccade.models import derived_families
from saccade.models.families import gemma3, gpt_neox, qwen
from saccade.models.load import load

VOCAB, END = 80, 79
SIZES = {"vocab_size": VOCAB, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6}
SIZES |= {"intermediate_size": 31, "max_position_embeddings": 64, "eos_token_id": END, "pad_token_id": 0}
SHARED = SIZES | {"num_key_value_heads": 2}
CASES = {
    "mistral": ("MistralForCausalLM", SHARED | {"sliding_window": 4}),
    "qwen2": ("Qwen2ForCausalLM", SHARED),
    "qwen3": ("Qwen3ForCausalLM", SHARED | {"head_dim": 6}),
    "gpt_neox": ("GPTNeoXForCausalLM", SIZES | {"rotary_pct": 0.5}),
    "gpt_neox, in turn": ("GPTNeoXForCausalLM", SIZES | {"rotary_pct": 1.0, "use_parallel_residual": False}),
    "gemma3": (
        "Gemma3ForCausalLM",
        SHARED
        | {"head_dim": 6, "sliding_window": 4, "query_pre_attn_scalar": 5}
        | {"layer_types": ["sliding_attention", "full_attention", "sliding_attention"]},
    ),
}
WINDOWS = {"mistral": (4, 4, 4), "gemma3": (4, None, 4)}


@pytest.fixture(scope="module", params=CASES)
def pair(request, tmp_path_factory):
    """A model of theirs in a directory, and ours from it."""
    name, sizes = CASES[request.param]
    cls, home = getattr(transformers, name), tmp_path_factory.mktemp("models")
    torch.manual_seed(1)
    theirs = cls(cls.config_class(**sizes)).eval()
    for p in theirs.parameters():
        torch.nn.init.normal_(p, std=0.4)
    theirs.save_pretrained(home / "theirs")
    return request.param.split(",")[0], theirs, load(home / "theirs"), home


def prompts():
    made = torch.Generator().manual_seed(3)
    return [torch.randint(1, END, (length,), generator=made).tolist() for length in (9, 3, 6)]


def written_by(theirs, row, new):
    tokens = torch.tensor([row])
    options = {"max_new_tokens": new, "do_sample": False, "use_cache": True, "pad_token_id": 0}
    return theirs.generate(tokens, attention_mask=torch.ones_like(tokens), **options)[0, len(row) :].tolist()


def until_end(row):
    return row[: row.index(END)] if END in row else row


def test_cached_texts_are_those_of_the_package_far_beyond_the_window(pair):
    """Alone there; here together, with padding, by the plain model and by the engine."""
    name, theirs, ours, _ = pair
    assert ours.family.name == name
    wanted = [until_end(written_by(theirs, row, 24)) for row in prompts()]
    for model in (ours, fast(ours, "float32")):
        for left in (True, False):
            rows = generate(model, Batch(Text.pad(prompts(), pad_left=left)), stop_ids=END, max_new_tokens=24)
            assert [until_end(row) for row in rows] == wanted


def test_what_goes_out_has_the_same_logits_there(pair):
    _, theirs, ours, home = pair
    ours.save(home / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(home / "ours").eval()
    assert type(again) is type(theirs)
    tokens = torch.tensor([prompts()[0]])
    with torch.no_grad():
        state, text = ours.start(Batch(Text(tokens)))
        scores, wanted = ours.step(text, state), theirs(tokens).logits
        assert_close(scores, wanted, rtol=1e-4, atol=1e-4)
        assert torch.equal(again(tokens).logits, wanted)


def test_every_layer_and_head_can_be_watched(pair):
    """Each row sums to one, and what is outside a window has no weight at all, also of what the state remembers."""
    name, theirs, ours, _ = pair
    tokens = torch.tensor([prompts()[0]])
    with torch.no_grad(), watch(ours) as looks:
        state, text = ours.start(Batch(Text(tokens[:, :-1])))
        ours.step(text, state)
        ours.step(Text(tokens[:, -1:]), state)
    assert [look.weights.shape for look in looks] == [(1, 6, 8, 8)] * 3 + [(1, 6, 1, 9)] * 3
    theirs.set_attn_implementation("eager")
    wanted = theirs(tokens, output_attentions=True).attentions
    at = torch.arange(9)
    for number, (first, last, there) in enumerate(zip(looks[:3], looks[3:], wanted, strict=True)):
        assert_close(first.weights, there[:, :, :8, :8], rtol=1e-4, atol=1e-5)
        assert_close(last.weights, there[:, :, 8:], rtol=1e-4, atol=1e-5)
        assert_close(last.weights.sum(-1), torch.ones(1, 6, 1))
        window = WINDOWS.get(name, (None,) * 3)[number]
        if window is not None:
            assert not last.weights[..., at <= 8 - window].any()
            assert (last.weights[..., at > 8 - window] > 0).all()


def refused(family, raw, words):
    with pytest.raises(ValueError, match=words):
        family.config_from_hf(raw)


def test_what_is_not_built_is_refused_by_name():
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        refused(gemma3.FAMILY, {key: 30.0}, f"gemma3: {key} = 30.0 is not supported")
    refused(gemma3.FAMILY, {"use_bidirectional_attention": True}, "use_bidirectional_attention = True is not supported")
    mixed = ["full_attention", "sliding_attention", "full_attention"]
    refused(
        gemma3.FAMILY, {"num_hidden_layers": 3, "layer_types": mixed}, "layer_types = .* for 3 layers is not supported"
    )
    refused(gemma3.FAMILY, {"rope_parameters": [1]}, "a table per layer type is needed")
    near = {"sliding_attention": {"rope_type": "linear", "factor": 2.0}}
    refused(gemma3.FAMILY, {"rope_parameters": near}, "'linear' is not supported; supported are default")
    for family in (qwen.QWEN2, qwen.QWEN3):
        refused(family, {"use_sliding_window": True}, f"{family.name}: use_sliding_window = True is not supported")
        refused(
            family,
            {"layer_types": ["sliding_attention"]},
            f"{family.name}: layer_types = .*sliding_attention.* is not supported",
        )
    refused(qwen.QWEN3, {"attention_bias": True}, "attention_bias = True is not supported")
    refused(
        derived_families.MISTRAL, {"rope_scaling": {"rope_type": "yarn"}}, "mistral: rope_type 'yarn' is not supported"
    )
    refused(gpt_neox.FAMILY, {"rope_scaling": {"rope_type": "llama3"}}, "gpt_neox: .* 'llama3' is not supported")
    with pytest.raises(ValueError, match=r"of head width 4 gives 1 rotary columns; an even .*rotary_fraction"):
        gpt_neox.GPTNeoX(gpt_neox.Config(vocab=9, width=12, layers=1, heads=3, ffn_width=9))


def test_older_and_newer_names_of_the_same_settings():
    old = {"rope_theta": 5e5, "rope_local_base_freq": 77.0, "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    new = {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5}}
    new |= {"sliding_attention": {"rope_type": "default", "rope_theta": 77.0}}
    kinds = ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"]
    one = gemma3.FAMILY.config_from_hf(old | {"num_hidden_layers": 4, "sliding_window_pattern": 3})
    assert one == gemma3.FAMILY.config_from_hf({"rope_parameters": new, "num_hidden_layers": 4, "layer_types": kinds})
    assert (one.rope_base, one.local_rope_base, one.rope_factor, one.full_attention_every) == (5e5, 77.0, 8.0, 3)
    assert gemma3.FAMILY.config_to_hf(one)["layer_types"] == kinds
    rope = {"rope_type": "default", "rope_theta": 300.0, "partial_rotary_factor": 0.5}
    pythia = gpt_neox.FAMILY.config_from_hf({"rotary_pct": 0.5, "rotary_emb_base": 300.0})
    assert pythia == gpt_neox.FAMILY.config_from_hf({"rope_parameters": rope})
    assert json.loads(json.dumps(gpt_neox.FAMILY.config_to_hf(pythia)))["rotary_pct"] == 0.5
