"""Encoders for long texts against the `transformers` package: windows, blocks, global tokens, lengths that fit neither.

The package's Longformer rounds its weights to single precision even in double; `exact` takes that rounding out. Its BigBird
draws random blocks in training only and in evaluation looks at block 0 again; here it draws, and what it drew is handed to
our model as a part.
"""

from dataclasses import dataclass, field, replace

import numpy
import pytest
import torch
import torch.nn.functional as F

from saccade.attention import RandomBlocks
from saccade.data import Batch, Text
from saccade.models.families import bigbird, longformer
from saccade.models.weight_map import to_ours, to_theirs
from support.parity import HiddenStates, compare, compare_gradients, convert_model, run_watched

SIZES = {"vocab_size": 53, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 17}
B = 3


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Softmax in the precision of its input."""
    softmax = F.softmax

    def kept(x, dim=None, _stacklevel=3, dtype=None):
        return softmax(x, dim=dim, dtype=None if x.dtype == torch.float64 else dtype)

    monkeypatch.setattr(F, "softmax", kept)


def scrambled(model, dtype=torch.float64, std=0.3):
    torch.manual_seed(1)
    model = model.to(dtype).eval()
    for p in model.parameters():
        torch.nn.init.normal_(p, std=std)
    return model


def words(length, segments=1):
    g = torch.Generator().manual_seed(0)
    tokens = torch.randint(4, 53, (B, length), generator=g)
    segment = torch.randint(0, segments, (B, length), generator=g)
    return tokens, segment


def lengths_to_keep(lengths, length, side):
    at = torch.arange(length)
    return torch.stack([at < n if side == "right" else at >= length - n for n in lengths])


def backward(out, real):
    (out[real] * torch.linspace(-1, 1, out.size(-1), dtype=out.dtype)).sum().backward()


# Longformer


def hf_longformer(**options):
    from transformers import LongformerConfig, LongformerModel

    return LongformerModel(LongformerConfig(**(LONG | options), attn_implementation="eager"))


LONG = SIZES | {"max_position_embeddings": 27, "attention_window": 4, "type_vocab_size": 1}
WINDOWS = [  # the package cannot do a window of 2
    {},
    {"attention_window": [4, 12], "num_attention_heads": 1, "hidden_act": "relu", "type_vocab_size": 2},
    {"attention_window": [8, 4, 8], "num_hidden_layers": 3, "num_attention_heads": 4, "layer_norm_eps": 1e-5},
    {"attention_window": 6, "num_attention_heads": 2, "hidden_act": "gelu_new"},
]


def marks(kind, keep):
    """Which tokens are global: nobody says (the first of each text), none, or some at different places of each row."""
    if kind == "first":
        return None, torch.zeros_like(keep).scatter(1, keep.int().argmax(1, keepdim=True), True)
    marked = torch.zeros_like(keep)
    if kind == "some":
        n = keep.size(1)
        marked[0, [0, n // 2, n - 1]] = True
        marked[1, n // 3] = True
        marked[2, n - 1 : n] = True
    return marked, marked & keep


def unfolded(local, marked, window):
    """The package's banded map as (H, Q, K): first the columns of the global tokens, then a diagonal band."""
    heads, n, wide = local.shape
    first = wide - (window + 1)
    dense = local.new_zeros(heads, n, n)
    for column, at in enumerate(marked.nonzero().flatten().tolist()):
        dense[:, :, at] += local[:, :, column]
    for i in range(n):
        for j in range(max(0, i - window // 2), min(n, i + window // 2 + 1)):
            dense[:, i, j] += local[:, i, first + j - i + window // 2]
    return dense


def compare_looks(maps, wanted, marked, keep, windows):
    """The near look of every layer, and the far one where there are global tokens."""
    n, any_marked = keep.size(1), bool(marked.any())
    near, far = (maps[0::2], maps[1::2]) if any_marked else (maps, [])
    for ours, theirs, window in zip(near, wanted.attentions, windows, strict=True):
        for row in range(len(keep)):
            dense = unfolded(theirs[row], marked[row], window)
            compare(ours[row][:, keep[row]], dense[:, keep[row]])
    for ours, theirs in zip(far, wanted.global_attentions if any_marked else [], strict=True):
        for row in range(len(keep)):
            count = int(marked[row].sum())
            compare(ours[row, :, :count], theirs[row].mT[:, :count, :n])
            assert not ours[row, :, count:].any()  # fillers see nothing


@pytest.mark.parametrize("kind", ["first", "none", "some"])
@pytest.mark.parametrize("padded", [None, "right", "left"])
@pytest.mark.parametrize("length", [1, 2, 7, 16, 25])
@pytest.mark.parametrize("options", WINDOWS)
def test_longformer(options, length, padded, kind):
    theirs = scrambled(hf_longformer(**options))
    ours = convert_model(longformer.FAMILY, theirs)
    tokens, segment = words(length, theirs.config.type_vocab_size)
    keep = lengths_to_keep([length, max(1, length - 5), min(2, length)] if padded else [length] * B, length, padded)
    tokens = tokens.masked_fill(~keep, 1)
    marked, wanted_marked = marks(kind, keep)
    text = Text(tokens, keep if padded else None, segment, marked)
    with HiddenStates(ours.stack) as states:
        out, maps = run_watched(ours, lambda: ours(Batch(text)))
    if padded == "left":
        for row in range(B):
            alone = theirs(
                input_ids=tokens[row : row + 1, keep[row]],
                token_type_ids=segment[row : row + 1, keep[row]],
                global_attention_mask=wanted_marked[row : row + 1, keep[row]].long(),
            )
            compare(out[row, keep[row]], alone.last_hidden_state[0])
        return
    wanted = theirs(
        input_ids=tokens,
        token_type_ids=segment,
        attention_mask=keep.long(),
        global_attention_mask=wanted_marked.long(),
        output_hidden_states=True,
        output_attentions=True,
    )
    for ours_state, state in zip(states, wanted.hidden_states[1:], strict=True):
        compare(ours_state, state, real=keep)
    compare(out, wanted.last_hidden_state, real=keep)
    compare_looks(maps, wanted, wanted_marked, keep, theirs.config.attention_window)
    backward(out, keep)
    backward(wanted.last_hidden_state, keep)
    compare_gradients(ours, theirs, longformer.FAMILY, longformer.FAMILY.config_from_hf(theirs.config.to_dict()))


@pytest.mark.parametrize("kind", ["first", "some"])
@pytest.mark.parametrize("options", WINDOWS)
def test_longformer_in_single_precision(options, kind):
    theirs = scrambled(hf_longformer(**options), torch.float32)
    ours = convert_model(longformer.FAMILY, theirs).float()
    tokens, segment = words(21)
    keep = lengths_to_keep([21, 13, 4], 21, "right")
    tokens = tokens.masked_fill(~keep, 1)
    marked, wanted_marked = marks(kind, keep)
    wanted = theirs(
        input_ids=tokens,
        token_type_ids=segment,
        attention_mask=keep.long(),
        global_attention_mask=wanted_marked.long(),
    )
    compare(ours(Batch(Text(tokens, keep, segment, marked))), wanted.last_hidden_state, real=keep, rtol=1e-4)


def test_longformer_config_goes_both_ways():
    from transformers import LongformerConfig

    for options in WINDOWS:
        config = longformer.FAMILY.config_from_hf(LongformerConfig(**(LONG | options)).to_dict())
        again = longformer.FAMILY.config_from_hf(LongformerConfig(**longformer.FAMILY.config_to_hf(config)).to_dict())
        assert longformer.layer_windows(again) == longformer.layer_windows(config)
        assert replace(again, attention_windows=config.attention_windows) == config
    with pytest.raises(ValueError, match=r"one even window for all layers, or 3 even windows"):
        longformer.Longformer(
            longformer.Config(
                vocab=7, width=4, layers=3, heads=2, ffn_width=5, max_positions=9, attention_windows=(2, 4)
            )
        )
    with pytest.raises(ValueError, match="attention_window must be a whole number, or one per layer; got 'wide'"):
        longformer.FAMILY.config_from_hf({"attention_window": "wide"})


# BigBird


@dataclass(frozen=True)
class Given(RandomBlocks):
    """Random blocks that somebody else has drawn: `table` is (H, blocks, blocks)."""

    table: torch.Tensor = field(default_factory=lambda: torch.zeros(1, 1, 1), compare=False)

    def choose_blocks(self, available):
        more = available.size(-1) - self.table.size(-1)
        return F.pad(self.table, (0, more, 0, more)) & available


def hf_bigbird(**options):
    from transformers import BigBirdConfig, BigBirdModel

    return BigBirdModel(BigBirdConfig(**(BIG | options), attn_implementation="eager"))


def hand_over(theirs, ours, length):
    """Let the package draw random blocks for a text of this length, and give our model the same."""
    for number, (layer, mine) in enumerate(zip(theirs.encoder.layer, ours.stack.layers, strict=True)):
        drawer = layer.attention.self.train()  # it has no dropout; all that changes is that it draws
        size, heads, count = drawer.block_size, drawer.num_attention_heads, drawer.num_random_blocks
        total = -(-length // size)
        numpy.random.seed(number)
        plan = drawer._get_rand_attn_plan(total * size, size, count)
        drawn = drawer._bigbird_block_rand_mask_with_head(total * size, total * size, size, size, heads, *plan)
        table = torch.zeros(heads, total, total, dtype=torch.bool)
        for head in range(heads):
            for row in range(total - 2):
                table[head, row + 1, drawn[head][row]] = True
        mechanism = mine.attention.branch.mechanism
        mechanism.pattern = replace(mechanism.pattern, random=Given(number, size, count, heads, table))


BIG = SIZES | {"max_position_embeddings": 71, "block_size": 2, "num_random_blocks": 1}
BLOCKS = [  # a config; below the second number a text is seen whole; lengths of rows in a batch, ending in one block
    ({}, 14, [16, 15, 16]),
    ({}, 14, [27, 27, 27]),
    ({"block_size": 3, "num_random_blocks": 2, "num_attention_heads": 1}, 27, [32, 31, 32]),
    ({"block_size": 4, "num_random_blocks": 1, "num_attention_heads": 4, "hidden_act": "relu"}, 28, [39, 37, 38]),
    (
        {"num_random_blocks": 3, "rescale_embeddings": True, "type_vocab_size": 3, "layer_norm_eps": 1e-5},
        22,
        [70, 70, 69],
    ),
]


def alone(theirs, tokens, segment, real):
    return theirs(input_ids=tokens[None, real], token_type_ids=segment[None, real]).last_hidden_state[0]


def compare_bigbird(theirs, ours, tokens, segment, keep):
    """Hidden states, maps, output and gradients of one padded batch."""
    n = tokens.size(1)
    padded = None if bool(keep.all()) else keep
    with HiddenStates(ours.stack) as states:
        out, maps = run_watched(ours, lambda: ours(Batch(Text(tokens, padded, segment))))
    wanted = theirs(
        input_ids=tokens,
        token_type_ids=segment,
        attention_mask=keep.long(),
        output_hidden_states=True,
        output_attentions=True,
    )
    for mine, state in zip(states, wanted.hidden_states[1:], strict=True):
        compare(mine, state[:, :n], real=keep)
    compare(out, wanted.last_hidden_state, real=keep)
    for mine, theirs_map in zip(maps, wanted.attentions, strict=True):
        for row in range(B):
            compare(mine[row][:, keep[row]], theirs_map[row][:, :n, :n][:, keep[row]])
    backward(out, keep)
    backward(wanted.last_hidden_state, keep)
    compare_gradients(ours, theirs, bigbird.FAMILY, bigbird.FAMILY.config_from_hf(theirs.config.to_dict()))


@pytest.mark.parametrize(("options", "short", "lengths"), BLOCKS)
def test_bigbird_by_blocks(options, short, lengths):
    theirs = scrambled(hf_bigbird(**options))
    ours = convert_model(bigbird.FAMILY, theirs)
    n = max(lengths)
    assert min(lengths) > short
    hand_over(theirs, ours, n)
    tokens, segment = words(n, 2)
    compare_bigbird(theirs, ours, tokens, segment, lengths_to_keep(lengths, n, "right"))
    assert theirs.attention_type == "block_sparse"


@pytest.mark.parametrize("attention", ["block_sparse", "original_full"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", [1, 2, 7, 14])
@pytest.mark.parametrize("options", [{}, {"num_attention_heads": 1}, {"num_attention_heads": 4, "hidden_act": "relu"}])
def test_bigbird_sees_short_texts_whole(options, length, padded, attention):
    theirs = scrambled(hf_bigbird(**options, attention_type=attention))
    ours = convert_model(bigbird.FAMILY, theirs)
    tokens, segment = words(length, 2)
    lengths = [length, max(1, length - 3), 1] if padded else [length] * B
    theirs(input_ids=tokens)  # it turns to full attention now; in the call in which it turns it reports no maps
    assert theirs.attention_type == "original_full"
    compare_bigbird(theirs, ours, tokens, segment, lengths_to_keep(lengths, length, "right"))


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("options", "short", "lengths"), BLOCKS)
def test_bigbird_rows_of_different_lengths(options, short, lengths, side):
    """A row in a batch is what the package makes of it alone, be it long, shorter by some blocks, or seen whole."""
    theirs = scrambled(hf_bigbird(**options))
    ours = convert_model(bigbird.FAMILY, theirs)
    n = max(lengths)
    tokens, segment = words(n, 2)
    keep = lengths_to_keep([n, short + 1, short - 3], n, side)
    for row in range(B):
        theirs.set_attention_type("block_sparse")  # after a short text it stays with full attention
        if keep[row].sum() > short:
            hand_over(theirs, ours, int(keep[row].sum()))
        out = ours(Batch(Text(tokens, keep, segment)))
        compare(out[row, keep[row]], alone(theirs, tokens[row], segment[row], keep[row]))


@pytest.mark.parametrize(("options", "short", "lengths"), BLOCKS)
def test_bigbird_in_single_precision(options, short, lengths):
    theirs = scrambled(hf_bigbird(**options), torch.float32)
    ours = convert_model(bigbird.FAMILY, theirs).float()
    n = max(lengths)
    hand_over(theirs, ours, n)
    tokens, segment = words(n, 2)
    keep = lengths_to_keep(lengths, n, "right")
    wanted = theirs(input_ids=tokens, token_type_ids=segment, attention_mask=keep.long()).last_hidden_state
    compare(ours(Batch(Text(tokens, keep, segment))), wanted, real=keep, rtol=1e-4)


def test_bigbird_config_goes_both_ways():
    from transformers import BigBirdConfig

    for options in ({"attention_type": "original_full"}, *(case[0] for case in BLOCKS)):
        config = bigbird.FAMILY.config_from_hf(BigBirdConfig(**(BIG | options)).to_dict())
        assert bigbird.FAMILY.config_from_hf(BigBirdConfig(**bigbird.FAMILY.config_to_hf(config)).to_dict()) == config
    with pytest.raises(ValueError, match="unknown attention_type = 'dense'; expected block_sparse or original_full"):
        bigbird.FAMILY.config_from_hf({"attention_type": "dense"})
    with pytest.raises(ValueError, match="block_size must be 1 or more and random_blocks 0 or more; got 0 and 3"):
        bigbird.BigBird(bigbird.Config(vocab=7, width=4, layers=1, heads=2, ffn_width=5, max_positions=9, block_size=0))


# heads and published sizes, both


@pytest.mark.parametrize("name", ["lm", "label", "tag", "span"])
@pytest.mark.parametrize("family", [longformer.FAMILY, bigbird.FAMILY], ids=lambda family: family.name)
def test_heads(family, name):
    import transformers

    head = family.heads[name]
    sizes = transformers.LongformerConfig(**LONG) if family is longformer.FAMILY else transformers.BigBirdConfig(**BIG)
    sizes.num_labels = 2 if name == "span" else 5
    theirs = scrambled(getattr(transformers, head.architecture)(sizes))
    body = convert_model(family, getattr(theirs, family.prefix.removesuffix(".")))
    mine = head.build(family.config_from_hf(sizes.to_dict()), body, 5).double().eval()
    rest = {key: x for key, x in theirs.state_dict().items() if not key.startswith(family.prefix)}
    read = to_ours(rest, head.weight_map)
    assert not read.unmapped
    missing, unexpected = mine.load_state_dict(read.tensors, strict=False)
    assert not missing
    assert not unexpected
    tokens, _ = words(7)
    keep = lengths_to_keep([7, 5, 3], 7, "right")
    tokens = tokens.masked_fill(~keep, sizes.pad_token_id)
    given = {"input_ids": tokens, "attention_mask": keep.long(), "token_type_ids": torch.zeros_like(tokens)}
    if family is longformer.FAMILY and name in ("label", "span"):  # under the others no token is global
        given["global_attention_mask"] = torch.zeros_like(tokens).index_fill(1, torch.tensor([0]), 1)
    elif name == "span":
        given["question_lengths"] = torch.zeros(B, 1, dtype=torch.long)  # nothing to rule out
    wanted = theirs(**given)
    scores = mine(body(Batch(Text(tokens, keep))), keep)
    if name == "span":
        compare(scores, torch.stack([wanted.start_logits, wanted.end_logits], -1), real=keep)
    elif name == "label":
        compare(scores, wanted.logits)
        gold = torch.tensor([4, 0, 2])
        compare(F.cross_entropy(scores, gold), theirs(**given, labels=gold).loss)
    else:
        compare(scores, wanted.logits, real=keep)


PUBLISHED = {  # what the published config files say; the counts follow by hand, pooler included
    "longformer-base-4096": (
        longformer.FAMILY,
        {
            "vocab_size": 50265,
            "max_position_embeddings": 4098,
            "type_vocab_size": 1,
            "layer_norm_eps": 1e-5,
            "attention_window": [512] * 12,
        },
        148_659_456,
    ),
    "bigbird-roberta-base": (
        bigbird.FAMILY,
        {"vocab_size": 50358, "max_position_embeddings": 4096, "block_size": 64, "num_random_blocks": 3},
        127_468_800,
    ),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes(name):
    import transformers

    family, sizes, count = PUBLISHED[name]
    make = getattr(transformers, family.architecture)
    with torch.device("meta"):
        theirs = make(make.config_class(**sizes))
        config = family.config_from_hf(theirs.config.to_dict())
        ours = family.build(config)
    assert config == family.config_class()
    read = to_ours(dict(theirs.named_parameters()), family.weight_map(config))
    mine = dict(ours.named_parameters())
    assert {name: x.shape for name, x in read.tensors.items()} == {name: x.shape for name, x in mine.items()}
    assert all(name.startswith("pooler.") for name in read.unmapped)
    back = to_theirs(mine, family.weight_map(config))
    assert back.keys() == {name for name, _ in theirs.named_parameters()} - set(read.unmapped)
    assert sum(p.numel() for p in theirs.parameters()) == count
    assert sum(p.numel() for p in ours.parameters()) == count - (768 * 768 + 768)
