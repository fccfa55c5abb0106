"""Attention maps in Python: figures, files by their suffix, tables, and maps without special tokens."""

import builtins

import numpy as np
import pytest
import torch
from torch.testing import assert_close

import saccade
from saccade.attention import Downsample, TopK
from saccade.cli import main
from saccade.explain.head_stats import find_strongest_links
from saccade.explain.maps import AttentionMaps
from saccade.explain.serialize import TABLE_COLUMNS, make_columns
from saccade.models.build import new
from saccade.models.families.rnn import Config as RNNConfig
from saccade.models.families.transformer import Config
from saccade.text import train_tokenizer

TEXT = "the bank of the river"


def make_model(family="transformer_encoder", config=None):
    torch.manual_seed(2)
    tokenizer = train_tokenizer([TEXT] * 3, "bpe", 300, token_template="bos_eos" if family != "rnn" else "t5")
    model = new(family, config or Config(tokenizer.vocab, 12, layers=2, heads=3, ffn_width=8, dropout=0.0)).eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def looks():
    return saccade.look(make_model(), TEXT)


def test_a_table_has_a_row_for_each_weight(looks):
    columns = make_columns(looks)
    assert tuple(columns) == TABLE_COLUMNS
    tokens = len(looks[0].query_names)
    assert {len(column) for column in columns.values()} == {2 * 3 * tokens * tokens}
    row = tokens * tokens * 3 + tokens * tokens * 1 + tokens * 4 + 2  # layer 1, head 1, query 4, key 2
    assert {name: column[row] for name, column in columns.items()} == {
        "side": "", "layer": 1, "kind": "self", "head": 1, "query_position": 4, "query": looks[0].query_names[4],
        "key_position": 2, "key": looks[0].key_names[2], "weight": looks[1].weights[1, 4, 2].item(),
    }  # fmt: skip


def test_a_table_of_the_largest_weights_has_only_those():
    model = make_model()
    whole, top = saccade.look(model, TEXT), saccade.look(model, TEXT, reduce=TopK(2))
    columns = make_columns(top)
    assert len(columns["weight"]) == 2 * 3 * len(whole[0].query_names) * 2
    at = (columns["layer"] == 1) & (columns["head"] == 2) & (columns["query_position"] == 3)
    best = whole[1].weights[2, 3].topk(2)
    assert columns["key_position"][at].tolist() == best.indices.tolist()
    assert columns["key"][at].tolist() == [whole[1].key_names[i] for i in best.indices]
    assert_close(torch.tensor(columns["weight"][at]), best.values)


def test_a_table_of_gates_names_them():
    model = make_model("rnn", RNNConfig(300, 8, layers=1))
    columns = make_columns(saccade.look(model, TEXT).select("gate"))
    assert set(columns["head"]) == {"input", "forget", "output"}
    assert set(columns["key"]) == {str(unit) for unit in range(8)}


def test_a_table_that_is_too_long_is_refused(looks, monkeypatch):
    monkeypatch.setattr("saccade.explain.serialize.MAX_TABLE_ROWS", 100)
    with pytest.raises(saccade.UsageError, match=r"would have \d+ rows; choose layers"):
        make_columns(looks)


def test_pandas_is_optional(looks, monkeypatch):
    load = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "pandas":
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(saccade.ResourceError, match="pip install pandas"):
        looks.to_pandas()


def test_a_data_frame_sums_to_one_in_every_row(looks):
    pytest.importorskip("pandas")
    frame = looks.to_pandas()
    sums = frame.groupby(["layer", "head", "query_position"]).weight.sum()
    np.testing.assert_allclose(sums, 1, rtol=1e-5)
    one = looks[1].select(heads=[2]).to_pandas()
    assert len(one) == frame.query("layer == 1 and head == 2").shape[0]


def test_special_tokens_can_be_dropped(looks):
    plain = looks.drop_special_tokens()
    special = looks[0].key.special_tokens_mask
    assert special[0]
    assert special[-1]
    assert sum(special) == 2
    for before, after in zip(looks, plain, strict=True):
        assert after.query_names == after.key_names == before.query_names[1:-1]
        assert torch.equal(after.weights, before.weights[:, 1:-1, 1:-1])
        assert torch.equal(after.value_norms, before.value_norms[:, 1:-1])
        assert not after.sums_to_one
        names = {name for head in range(3) for link in find_strongest_links(after, head, 9) for name in link[:2]}
        assert names <= set(before.query_names[1:-1])
    assert plain.drop_special_tokens()[0] is plain[0]
    assert "</s>" in looks.summary()
    assert "<s>" not in plain.summary()
    assert "</s>" not in plain.summary()
    assert len(plain.summary().splitlines()) == len(looks.summary().splitlines()) == 1 + 2 * 3


def test_special_tokens_of_the_largest_weights_can_be_dropped():
    model = make_model()
    top = saccade.look(model, TEXT, reduce=TopK(2))
    whole = top[1].to_dense()
    assert torch.equal(top.drop_special_tokens()[1].weights, whole[:, 1:-1, 1:-1])
    pooled = saccade.look(model, TEXT, reduce=Downsample(3))
    with pytest.raises(saccade.UsageError, match="is downsampled, so single tokens cannot be dropped"):
        pooled.drop_special_tokens()


def test_units_of_gates_are_no_special_tokens():
    model = make_model("rnn", RNNConfig(300, 8, layers=1))
    gates = saccade.look(model, TEXT).select("gate")
    kept = gates.drop_special_tokens()
    assert kept[0].weights.shape[2] == gates[0].weights.shape[2] == 8
    assert kept[0].weights.shape[1] < gates[0].weights.shape[1]


def test_files_are_written_by_their_suffix(looks, tmp_path):
    starts = {"a.png": b"\x89PNG", "a.svg": b"<?xml", "a.pdf": b"%PDF", "a.html": b"<!doctype html"}
    for name, start in starts.items():
        path = looks.save(tmp_path / name)
        assert path.read_bytes()[: len(start)].lower() == start.lower()
        assert looks[0].select(heads=[1]).save(str(tmp_path / f"one_{name}")).is_file()
    assert AttentionMaps.load(looks.save(tmp_path / "a.looks"))[1].weights.shape == looks[1].weights.shape
    assert len(AttentionMaps.load(looks[1].save(tmp_path / "b.safetensors"))) == 1
    page = looks.to_html(tmp_path / "b.html", title="The river").read_text(encoding="utf-8")
    assert "<title>The river" in page
    assert "layer 1, self" in page


def test_a_figure_has_the_names_of_one_head_or_a_panel_for_each(looks):
    one = looks[0].select(heads=[1]).plot()
    assert [label.get_text().strip(" ␣") for label in one.axes[0].get_yticklabels()] == [
        name.strip() for name in looks[0].query_names
    ]
    assert len(looks[0].plot().axes) == 3 + 1  # heads and a color bar
    assert len(looks.plot().axes) == 2 * 3 + 1


def test_the_command_leaves_special_tokens_out_and_says_that_weights_are_kept(tmp_path, capsys):
    model = make_model()
    model.save(tmp_path / "model")
    call = ["look", str(tmp_path / "model"), TEXT]
    assert main(call) == 0
    assert "</s>" in capsys.readouterr().out
    assert main([*call, "--drop-special-tokens"]) == 0
    printed = capsys.readouterr()
    assert "s>" not in printed.out
    assert "the other weights are not renormalized, so the rows no longer sum to one" in printed.err
