"""`saccade.embed` and `saccade embed`: the vectors of the plain model by every way, and the nearest texts by NumPy."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch.testing import assert_close

import saccade
from saccade.api.embed import MIN_TEXTS_TO_CONVERT
from saccade.api.similarity import nearest_neighbors, nearest_pairs
from saccade.cli import main
from saccade.errors import UsageError
from saccade.models.embed_texts import embed as embed_plain

WORDS = ("lovely", "great", "awful", "boring", "long", "short")
TEXTS = [f"a {WORDS[n % 6]} film" + " and so on" * (n % 5) + f" {n}" for n in range(MIN_TEXTS_TO_CONVERT + 9)]


def test_the_fast_engine_gives_the_vectors_of_the_plain_model(trained):
    run = trained["good"]
    expected = embed_plain(run.model, TEXTS)
    assert_close(saccade.embed(run, TEXTS), expected, rtol=0, atol=1e-4)
    assert_close(saccade.embed(run, TEXTS, engine="off"), expected, rtol=0, atol=1e-6)
    assert_close(saccade.embed(run.path, TEXTS, batch_size=3), expected, rtol=0, atol=1e-4)
    assert_close(saccade.embed(run.model, pd.Series(TEXTS)), expected, rtol=0, atol=1e-4)
    assert_close(saccade.embed(saccade.load(run.path), iter(TEXTS[:3])), expected[:3], rtol=0, atol=1e-4)
    one = saccade.embed(run, TEXTS[0])
    assert_close(one, expected[0], rtol=0, atol=1e-4)
    assert saccade.embed(run, []).shape == (0, run.model.width)


def test_batches_have_the_size_that_was_asked_for(trained, monkeypatch):
    sizes, body = [], trained["good"].model.body
    forward = body.forward
    monkeypatch.setattr(body, "forward", lambda batch: (sizes.append(len(batch.source.tokens)), forward(batch))[1])
    saccade.embed(trained["good"], TEXTS, batch_size=4, engine="off")
    assert sizes[:-1] == [4] * (len(TEXTS) // 4)
    assert sum(sizes) == len(TEXTS)
    with pytest.raises(UsageError, match="batch_size is 0"):
        saccade.embed(trained["good"], TEXTS, batch_size=0)
    with pytest.raises(UsageError, match="did you mean 'int8'"):
        saccade.embed(trained["good"], TEXTS, engine="int9")


def test_neighbors_and_pairs_are_those_of_numpy(monkeypatch):
    vectors = torch.randn(23, 5, generator=torch.manual_seed(0))
    rows = vectors.double().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similarities = rows @ rows.T
    pairs = sorted(((similarities[a, b], a, b) for a in range(23) for b in range(a)), reverse=True)
    for cells in (2**24, 50):  # all at once, and in blocks of two rows
        monkeypatch.setattr("saccade.api.similarity.MAX_SIMILARITIES_AT_ONCE", cells)
        values, indices = nearest_neighbors(vectors[:7] * 3, vectors, 4)
        assert indices.tolist() == np.argsort(-similarities[:7], axis=1)[:, :4].tolist()
        assert_close(values.double().numpy(), np.sort(similarities[:7], axis=1)[:, ::-1][:, :4].copy())
        found = nearest_pairs(vectors, 6)
        assert [{a, b} for _, a, b in found] == [{a, b} for _, a, b in pairs[:6]]
        assert [value for value, *_ in found] == pytest.approx([value for value, *_ in pairs[:6]], abs=1e-6)
    assert len(nearest_pairs(vectors[:3], 9)) == 3
    assert nearest_pairs(vectors[:1], 9) == []
    assert nearest_neighbors(vectors[:2], vectors[:3], 9)[1].shape == (2, 3)


@pytest.fixture
def data(tmp_path):
    frame = pd.DataFrame({"id": [f"t{n}" for n in range(len(TEXTS))], "review": TEXTS})
    frame.to_csv(tmp_path / "texts.csv", index=False)
    return tmp_path / "texts.csv"


def test_the_command_writes_the_vectors(trained, data, tmp_path):
    run, expected = trained["good"], embed_plain(trained["good"].model, TEXTS).numpy()
    call = ["embed", str(run.path), "--data", str(data), "--out"]
    assert main([*call, str(tmp_path / "v.npy")]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-4)
    assert main([*call, str(tmp_path / "v.parquet")]) == 0
    frame = pd.read_parquet(tmp_path / "v.parquet")
    assert frame["id"].tolist() == [f"t{n}" for n in range(len(TEXTS))]
    np.testing.assert_allclose(np.stack(frame["embedding"].tolist()), expected, atol=1e-4)


def test_the_command_prints_vectors_and_the_nearest_texts(trained, data, capsys):
    run, path = trained["good"], str(trained["good"].path)
    vectors = embed_plain(run.model, TEXTS)
    capsys.readouterr()
    assert main(["embed", path, *TEXTS[:2]]) == 0
    rows = [list(map(float, line.split())) for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(rows, vectors[:2].numpy(), atol=1e-4)
    assert main(["embed", path, TEXTS[3], "--data", str(data), "--nearest", "2", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"] == TEXTS[3]
    best = found["nearest"][0]
    assert (best["id"], best["line"], best["text"]) == ("t3", 5, TEXTS[3])
    assert best["similarity"] == pytest.approx(1, abs=1e-5)
    assert main(["embed", path, "--data", str(data), "--nearest", "3", "--json"]) == 0
    pairs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    expected = nearest_pairs(vectors, 3)
    assert [pair["similarity"] for pair in pairs] == pytest.approx([value for value, *_ in expected], abs=1e-4)
    assert all(pair["first"]["id"] != pair["second"]["id"] for pair in pairs)
    assert main(["embed", path, TEXTS[3], "--data", str(data), "--nearest", "1"]) == 0
    assert capsys.readouterr().out == f"{TEXTS[3]}\n  1.000  id t3: {TEXTS[3]}\n"


def test_what_makes_no_sense_is_refused(trained, data, tmp_path, capsys):
    path = str(trained["good"].path)
    for words, message in [
        (["x", "--data", str(data)], "--nearest to find texts in the data"),
        (["x", "--nearest", "2", "--out", str(tmp_path / "a.npy")], "use one of them"),
        (["x", "--out", str(tmp_path / "a.txt")], ".npy, .csv"),
        (["x", "--nearest", "-1"], "--nearest is -1"),
    ]:
        assert main(["embed", path, *words]) == 2
        assert message in capsys.readouterr().err
    assert main(["embed", str(tmp_path / "none"), "x"]) == 4
    assert "there is no such directory" in capsys.readouterr().err
