"""Head statistics, rollout and flow, on maps with known results: by hand, by loops, or from scipy."""

import math

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow
from torch.testing import assert_close

from saccade.explain.axis import Axis, Token
from saccade.explain.head_stats import (
    LABEL_RULES,
    compute_head_stats,
    compute_map_head_stats,
    find_strongest_links,
    make_table_rows,
)
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.explain.rollout import attention_flow, attention_rollout, max_flow, mix_with_residual

WORDS = ["<s>", "the", "cat", ",", "sat", "</s>"]


def axis(names, of="input"):
    return Axis(of, tuple(Token(name, (i, i + 1), None if name.startswith("<") else 0) for i, name in enumerate(names)))


def seen(weights, kind="self", layer=0, query=None, key=None):
    query, key = query or axis(WORDS), key or axis(WORDS)
    return AttentionMap("m", kind, "", layer, tuple(range(len(weights))), weights, query, key)


def pointing(at):
    """A head that attends to one position in each row."""
    return torch.eye(len(WORDS))[[position % len(WORDS) for position in at]]


@pytest.mark.parametrize(
    ("rows", "name"),
    [
        ([0, 0, 1, 2, 3, 4], "previous token"),
        ([1, 2, 3, 4, 5, 5], "next token"),
        ([0, 1, 2, 3, 4, 5], "self"),
        ([0, 0, 0, 0, 0, 0], "first token"),
        ([5, 5, 5, 5, 5, 4], "separator"),
        ([3, 3, 3, 2, 3, 3], "punctuation"),
        ([5, 5, 0, 0, 5, 1], "special tokens"),
        ([2, 2, 2, 2, 4, 1], "the same token"),
        ([2, 4, 5, 0, 1, 1], "one token each"),
    ],
)
def test_a_head_is_labeled_by_what_it_attends_to(rows, name):
    (head,) = compute_map_head_stats(seen(pointing(rows)[None]))
    assert head.label == name
    assert head.metrics.entropy == pytest.approx(0, abs=1e-5)


def test_a_head_that_matches_no_rule_is_described_by_its_numbers():
    """A third on the first token, most of the rest on four others: no fraction is a majority."""
    names = axis(["<s>", *"abcdefgh"])
    weights = torch.full((9, 9), 0.01)
    weights[:, 0] = 0.3
    weights[:, 1:5] = (1 - 0.3 - 0.04) / 4
    (head,) = compute_map_head_stats(seen(weights[None], query=names, key=names))
    bits = -(0.3 * math.log2(0.3) + 4 * 0.165 * math.log2(0.165) + 4 * 0.01 * math.log2(0.01))
    assert head.label == f"30% first token, over {2**bits:.1f} tokens"
    assert "mixed" not in {name for name, _ in LABEL_RULES}


def test_near_means_nearer_than_a_uniform_head():
    """Among six tokens, a uniform head has most of its weight within two tokens, too."""
    weights = torch.full((6, 6), 0.05) + torch.eye(6) * 0.2
    weights = weights / weights.sum(-1, keepdim=True)
    (head,) = compute_map_head_stats(seen(weights[None]))
    close = [sum(abs(i - j) <= 2 for j in range(6)) / 6 for i in range(1, 6)]
    assert head.metrics.near_tokens_if_uniform == pytest.approx(sum(close) / 5)
    assert head.metrics.near_tokens > 0.5
    assert head.label != "near"
    many = axis([f"t{i}" for i in range(20)])
    band = torch.eye(20) + torch.eye(20).roll(1, 1) + torch.eye(20).roll(-1, 1) + 0.03
    (head,) = compute_map_head_stats(seen((band / band.sum(-1, keepdim=True))[None], query=many, key=many))
    assert head.label == "near"


def test_a_reversed_translation_is_a_reversed_alignment():
    weights = torch.eye(6).flip(0)[None, :5] * 0.9 + 0.1 / 6
    (head,) = compute_map_head_stats(seen(weights, "cross", query=axis(WORDS[:5], "output")))
    assert head.label == "reversed alignment"
    assert head.metrics.position_correlation < -0.99


def test_a_uniform_head_is_broad_and_metrics_are_those_of_a_loop():
    weights = torch.full((1, 6, 6), 1 / 6)
    (even,) = compute_map_head_stats(seen(weights))
    assert even.label == "broad"
    assert even.metrics.entropy == pytest.approx(math.log2(6), abs=1e-4)
    drawn = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(1)) ** 3
    drawn = drawn / drawn.sum(-1, keepdim=True)
    for number, head in enumerate(compute_map_head_stats(seen(drawn))):
        rows = range(1, 6)
        far = sum(float(drawn[number, i, j]) * abs(i - j) for i in rows for j in range(6)) / 5
        assert head.metrics.mean_distance == pytest.approx(far, rel=1e-4)
        assert head.metrics.previous_token == pytest.approx(
            sum(float(drawn[number, i, i - 1]) for i in rows) / 5, rel=1e-4
        )
        assert head.metrics.punctuation_tokens == pytest.approx(float(drawn[number, 1:, 3].mean()), rel=1e-4)
        assert head.metrics.separator_tokens == pytest.approx(float(drawn[number, 1:, 5].mean()), rel=1e-4)
        bits = sum(-float(w) * math.log2(float(w)) for w in drawn[number, 1:].flatten()) / 5
        assert head.metrics.entropy == pytest.approx(bits, rel=1e-4)


