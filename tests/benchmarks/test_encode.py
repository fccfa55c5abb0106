"""Benchmark of sentence encoders: the selection of texts, and the summary of the measurements."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from benchmarks.encode import Options, choose_texts, compare_vectors, core_round_trip, summarize_ratios

from saccade import text
from saccade.errors import DataError

LINES = ["one two three", "one two", "three three three three", "two one", "two two three three", ""]


@pytest.fixture
def options(tmp_path):
    text.train_tokenizer(LINES, "words", 20).save(tmp_path)
    (tmp_path / "lines.tsv").write_text("\n".join(f"{line}\tanother column" for line in LINES), encoding="utf-8")
    return Options(tmp_path, tmp_path / "lines.tsv", tokens=(4, 5), texts=3)


def test_texts_have_as_many_tokens_as_needed(options):
    chosen, mean = choose_texts(options)
    counts = [len(line.split()) for line in chosen]
    assert len(set(chosen)) == 3
    assert set(counts) <= {4, 5}
    assert mean == round(sum(counts) / 3, 1)
    with pytest.raises(DataError, match=r"texts of 9 to 9 tokens; 3 are needed"):
        choose_texts(replace(options, tokens=(9, 9)))


def test_ratios_are_those_of_the_same_round():
    """The second round was ten times as slow for all: no ratio shows it."""
    found = summarize_ratios({"saccade int8": [40.0, 5.0, 60.0], "onnxruntime float32": [20.0, 2.0, 30.0]})
    assert found == {"saccade int8 over onnxruntime float32": {"median": 2.0, "low": 2.0, "high": 2.5, "rounds": 3}}


def test_vectors_are_compared_with_float32():
    vectors = {"saccade float32": [[1.0, 0.0], [0.0, 1.0]], "onnxruntime int8": [[1.0, 0.0], [0.6, 0.8]]}
    workers = [SimpleNamespace(name=name, load_response={"vectors": rows}) for name, rows in vectors.items()]
    found = compare_vectors(workers)
    assert found["saccade float32"] == {"mean": 1.0, "least": 1.0}
    assert found["onnxruntime int8"] == {"mean": 0.9, "least": 0.8}


def test_a_round_trip_takes_time():
    assert core_round_trip(10) >= 0
