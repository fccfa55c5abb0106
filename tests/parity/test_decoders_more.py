"""LLaMA, T5, BART and Marian against the `transformers` package: both stacks, cross-attention, padding, steps, joined requests.

The package computes norms, angles and softmax of some models in single precision whatever the model's own; `exact` lifts
that inside the package, so that the comparison can be in double precision throughout.
"""

import json
import math
import re

import pytest
import torch
import transformers
from safetensors.torch import save_file
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import modeling_rope_utils
from transformers.models.gemma3 import modeling_gemma3
from transformers.models.gpt_neox import modeling_gpt_neox
from transformers.models.llama import modeling_llama
from transformers.models.mistral import modeling_mistral
from transformers.models.qwen2 import modeling_qwen2
from transformers.models.qwen3 import modeling_qwen3
from transformers.models.t5 import modeling_t5

from saccade.data import Batch, Text
from saccade.models import derived_families
from saccade.models.families import bart, gemma3, gpt_neox, llama, marian, qwen, t5
from saccade.models.weight_map import to_theirs
from support.parity import HiddenStates, compare, compare_gradients, convert_model, run_watched

VOCAB, LONGEST = 53, 19
EXACT = [modeling_llama, modeling_mistral, modeling_qwen2, modeling_qwen3, modeling_rope_utils, modeling_t5]
EXACT += [modeling_gpt_neox, modeling_gemma3]


class Double:
    """The torch module, except that single precision is double."""

    float32 = float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


@pytest.fixture
def exact(monkeypatch):
    for module in EXACT:
        monkeypatch.setattr(module, "torch", Double())
    norm = modeling_gemma3.Gemma3RMSNorm
    monkeypatch.setattr(norm, "forward", lambda self, x: self._norm(x) * (1 + self.weight))


SIZES = {"vocab_size": VOCAB, "hidden_size": 12, "intermediate_size": 17, "num_hidden_layers": 2}
SIZES |= {"max_position_embeddings": LONGEST}
GROUPED = SIZES | {"num_attention_heads": 6, "num_key_value_heads": 2}


def decoder(cls, sizes):
    """A function from options to a model of theirs that gives its attention maps."""
    return lambda **options: cls(cls.config_class(**(sizes | options), attn_implementation="eager"))


hf_llama = decoder(transformers.LlamaForCausalLM, SIZES | {"num_attention_heads": 3})
hf_mistral = decoder(transformers.MistralForCausalLM, GROUPED | {"sliding_window": None})
hf_qwen2 = decoder(transformers.Qwen2ForCausalLM, GROUPED)
hf_qwen3 = decoder(transformers.Qwen3ForCausalLM, GROUPED | {"head_dim": 4})
hf_gpt_neox = decoder(transformers.GPTNeoXForCausalLM, SIZES | {"num_attention_heads": 3, "rotary_pct": 0.5})
hf_gemma3 = decoder(transformers.Gemma3ForCausalLM, GROUPED | {"head_dim": 4, "sliding_window": 3})


def hf_t5(**options):
    sizes = {"vocab_size": VOCAB, "d_model": 12, "d_kv": 5, "d_ff": 17, "num_layers": 2, "num_heads": 3}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 11, "decoder_start_token_id": 0}
    config = transformers.T5Config(**(sizes | options), attn_implementation="eager")
    model = transformers.T5ForConditionalGeneration(config)
    if not config.scale_decoder_outputs:  # version 1.1, whose files have an output of their own
        model.lm_head.weight = nn.Parameter(torch.randn_like(model.lm_head.weight))
    return model