def test_a_translation_along_the_diagonal_is_an_alignment():
    weights = torch.eye(6)[None, :5] * 0.9 + 0.1 / 6
    (head,) = compute_map_head_stats(seen(weights, "cross", query=axis(WORDS[:5], "output")))
    assert head.label == "diagonal alignment"
    assert math.isnan(head.metrics.mean_distance)
    assert "–" in make_table_rows([head])[0]
    assert len({name for name, _ in LABEL_RULES}) == len(LABEL_RULES)


def test_the_strongest_links_are_found():
    weights = torch.zeros(1, 6, 6)
    weights[0, 2, 4], weights[0, 1, 3] = 0.9, 0.5
    assert [(a, b) for a, b, _ in find_strongest_links(seen(weights), 0, 2)] == [("cat", "sat"), ("the", ",")]
    looks = AttentionMaps("x", (seen(weights), seen(weights, "gate")), ())
    assert len(compute_head_stats(looks)) == 1


def layers(count=3, length=4, seed=0):
    drawn = torch.rand(count, 2, length, length, generator=torch.Generator().manual_seed(seed)).softmax(-1)
    names = axis(["a", "b", "c", "d"][:length])
    return AttentionMaps("x", tuple(seen(one, layer=i, query=names, key=names) for i, one in enumerate(drawn)), ())


def test_rollout_is_the_sum_over_all_paths():
    """Each path through three layers in a loop: the product of its steps, of which half is the residual connection."""
    looks = layers()
    step = [((m.weights.mean(0) + torch.eye(4)) / 2).tolist() for m in looks]
    ways = [[0.0] * 4 for _ in range(4)]
    for i in range(4):
        for j in range(4):
            for k in range(4):
                for n in range(4):
                    ways[i][n] += step[2][i][j] * step[1][j][k] * step[0][k][n]
    found = attention_rollout(looks)
    assert_close(found[-1], torch.tensor(ways))
    assert_close(found.sum(-1), torch.ones(3, 4))


def test_flow_is_that_of_scipy():
    looks = layers()
    pipes = np.zeros((16, 16))
    for number, weights in enumerate(mix_with_residual(looks).numpy()):
        pipes[(number + 1) * 4 : (number + 2) * 4, number * 4 : (number + 1) * 4] = weights
    whole = csr_array((pipes * 1e6).round().astype(np.int32))  # scipy supports integers only
    for row in (0, 3):
        wanted = [maximum_flow(whole, 12 + row, token).flow_value / 1e6 for token in range(4)]
        assert_close(attention_flow(looks, row), torch.tensor(wanted).double(), rtol=0, atol=1e-4)


def test_the_flow_is_limited_by_the_bottleneck():
    pipes = np.zeros((4, 4))
    pipes[0, 1], pipes[1, 3], pipes[0, 2], pipes[2, 3] = 3.0, 2.0, 5.0, 1.0
    assert max_flow(pipes, 0, 3) == pytest.approx(3.0)
    pipes[1, 2] = 9.0
    pipes[2, 3] = 4.0
    assert max_flow(pipes, 0, 3) == pytest.approx(6.0)


def test_flow_with_wrong_arguments_is_refused():
    with pytest.raises(ValueError, match="Query 9 does not exist; there are 4 tokens, numbered from 0"):
        attention_flow(layers(), 9)
    long = axis([f"t{i}" for i in range(700)])
    wide = AttentionMaps("x", (seen(torch.eye(700)[None], query=long, key=long),), ())
    with pytest.raises(ValueError, match=r"1,400 nodes, more than 1,200.*attention_rollout"):
        attention_flow(wide)
    with pytest.raises(ValueError, match="no self-attention map"):
        attention_rollout(AttentionMaps("x", (), ()))


def test_cells_of_an_image_are_no_separators():
    """A decoder of image codes attends to earlier cells; these stand for no text, but are no special tokens either."""
    tokens = (Token("red", (0, 3), 0), Token("[image]"), *(Token(f"0,{i}") for i in range(4)))
    given = Axis("decoder_input", tokens, (1, 4))
    weights = torch.zeros(6, 6)
    weights[:, 2:] = 0.25
    (head,) = compute_map_head_stats(seen(weights[None], query=given, key=given))
    assert head.metrics.separator_tokens == 0
    assert head.metrics.special_tokens == 0
    weights = torch.eye(6)[[1] * 6]
    (head,) = compute_map_head_stats(seen(weights[None], query=given, key=given))
    assert head.label == "separator"
