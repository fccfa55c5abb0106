"""`saccade.watch` on models of `transformers`: the weights of their eager attention, with fused kernels on."""

import gc
import subprocess
import sys
from contextlib import ExitStack

import pytest
import torch
import transformers as hf
from torch import nn
from torch.testing import assert_close
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import saccade
from saccade.attention import FULL, KeepAll, RowCallback, ScaledDot, Sight, TopK, watchable_modules
from saccade.attention.hf import modules as hf_modules
from saccade.attention.hf.modules import list_attention_modules
from saccade.attention.hf.weights import InterfaceCall
from support.hf_models import ARCHITECTURES, GROUPED, VOCAB, WIDTHS, make_inputs, make_model, text

SINGLE_PRECISION_SOFTMAX = {  # their eager attention casts scores to float32, whatever the model has
    "gpt_neox", "opt", "gpt_bigcode", "llama", "mistral", "qwen2", "qwen3", "gemma3", "phi3", "modernbert", "vit", "clip",
}  # fmt: skip
DEBERTA = hf.DebertaV2Config(vocab_size=VOCAB, **WIDTHS)
BLOOM = hf.BloomConfig(vocab_size=VOCAB, hidden_size=24, n_layer=2, n_head=4)
XLNET = hf.XLNetConfig(vocab_size=VOCAB, d_model=24, n_layer=2, n_head=4, d_inner=20)
MAMBA = hf.MambaConfig(vocab_size=VOCAB, hidden_size=16, num_hidden_layers=1)


@pytest.fixture(autouse=True)
def _interface_is_left_as_it_was():
    before = {**ALL_ATTENTION_FUNCTIONS.__dict__, "_local_mapping": dict(ALL_ATTENTION_FUNCTIONS._local_mapping)}
    functions = dict(ALL_ATTENTION_FUNCTIONS)
    yield
    assert ALL_ATTENTION_FUNCTIONS.__dict__ == before
    assert dict(ALL_ATTENTION_FUNCTIONS) == functions


def run(model, inputs, **options):
    with torch.no_grad():
        return model(**inputs, **options)


def tensors(output):
    """Every tensor of an output, in order."""
    if isinstance(output, torch.Tensor):
        return [output]
    parts = output.values() if hasattr(output, "values") else output if isinstance(output, (tuple, list)) else ()
    return [tensor for part in parts for tensor in tensors(part)]


def eager_attentions(output):
    """The maps that a model returns, by side and kind."""
    if "text_model_output" in output:
        both = {"text_encoder": output.text_model_output, "vision_encoder": output.vision_model_output}
        return {(side, "self"): one.attentions for side, one in both.items()}
    names = {
        "encoder_attentions": ("encoder", "self"),
        "decoder_attentions": ("decoder", "self"),
        "cross_attentions": ("decoder", "cross"),
    }
    found = {place: output[name] for name, place in names.items() if output.get(name)}
    return found or {("", "self"): output.attentions}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_are_those_of_eager_attention_and_the_output_is_untouched(architecture, dtype):
    model, inputs = make_model(architecture, dtype), make_inputs(architecture, dtype)
    assert model.config._attn_implementation == "sdpa"
    plain = run(model, inputs)
    with saccade.watch(model) as looks:
        watched = run(model, inputs)
    assert all(torch.equal(a, b) for a, b in zip(tensors(plain), tensors(watched), strict=True))

    model.set_attn_implementation("eager")
    wanted = eager_attentions(run(model, inputs, output_attentions=True))
    tolerance = 1e-6 if dtype == torch.float32 or architecture in SINGLE_PRECISION_SOFTMAX else 1e-12
    compared = 0
    for (side, kind), maps in wanted.items():
        seen = [look for look in looks if look.name.startswith(side) and look.name.endswith(kind)]
        assert len(seen) == len(maps)
        for layer, (look, weights) in enumerate(zip(seen, maps, strict=True)):
            assert look.axes == ("batch", "head", "query", "key")
            assert look.shape == weights.shape
            assert architecture == "albert" or look.name.split(".")[-2] == str(layer)
            real = real_rows(inputs, look)
            assert_close(look.weights[real], weights[real], rtol=0, atol=tolerance)
            assert weights[real].std() > 0.01  # far from even, so that a wrong map cannot pass
            compared += 1
    assert compared == len(looks)