def two_stacks(kind, options):
    sizes = {"vocab_size": VOCAB, "d_model": 12, "max_position_embeddings": LONGEST, "init_std": 0.3}
    sizes |= {"pad_token_id": 3, "bos_token_id": 0, "eos_token_id": 2, "forced_eos_token_id": 2}
    sizes |= {f"{side}_layers": 2 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_attention_heads": 3 for side in ("encoder", "decoder")}
    sizes |= {f"{side}_ffn_dim": 17 for side in ("encoder", "decoder")}
    return kind(**(sizes | options), attn_implementation="eager")


def hf_bart(**options):
    return transformers.BartForConditionalGeneration(two_stacks(transformers.BartConfig, options))


def hf_marian(**options):
    usual = {"activation_function": "swish", "scale_embedding": True, "decoder_start_token_id": 3}
    return transformers.MarianMTModel(two_stacks(transformers.MarianConfig, usual | options))


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA3 |= {"original_max_position_embeddings": 8, "rope_theta": 100.0}
NEOX_ROPE = {"rope_type": "linear", "factor": 2.5, "rope_theta": 300.0, "partial_rotary_factor": 0.5}
GEMMA_ROPE = {
    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
DECODERS = [
    (llama.FAMILY, hf_llama, {}),
    (llama.FAMILY, hf_llama, {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "rms_norm_eps": 1e-5}),
    (llama.FAMILY, hf_llama, {"num_key_value_heads": 1, "tie_word_embeddings": True, "num_hidden_layers": 3}),
    (llama.FAMILY, hf_llama, {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 5e5}}),
    (llama.FAMILY, hf_llama, {"head_dim": 10, "rope_parameters": LLAMA3}),
    (derived_families.MISTRAL, hf_mistral, {}),
    (
        derived_families.MISTRAL,
        hf_mistral,
        {"head_dim": 4, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    ),
    (derived_families.MISTRAL, hf_mistral, {"sliding_window": 3}),
    (derived_families.MISTRAL, hf_mistral, {"sliding_window": 1, "head_dim": 4, "tie_word_embeddings": True}),
    (derived_families.MISTRAL, hf_mistral, {"sliding_window": 8, "num_hidden_layers": 3}),
    (qwen.QWEN2, hf_qwen2, {}),
    (qwen.QWEN2, hf_qwen2, {"num_key_value_heads": 6, "tie_word_embeddings": True, "num_hidden_layers": 3}),
    (qwen.QWEN2, hf_qwen2, {"rope_parameters": {"rope_type": "linear", "factor": 2.5, "rope_theta": 1e6}}),
    (qwen.QWEN3, hf_qwen3, {}),
    (qwen.QWEN3, hf_qwen3, {"head_dim": 10, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}),
    (qwen.QWEN3, hf_qwen3, {"num_attention_heads": 3, "num_key_value_heads": 1, "num_hidden_layers": 3}),
    (gpt_neox.FAMILY, hf_gpt_neox, {}),
    (gpt_neox.FAMILY, hf_gpt_neox, {"use_parallel_residual": False, "rotary_pct": 1.0, "hidden_act": "gelu_new"}),
    (gpt_neox.FAMILY, hf_gpt_neox, {"attention_bias": False, "tie_word_embeddings": True, "rotary_emb_base": 100}),
    (gpt_neox.FAMILY, hf_gpt_neox, {"rope_parameters": NEOX_ROPE, "num_hidden_layers": 3, "layer_norm_eps": 1e-4}),
    (gemma3.FAMILY, hf_gemma3, {"layer_types": ["sliding_attention", "full_attention"]}),
    (gemma3.FAMILY, hf_gemma3, {"query_pre_attn_scalar": 7, "num_hidden_layers": 7, "sliding_window": 5}),
    (gemma3.FAMILY, hf_gemma3, {"tie_word_embeddings": False, "layer_types": ["full_attention"] * 2}),
    (gemma3.FAMILY, hf_gemma3, {"rope_parameters": GEMMA_ROPE, "num_hidden_layers": 3, "sliding_window_pattern": 2}),
]
PAIRS = [
    (t5.FAMILY, hf_t5, {}),
    (t5.FAMILY, hf_t5, {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "num_decoder_layers": 3}),
    (t5.FAMILY, hf_t5, {"num_heads": 4, "d_kv": 3, "feed_forward_proj": "gated-silu", "layer_norm_epsilon": 1e-5}),
    (bart.FAMILY, hf_bart, {}),
    (bart.FAMILY, hf_bart, {"decoder_attention_heads": 1, "scale_embedding": True, "decoder_layers": 3}),
    (bart.FAMILY, hf_bart, {"encoder_attention_heads": 4, "decoder_ffn_dim": 13, "activation_function": "relu"}),
    (marian.FAMILY, hf_marian, {}),
    (marian.FAMILY, hf_marian, {"share_encoder_decoder_embeddings": False, "decoder_vocab_size": 59}),
    (marian.FAMILY, hf_marian, {"encoder_attention_heads": 1, "scale_embedding": False, "activation_function": "relu"}),
]


def named(cases):
    return [f"{family.name}-{number}" for number, (family, *_) in enumerate(cases)]


decoders = pytest.mark.parametrize(("family", "make", "options"), DECODERS, ids=named(DECODERS))
pairs = pytest.mark.parametrize(("family", "make", "options"), PAIRS, ids=named(PAIRS))


def waves(length, width):
    """Marian's table as the formula has it: sines of all frequencies, then their cosines."""
    angle = [[at / 10_000 ** (2 * i / width) for i in range(width // 2)] for at in range(length)]
    rows = [[math.sin(a) for a in row] + [math.cos(a) for a in row] for row in angle]
    return torch.tensor(rows, dtype=torch.float64)


def built(make, options):
    """A model of the package with weights large enough to matter, and its random state the same for each test."""
    torch.manual_seed(1)
    theirs = make(**options).double().eval()
    for name, p in theirs.named_parameters():
        if p.requires_grad:
            nn.init.normal_(p, std=0.3)
        else:
            assert "embed_positions" in name
            torch.testing.assert_close(p.data, waves(*p.shape), rtol=1e-6, atol=1e-6)
            p.data = waves(*p.shape)
    for part in theirs.modules():
        if hasattr(part, "embed_scale") and isinstance(part.embed_scale, torch.Tensor):  # which was rounded
            part.embed_scale.fill_(math.sqrt(part.embedding_dim))
    if hasattr(theirs, "final_logits_bias"):
        nn.init.normal_(theirs.final_logits_bias)
    return theirs


def draw(rows, length, seed=2):
    return torch.randint(4, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def kept(length, side):
    """Three rows of which two have padding."""
    at = torch.arange(length)
    if side == "right":
        return torch.stack([at >= 0, at < length - 2, at < 2])
    return torch.stack([at >= 0, at > 1, at >= length - 2])


def gold_loss(scores, gold):
    return cross_entropy(scores.flatten(0, 1), gold.flatten())


def backward(family, ours, theirs, losses):
    for model, loss in zip((ours, theirs), losses, strict=True):
        model.zero_grad()
        loss.backward()
    compare_gradients(ours, theirs, family, family.config_from_hf(theirs.config.to_dict()))


class States:
    """What enters a stack's first layer and what each layer gives, the last one as the stack gives it."""

    def __init__(self, stack):
        self.stack, self.layers = stack, HiddenStates(stack)
        self.first = []

    def __enter__(self):
        self.hook = self.stack.enter.register_forward_hook(lambda m, a, out: self.first.append(out))
        self.states = self.layers.__enter__()
        return self

    def __exit__(self, *error):
        self.hook.remove()
        self.layers.__exit__(*error)

    def all(self):
        return [*self.first, *self.states[:-1], self.stack.leave(self.states[-1])]


def compare_all(ours, theirs, real):
    for one, other in zip(ours, theirs, strict=True):
        compare(one, other, real=real)


def compare_maps(ours, theirs, real):
    """(B, H, Q, K), the rows of real queries."""
    for one, other in zip(ours, theirs, strict=True):
        compare(one.transpose(1, 2), other.transpose(1, 2), real=real)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("length", [1, 2, 7, LONGEST])
@decoders
def test_decoder(family, make, options, length):
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    tokens = draw(3, length)
    with States(ours.stack) as seen:
        state, text = ours.start(Batch(Text(tokens)))
        scores, maps = run_watched(ours, lambda: ours.step(text, state))
    wanted = theirs(input_ids=tokens, labels=tokens, output_hidden_states=True, output_attentions=True)
    compare_all(seen.all(), wanted.hidden_states, None)
    compare_maps(maps, wanted.attentions, None)
    compare(scores, wanted.logits)
    if length > 1:
        losses = [gold_loss(x[:, :-1], tokens[:, 1:]) for x in (scores, wanted.logits)]
        compare(losses[0], losses[1])
        compare(losses[0].float(), wanted.loss.float(), rtol=1e-5)  # the package's own is in single precision
        backward(family, ours, theirs, losses)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("side", ["right", "left"])
@decoders
def test_padded_prompts_and_steps(family, make, options, side):
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    tokens, keep = draw(3, 11), kept(7, side)
    state, _ = ours.start(Batch(Text(tokens[:, :7], keep)))
    scores = ours.step(Text(tokens[:, :7], keep), state)
    rows = [tokens[i, :7][keep[i]] for i in range(3)]
    for i, row in enumerate(rows):
        compare(scores[i, keep[i]], theirs(input_ids=row[None]).logits[0])
    for t in range(7, 11):
        scores = ours.step(Text(tokens[:, t : t + 1]), state)
        rows = [torch.cat([row, tokens[i, t : t + 1]]) for i, row in enumerate(rows)]
        for i, row in enumerate(rows):
            compare(scores[i, -1], theirs(input_ids=row[None]).logits[0, -1])


@pytest.mark.usefixtures("exact")
@decoders
def test_decoder_joins_and_leaves(family, make, options):
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    tokens = draw(2, 12)
    rows, states = [tokens[0, :6], tokens[1, :2]], []
    for row in rows:
        state, text = ours.start(Batch(Text(row[None])))
        ours.step(text, state)
        states.append(state)
    state = states[0]
    state.append_rows(states[1])
    go_on(lambda row: theirs(input_ids=row[None]).logits[0, -1], ours, state, rows, tokens, 6)


def go_on(oracle, ours, state, rows, tokens, at):
    """Two requests in one state, a token each; then in the other order; then the second alone."""
    for t in range(at, at + 2):
        rows = [torch.cat([row, tokens[i, t : t + 1]]) for i, row in enumerate(rows)]
        scores = ours.step(Text(tokens[:, t : t + 1]), state)
        for i, row in enumerate(rows):
            compare(scores[i, -1], oracle(row))
    state.reorder(torch.tensor([1, 0]))
    rows = [torch.cat([row, tokens[i, at : at + 1]]) for i, row in enumerate(reversed(rows))]
    scores = ours.step(Text(tokens[:, at : at + 1]), state)
    for i, row in enumerate(rows):
        compare(scores[i, -1], oracle(row))
    state.drop_rows(torch.tensor([1]))
    scores = ours.step(Text(tokens[:1, :1]), state)
    compare(scores[0, -1], oracle(torch.cat([rows[0], tokens[0, :1]])))


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(("length", "target_length"), [(1, 7), (2, 1), (7, 2), (LONGEST, LONGEST), (7, 5)])
@pairs
def test_encoder_and_decoder(family, make, options, length, target_length, padded):
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    tokens, target, gold = draw(3, length), draw(3, target_length, seed=3), draw(3, target_length, seed=4)
    keep = kept(length, "right") if padded and length > 2 else None
    target_keep = kept(target_length, "right") if padded and target_length > 2 else None
    masks = {} if keep is None else {"attention_mask": keep.long()}
    if target_keep is not None:
        gold = gold.masked_fill(~target_keep, -100)
        masks["decoder_attention_mask"] = target_keep.long()
    wanted = theirs(
        input_ids=tokens,
        decoder_input_ids=target,
        labels=gold,
        output_hidden_states=True,
        output_attentions=True,
        **masks,
    )

    def run():
        state, begin = ours.start(Batch(Text(tokens, keep)))
        assert begin.tokens.tolist() == [[theirs.config.decoder_start_token_id]] * 3
        return ours.step(Text(target, target_keep), state)

    with States(ours.encoder) as read, States(ours.decoder) as written:
        scores, maps = run_watched(ours, run)
    compare_all(read.all(), wanted.encoder_hidden_states, keep)
    compare_all(written.all(), wanted.decoder_hidden_states, target_keep)
    layers = len(ours.encoder.layers)
    compare_maps(maps[:layers], wanted.encoder_attentions, keep)
    compare_maps(maps[layers::2], wanted.decoder_attentions, target_keep)
    compare_maps(maps[layers + 1 :: 2], wanted.cross_attentions, target_keep)
    compare(scores, wanted.logits, real=target_keep)
    losses = [gold_loss(x, gold) for x in (scores, wanted.logits)]
    compare(losses[0], losses[1])
    compare(losses[0].float(), wanted.loss.float(), rtol=1e-5)
    backward(family, ours, theirs, losses)


@pytest.mark.usefixtures("exact")
@pytest.mark.parametrize("side", ["right", "left"])
@pairs
def test_padded_source_is_the_source_alone(family, make, options, side):
    """The package counts padding on the left as positions, so each row is compared with its answer alone."""
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    tokens, target, keep = draw(3, 7), draw(3, 5, seed=3), kept(7, side)
    state, _ = ours.start(Batch(Text(tokens, keep)))
    memory = state.get("memory")
    scores, maps = run_watched(ours.decoder, lambda: ours.step(Text(target), state))
    for i in range(3):
        alone = theirs(
            input_ids=tokens[i : i + 1, keep[i]], decoder_input_ids=target[i : i + 1], output_attentions=True
        )
        compare(memory[i, keep[i]], alone.encoder_last_hidden_state[0])
        compare(scores[i], alone.logits[0])
        for across, wanted in zip(maps[1::2], alone.cross_attentions, strict=True):
            compare(across[i][..., keep[i]], wanted[0])
            assert not across[i][..., ~keep[i]].any()
    for cuts in ([1] * 5, [2, 3], [1, 4]):  # one token at a time, and in pieces
        state, _ = ours.start(Batch(Text(tokens, keep)))
        pieces = [ours.step(Text(piece), state) for piece in target.split(cuts, dim=1)]
        compare(torch.cat(pieces, dim=1), scores)


@pytest.mark.usefixtures("exact")
@pairs
def test_requests_join_midway_and_leave(family, make, options):
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    # the shorter text has the longer source, as long as the texts when one leaves: neither may be taken for the other
    sources, tokens = [draw(1, 4), draw(1, 7, seed=5)], draw(2, 12, seed=3)
    rows, states = [tokens[0, :4], tokens[1, :1]], []
    for source, row in zip(sources, rows, strict=True):
        state, _ = ours.start(Batch(Text(source)))
        ours.step(Text(row[None]), state)
        states.append(state)
    state = states[0]
    state.append_rows(states[1])
    source_of = {int(row[0]): source for source, row in zip(sources, rows, strict=True)}
    assert len(source_of) == 2

    def oracle(row):
        return theirs(input_ids=source_of[int(row[0])], decoder_input_ids=row[None]).logits[0, -1]

    go_on(oracle, ours, state, rows, tokens, 4)


@pytest.mark.parametrize(("family", "make", "options"), DECODERS + PAIRS, ids=named(DECODERS + PAIRS))
def test_single_precision(family, make, options):
    """Ours in float32 against the package as it is, in float32."""
    theirs = built(make, options)
    ours, theirs = convert_model(family, theirs).float(), theirs.float()
    tokens, target = draw(3, 7), draw(3, 5, seed=3)
    state, text = ours.start(Batch(Text(tokens)))
    if (family, make, options) in DECODERS:
        compare(ours.step(text, state), theirs(input_ids=tokens).logits, rtol=1e-4)
    else:
        wanted = theirs(input_ids=tokens, decoder_input_ids=target).logits
        compare(ours.step(Text(target), state), wanted, rtol=1e-4)


@pytest.mark.parametrize(("family", "make", "options"), DECODERS + PAIRS, ids=named(DECODERS + PAIRS))
def test_goes_out_as_it_came_in(family, make, options, tmp_path):
    """Config and weights written in published form: the package loads them with nothing missing and nothing unexpected."""
    theirs = built(make, options)
    ours = convert_model(family, theirs)
    config = family.config_from_hf(theirs.config.to_dict())
    assert family.config_from_hf(family.config_to_hf(config)) == config
    published = to_theirs(dict(ours.named_parameters()) | dict(ours.named_buffers()), family.weight_map(config))
    full = {
        name if any(re.fullmatch(p, name) for p in family.unprefixed) else family.prefix + name: tensor.detach()
        for name, tensor in published.items()
    }
    save_file(full, tmp_path / "model.safetensors", {"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(family.config_to_hf(config)))
    again, report = type(theirs).from_pretrained(tmp_path, output_loading_info=True, dtype=torch.float64)
    assert not any(report.values()), report
    assert family.config_from_hf(again.config.to_dict()) == config
    for name, tensor in theirs.state_dict().items():
        compare(again.state_dict()[name], tensor, rtol=1e-6 if "embed_positions" in name else 0.0)


def test_unknown_rotary_kinds_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'yarn' is not supported; supported are default, linear, llama3"):
        llama.FAMILY.config_from_hf({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}})
    with pytest.raises(ValueError, match=r"'llama3' needs low_freq_factor = 1.0"):
        llama.FAMILY.config_from_hf({"rope_parameters": LLAMA3 | {"low_freq_factor": 2.0}})
    with pytest.raises(ValueError, match="partial rotary positions"):
        llama.FAMILY.config_from_hf({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})
    for factor in ({}, {"factor": "2"}, {"factor": 0.0}, {"factor": float("nan")}):
        with pytest.raises(ValueError, match=r"'linear' needs factor = a number"):
            llama.FAMILY.config_from_hf({"rope_scaling": {"rope_type": "linear"} | factor})
    with pytest.raises(ValueError, match="a table with `rope_type` is needed"):
        llama.FAMILY.config_from_hf({"rope_scaling": "linear"})
    old = llama.FAMILY.config_from_hf({"rope_theta": 7.0, "rope_scaling": {"type": "linear", "factor": 3.0}})
    assert (old.rope_base, old.rope_factor, old.original_max_positions) == (7.0, 3.0, None)
    assert llama.FAMILY.config_from_hf({"rope_theta": 7.0, "rope_scaling": None}).rope_factor == 1.0
    for key in ("attention_bias", "mlp_bias"):
        with pytest.raises(ValueError, match=key):
            llama.FAMILY.config_from_hf({key: True})