def real_rows(inputs, look):
    """Which query rows (B, H, Q) stand for tokens: a padded one may see nothing, and then the two differ."""
    mask = inputs.get("attention_mask")
    own = mask is not None and look.weights.size(2) == mask.size(1) and look.name.endswith("self")
    keep = mask.bool() if own else torch.ones(look.weights.size(0), look.weights.size(2), dtype=torch.bool)
    return keep[:, None].expand(look.weights.shape[:3])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_times_values_are_the_output_of_the_fused_kernel(architecture, monkeypatch):
    model, inputs = make_model(architecture, torch.float64), make_inputs(architecture, torch.float64)
    attended = []
    kernel = nn.functional.scaled_dot_product_attention

    def record(query, key, value, **options):
        out = kernel(query, key, value, **options)
        attended.append((value, out))
        return out

    monkeypatch.setattr(nn.functional, "scaled_dot_product_attention", record)
    with saccade.watch(model) as looks:
        run(model, inputs)
    assert len(looks) == len(attended)
    for look, (value, out) in zip(looks, attended, strict=True):
        value = value.repeat_interleave(look.weights.size(1) // value.size(1), dim=1)
        assert_close(look.weights @ value, out, rtol=1e-12, atol=1e-12)
        assert_close(look.value_norms, value.norm(dim=-1).float())


@pytest.mark.parametrize(
    ("architecture", "sides"),
    [
        ("bert", {"encoder": 3}),
        ("gpt2", {"decoder": 3}),
        ("t5", {"encoder": 2, "decoder": 3}),
        ("whisper", {"encoder": 2, "decoder": 3}),
        ("clip", {"text_encoder": 3, "vision_encoder": 2}),
    ],
)
def test_names_say_side_layer_and_kind(architecture, sides):
    kinds = lambda side: ("self", "cross") if side == "decoder" and "encoder" in sides else ("self",)
    names = [
        f"{side}.{layer}.{kind}" for side, count in sides.items() for layer in range(count) for kind in kinds(side)
    ]
    assert sorted(watchable_modules(make_model(architecture))) == sorted(names)


def test_stages_are_counted_through_and_what_has_no_layer_is_named_by_its_path():
    swin = hf.SwinModel(
        hf.SwinConfig(image_size=16, patch_size=2, embed_dim=8, depths=[2, 1], num_heads=[2, 2], window_size=4)
    )
    assert list(watchable_modules(swin)) == ["encoder.0.self", "encoder.1.self", "encoder.2.self"]
    attention = make_model("bert").encoder.layer[0].attention.self
    assert list(watchable_modules(attention)) == ["encoder.0.self"]


def test_modules_are_chosen_by_name_by_path_and_by_number():
    model, inputs = make_model("bart"), make_inputs("bart")
    for where, names in [
        ("decoder.1.cross", ["decoder.1.cross"]),
        ("*.cross", ["decoder.0.cross", "decoder.1.cross", "decoder.2.cross"]),
        ("model.encoder.layers.1.*", ["encoder.1.self"]),
        (0, ["encoder.0.self"]),
        ([-1, "encoder.0.*"], ["encoder.0.self", "decoder.2.cross"]),
    ]:
        with saccade.watch(model, where) as looks:
            run(model, inputs)
        assert [look.name for look in looks] == names
    with pytest.raises(ValueError, match=r"matches '\*\.crosss'.*decoder\.0\.cross"), saccade.watch(model, "*.crosss"):
        pass


def test_only_chosen_layers_and_rows_are_computed(monkeypatch):
    model, inputs = make_model("llama"), make_inputs("llama")
    with saccade.watch(model) as whole:
        run(model, inputs)
    computed = []
    compute = InterfaceCall.compute_weights

    def record(call, rows):
        computed.append((call.module.layer_idx, rows.tolist()))
        return compute(call, rows)

    monkeypatch.setattr(InterfaceCall, "compute_weights", record)
    with saccade.watch(model, "decoder.1.*", heads=[3, 0], rows=[5, -1]) as looks:
        run(model, inputs)
    assert computed == [(1, [5, 10])]
    assert_close(looks[0].weights, whole[1].weights[:, [3, 0]][:, :, [5, 10]], rtol=0, atol=1e-7)
    assert looks[0].rows.tolist() == [5, 10]
    assert looks[0].value_norms.shape == (2, 2, 11)
    with pytest.raises(ValueError, match="4 heads, numbered from 0"), saccade.watch(model, heads=[4]):
        run(model, inputs)
    with pytest.raises(ValueError, match="11 rows, numbered from 0"), saccade.watch(model, rows=[11]):
        run(model, inputs)


def test_memory_is_bounded_by_chunks_of_rows(monkeypatch):
    """No tensor of all weights is made where only the largest of each row, or nothing, is kept."""
    module = sys.modules["saccade.attention.watch"]
    monkeypatch.setattr(module, "MAX_CHUNK_WEIGHTS", 2 * 4 * 16 * 64)
    model = make_model("llama")
    inputs = {"input_ids": torch.randint(3, VOCAB, (2, 64), generator=torch.Generator().manual_seed(0))}
    largest = 0
    compute = InterfaceCall.compute_weights

    def measure(call, rows):
        nonlocal largest
        weights = compute(call, rows)
        live = [
            one.numel()
            for one in gc.get_objects()
            if type(one) is torch.Tensor and one.dim() == 4 and one.size(-1) == 64
        ]
        largest = max(largest, *live)
        return weights

    monkeypatch.setattr(InterfaceCall, "compute_weights", measure)
    rows_seen = []
    with (
        saccade.watch(
            model, "*.1.*", reduce=RowCallback(lambda rows, weights: rows_seen.extend(rows.tolist()))
        ) as none,
        saccade.watch(model, "*.2.*", reduce=TopK(3)) as top,
    ):
        run(model, inputs)
    assert rows_seen == list(range(64))
    assert none[0].weights is None
    assert top[0].weights.shape == top[0].columns.shape == (2, 4, 64, 3)
    assert top[0].shape == (2, 4, 64, 64)
    assert 0 < largest <= 2 * 4 * 16 * 64
    monkeypatch.setattr(module, "MAX_WEIGHTS_PER_MODULE", 1000)
    with (
        pytest.raises(ValueError, match=r"decoder\.0\.self would need .*reduce=TopK\(32\)"),
        saccade.watch(model, reduce=KeepAll()),
    ):
        run(model, inputs)


def test_the_largest_weights_are_the_largest():
    model, inputs = make_model("qwen3"), make_inputs("qwen3")
    with saccade.watch(model, 0) as whole, saccade.watch(model, 0, reduce=TopK(2)) as top:
        run(model, inputs)
    assert_close(top[0].weights, whole[0].weights.topk(2).values)
    assert_close(whole[0].weights.gather(-1, top[0].columns), top[0].weights)


def test_an_exception_inside_leaves_nothing_behind():
    model, inputs = make_model("gpt2"), make_inputs("gpt2")

    def fail():
        with saccade.watch(model):
            run(model, inputs)
            raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        fail()
    with pytest.raises(ValueError, match="heads"), saccade.watch(model, heads=[9]):
        run(model, inputs)
    assert model.config._attn_implementation == "sdpa"
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    with saccade.watch(model) as looks:
        pass
    run(model, inputs)
    assert looks == []


def test_watchers_leave_in_any_order_and_see_their_own_model_alone():
    first, second, inputs = make_model("llama"), make_model("llama"), make_inputs("llama")
    one, two, other = ExitStack(), ExitStack(), ExitStack()
    a = one.enter_context(saccade.watch(first, 0))
    b = two.enter_context(saccade.watch(first))
    c = other.enter_context(saccade.watch(second, 1))
    run(first, inputs)
    assert (len(a), len(b), len(c)) == (1, 3, 0)
    one.close()
    run(first, inputs)
    assert (len(a), len(b), len(c)) == (1, 6, 0)
    two.close()
    run(second, inputs)
    run(first, inputs)
    assert (len(a), len(b), len(c)) == (1, 6, 1)
    other.close()


def test_a_setting_changed_inside_stays_as_it_was_set():
    model, inputs = make_model("llama"), make_inputs("llama")
    with saccade.watch(model, 0) as looks:
        run(model, inputs)
        model.set_attn_implementation("eager")
        run(model, inputs)
    assert model.config._attn_implementation == "eager"
    assert_close(looks[0].weights, looks[1].weights, rtol=0, atol=1e-6)


def test_a_function_that_somebody_registers_in_the_meantime_stays(monkeypatch):
    def mine(*args, **kwargs):
        return None

    model = make_model("bert")
    with saccade.watch(model):
        ALL_ATTENTION_FUNCTIONS["mine"] = mine
    assert ALL_ATTENTION_FUNCTIONS["mine"] is mine
    kernel = ALL_ATTENTION_FUNCTIONS["sdpa"]
    ALL_ATTENTION_FUNCTIONS["sdpa"] = kernel_of_my_own = lambda *args, **kwargs: kernel(*args, **kwargs)
    with saccade.watch(model):
        pass
    assert ALL_ATTENTION_FUNCTIONS["sdpa"] is kernel_of_my_own
    with (
        pytest.raises(
            saccade.ModelError, match=r"BertSelfAttention .*'sdpa' returns no weights.*set_attn_implementation"
        ),
        saccade.watch(model),
    ):
        run(model, make_inputs("bert"))
    del ALL_ATTENTION_FUNCTIONS["mine"], ALL_ATTENTION_FUNCTIONS["sdpa"]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Gemma2ForCausalLM", lambda: hf.Gemma2Config(**GROUPED, sliding_window=4, query_pre_attn_scalar=6)),
        (
            "GptOssForCausalLM",
            lambda: hf.GptOssConfig(
                **GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1,
                rope_parameters={"rope_type": "default", "rope_theta": 1e4}, eos_token_id=2,
            ),
        ),
    ],
)  # fmt: skip
def test_eager_models_give_their_own_weights_and_flash_attention_gives_the_same(name, config, monkeypatch):
    """Softcap, attention sinks and windows: kernels of flash attention get them as arguments, and none is installed here."""
    torch.manual_seed(0)
    model = getattr(hf, name)(config()).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    inputs = text()
    plain = run(model, inputs)
    with saccade.watch(model) as looks:
        watched = run(model, inputs, output_attentions=True)
    assert torch.equal(plain.logits, watched.logits)
    assert all(torch.equal(look.weights, weights) for look, weights in zip(looks, watched.attentions, strict=True))
    calls = []
    eager = sys.modules[type(model).__module__].eager_attention_forward

    def record(module, query, key, value, attention_mask, **options):
        out = eager(module, query, key, value, attention_mask, **options)
        calls.append((module, query, key, value, options, out[1]))
        return out

    monkeypatch.setattr(sys.modules[type(model).__module__], "eager_attention_forward", record)
    run(model, inputs)
    flash = ALL_ATTENTION_FUNCTIONS["flash_attention_2"]
    for module, query, key, value, options, weights in calls:
        call = InterfaceCall(flash, module, query, key, value, inputs["attention_mask"], options)
        assert options.get("sliding_window") in (4, None)
        found = call.compute_weights(torch.arange(11))
        real = inputs["attention_mask"].bool()[:, None].expand(-1, 4, -1)
        assert_close(found[real], weights[real], rtol=0, atol=1e-6)
        assert found[~real].count_nonzero() == 0
    assert {call[4].get("sliding_window") for call in calls} == {4, None}
    assert any(call[4].get(option) is not None for call in calls for option in ("softcap", "s_aux"))


def test_weights_of_a_model_in_training_are_those_before_dropout():
    model, inputs = make_model("bert"), make_inputs("bert")
    with saccade.watch(model, 0) as wanted:
        run(model, inputs)
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        model.train()
        model.embeddings.eval()
        torch.manual_seed(5)
        plain = model(**inputs).last_hidden_state
        torch.manual_seed(5)
        with saccade.watch(model, 0) as looks:
            watched = model(**inputs).last_hidden_state
        assert torch.equal(plain, watched)
        assert_close(looks[0].weights, wanted[0].weights, rtol=0, atol=1e-6)
        assert not looks[0].weights.requires_grad
        watched.sum().backward()


def test_half_precision_is_watched_in_single():
    model, inputs = make_model("llama").to(torch.bfloat16), make_inputs("llama")
    plain = run(model, inputs).logits
    with saccade.watch(model) as looks:
        assert torch.equal(run(model, inputs).logits, plain)
    assert {look.weights.dtype for look in looks} == {torch.float32}
    assert_close(looks[0].weights.sum(-1), torch.ones(2, 4, 11))


@pytest.mark.parametrize("architecture", ["gpt2", "llama", "gemma3", "bart"])
@pytest.mark.parametrize(
    "options", [{}, {"cache_implementation": "static"}, {"num_beams": 3}], ids=["greedy", "static", "beams"]
)
def test_every_step_of_a_generation_is_a_look(architecture, options):
    """With a KV cache: the rows of all steps together are those of one pass over the whole text."""
    model = make_model(architecture)
    ids = make_inputs(architecture)["input_ids"][:1]
    settings = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False, "pad_token_id": 0, **options}
    plain = model.generate(ids, **settings)
    with saccade.watch(model, "decoder.1.self") as looks:
        assert torch.equal(model.generate(ids, **settings), plain)
    with saccade.watch(model, "decoder.1.self", rows=[-1]) as rows:
        model.generate(ids, **settings)
    assert [look.weights.size(2) for look in looks][1:] == [1] * (len(looks) - 1)
    assert len(rows) == len(looks)
    for look, row in zip(looks, rows, strict=True):
        assert_close(row.weights, look.weights[:, :, -1:], rtol=0, atol=1e-6)
    if "num_beams" in options:
        return
    with saccade.watch(model, "decoder.1.self") as whole:
        run(
            model,
            {"input_ids": plain[:, :-1]}
            if architecture != "bart"
            else {"input_ids": ids, "decoder_input_ids": plain[:, :-1]},
        )
    written = whole[0].weights
    done = 0
    for look in looks:
        rows_here = look.weights.size(2)
        keys = min(look.weights.size(3), written.size(3))
        if architecture != "gemma3":  # whose window drops keys from its cache
            assert_close(look.weights[..., :keys], written[:, :, done : done + rows_here, :keys], rtol=0, atol=2e-6)
            assert look.weights[..., keys:].count_nonzero() == 0
        done += rows_here
    assert done == written.size(2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hf.DebertaV2Model(DEBERTA), r"DebertaV2Model \(deberta-v2\).*DisentangledSelfAttention"),
        (lambda: hf.BloomModel(BLOOM), r"BloomModel \(bloom\).*BloomAttention"),
        (lambda: hf.XLNetModel(XLNET), r"XLNetModel \(xlnet\).*XLNetRelativeAttention"),
        (lambda: hf.MambaModel(MAMBA), r"MambaModel \(mamba\) has no module that calls the attention interface"),
    ],
)
def test_an_architecture_outside_the_interface_is_refused_by_name(make, words):
    with pytest.raises(saccade.ModelError, match=words), saccade.watch(make()):
        pass


def test_the_cure_of_a_refusal_works():
    model = hf.DebertaV2Model(DEBERTA).eval()
    with (
        pytest.raises(saccade.ModelError, match=r"model\(\.\.\., output_attentions=True\)\.attentions"),
        saccade.watch(model),
    ):
        pass
    assert len(run(model, text(), output_attentions=True).attentions) == 3


def test_what_is_missing_of_a_model_is_said():
    model = hf.LongT5Model(hf.LongT5Config(vocab_size=VOCAB, d_model=24, d_kv=6, d_ff=10, num_layers=2, num_heads=4))
    with (
        pytest.warns(
            UserWarning, match=r"LongT5Model is watched in part: LongT5LocalAttention \(2 modules\)"
        ) as caught,
        saccade.watch(model),
    ):
        pass
    assert caught[0].filename == __file__
    with saccade.watch(model, "decoder.*"):  # what was asked for is all there
        pass


def test_a_module_that_goes_another_way_inside_is_refused():
    config = hf.GPT2Config(
        vocab_size=VOCAB, n_embd=24, n_layer=2, n_head=4, reorder_and_upcast_attn=True, attn_implementation="eager",
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = hf.GPT2Model(config).eval()
    with (
        pytest.raises(saccade.ModelError, match=r"GPT2Attention.*set_attn_implementation\('sdpa'\)"),
        saccade.watch(model),
    ):
        run(model, text())
    model.set_attn_implementation("sdpa")
    with saccade.watch(model) as looks:
        run(model, text())
    assert len(looks) == 2


def test_an_implementation_that_keeps_its_weights_is_refused():
    def secret(module, query, key, value, attention_mask, **options):
        return query.transpose(1, 2).contiguous(), None

    model = make_model("bert")
    ALL_ATTENTION_FUNCTIONS["secret"] = secret
    try:
        model.config._attn_implementation_internal = "secret"
        words = "BertSelfAttention with the attention implementation 'secret' returns no weights"
        with pytest.raises(saccade.ModelError, match=words), saccade.watch(model):
            run(model, {"input_ids": text()["input_ids"]})
    finally:
        del ALL_ATTENTION_FUNCTIONS["secret"]


def test_an_old_version_is_refused(monkeypatch):
    model = make_model("bert")
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.1")
    with (
        pytest.raises(
            saccade.ModelError, match=r"transformers 4\.57\.1 is installed.*from version 5 on.*pip install -U"
        ),
        saccade.watch(model),
    ):
        pass


def test_a_module_that_holds_their_model_and_ours_is_watched_whole():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.mechanism = make_model("bert"), ScaledDot()

        def forward(self, inputs):
            x = self.inner(**inputs).last_hidden_state[:, None]
            return self.mechanism(x, x, x, Sight(FULL))

    both = Both()
    with saccade.watch(both) as looks:
        run(both, {"inputs": text()})
    assert [look.name for look in looks] == ["encoder.0.self", "encoder.1.self", "encoder.2.self", "mechanism"]
    assert next(iter(list_attention_modules(both).values())).path == "inner.encoder.layer.0.attention.self"


def test_a_compiled_model_is_watched_and_compiled_again_afterwards():
    torch._dynamo.reset()
    model, inputs = make_model("llama"), make_inputs("llama")
    compiled = torch.compile(model, backend="eager")
    plain = run(compiled, inputs).logits
    with saccade.watch(compiled) as looks:
        assert torch.equal(run(compiled, inputs).logits, plain)
    assert [look.name for look in looks] == ["decoder.0.self", "decoder.1.self", "decoder.2.self"]
    assert torch.equal(run(compiled, inputs).logits, plain)
    assert len(looks) == 3
    torch._dynamo.reset()


def test_transformers_is_never_imported_for_our_own_models():
    code = (
        "import sys, torch, saccade\n"
        "from saccade.attention import FULL, ScaledDot, Sight\n"
        "m = ScaledDot()\n"
        "x = torch.randn(1, 1, 3, 4)\n"
        "with saccade.watch(m) as looks: m(x, x, x, Sight(FULL))\n"
        "assert len(looks) == 1 and 'transformers' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_are_asked_once():
    assert hf_modules.find_attention_interface(nn.Linear) is None
    assert (
        hf_modules.find_attention_interface(type(make_model("bert").encoder.layer[0].attention.self))
        is ALL_ATTENTION_FUNCTIONS
    )
