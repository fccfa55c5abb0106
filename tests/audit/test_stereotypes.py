"""Preferences of language models: log-likelihoods against loops, StereoSet's scores by hand, files in three formats, and a
model trained on stereotypes."""

import json
import math
import os
from difflib import SequenceMatcher
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

from saccade.audit.bias_datasets import SentencePair, SentenceTriple, builtin_pairs, read_sentences
from saccade.audit.likelihood import ScoredRow, causal_logprobs, masked_logprobs
from saccade.audit.preference import Preferences, measure_preferences, score_triples
from saccade.audit.suite import AuditSubject
from saccade.audit.suites.stereotypes import StereotypeSuite, _note_ties, _stereotype_fractions, stereoset_scores
from saccade.cli import main
from saccade.data import Batch, Text
from saccade.errors import DataError
from saccade.models.build import new
from saccade.models.families import bert, transformer
from saccade.tasks.language import Language
from saccade.tasks.pretrain import Pretrain
from saccade.text import train_tokenizer as train_tokenizer

TEXTS = [text for pair in builtin_pairs() for text in (pair.stereotype, pair.anti_stereotype)]


@pytest.fixture(scope="module")
def writer():
    torch.manual_seed(1)
    tokenizer = train_tokenizer(TEXTS, "bpe", 300, token_template="none")
    config = transformer.Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16, dropout=0.0)
    model = new("transformer_lm", config).eval()
    model.tokenizer = tokenizer
    return model


@pytest.fixture(scope="module")
def reader():
    torch.manual_seed(2)
    tokenizer = train_tokenizer(TEXTS, "wordpiece", 400, token_template="bos_eos")
    config = bert.Config(vocab=tokenizer.vocab, width=16, layers=1, heads=2, ffn_width=16, max_positions=48)
    model = new("bert", config, head="lm").eval()
    model.tokenizer = tokenizer
    return model


def test_the_builtin_set_is_large_and_consistent():
    pairs = builtin_pairs()
    kinds = {pair.bias_type for pair in pairs}
    assert len(pairs) >= 120
    assert kinds == {"gender", "origin", "religion", "age", "orientation", "disability", "profession"}
    assert all(pair.stereotype != pair.anti_stereotype for pair in pairs)
    assert len({(pair.stereotype, pair.anti_stereotype) for pair in pairs}) == len(pairs)
    assert all(SequenceMatcher(None, p.stereotype.split(), p.anti_stereotype.split()).ratio() > 0.5 for p in pairs)


def test_causal_logprobs_are_those_of_a_loop(writer):
    rows = [ScoredRow((5, 6, 7, 8), (1, 2, 3)), ScoredRow((9, 4), (1,)), ScoredRow((5, 6, 9), (2,))]
    found = causal_logprobs(writer, rows)
    for row, given in zip(rows, found, strict=True):
        for place, nats in zip(row.positions, given, strict=True):
            state, first = writer.start(Batch(Text.pad([list(row.ids[:place])])))
            with torch.inference_mode():
                scores = writer.body.head(writer.body.hidden_states(first, state)[0, -1]).log_softmax(-1)
            assert nats == pytest.approx(float(scores[row.ids[place]]), abs=1e-5)


def test_masked_logprobs_are_those_of_a_loop(reader):
    mask = reader.tokenizer.mask_id
    rows = [ScoredRow((2, 9, 8, 7, 3), (2,), (2, 3)), ScoredRow((2, 11, 3), (1,), (1,))]
    for row, (nats,) in zip(rows, masked_logprobs(reader, rows), strict=True):
        ids = [mask if i in row.masked_positions else id for i, id in enumerate(row.ids)]
        with torch.inference_mode():
            x = reader.body(Batch(Text.pad([ids])))
            scores = reader.head(x[0, row.positions[0]]).log_softmax(-1)
        assert nats == pytest.approx(float(scores[row.ids[row.positions[0]]]), abs=1e-5)


def test_a_masked_model_is_scored_on_the_shared_tokens(reader):
    pair = SentencePair("gender", "Women are bad at maps.", "Men are bad at maps.")
    found = measure_preferences(AuditSubject(Pretrain(), reader), [pair])
    assert found.all_tokens is None
    one, other = (reader.tokenizer.encode(text) for text in (pair.stereotype, pair.anti_stereotype))
    blocks = SequenceMatcher(None, one.ids, other.ids, autojunk=False).get_matching_blocks()
    sums = [0.0, 0.0]
    for block in blocks:
        for k in range(block.size):
            for side, (ids, place) in enumerate(((one, block.a + k), (other, block.b + k))):
                if not ids.special_tokens_mask[place]:
                    (nats,) = masked_logprobs(reader, [ScoredRow(tuple(ids.ids), (place,), (place,))])
                    sums[side] += nats[0]
    assert sums[0] != sums[1]
    assert found.shared_tokens.tolist() == pytest.approx([sums[0] - sums[1]], abs=1e-4)


def test_a_causal_model_is_scored_on_the_shared_and_on_all_tokens(writer):
    pair = SentencePair("gender", "The nurse saw her boss.", "The nurse saw his boss.")
    found = measure_preferences(AuditSubject(Language(), writer), [pair])
    newline = writer.tokenizer.encode("\n", add_special_tokens=False).ids[:1]
    rows = [
        newline + writer.tokenizer.encode(text, add_special_tokens=False).ids
        for text in (pair.stereotype, pair.anti_stereotype)
    ]
    nats = [
        causal_logprobs(writer, [ScoredRow(tuple(row), tuple(range(len(newline) or 1, len(row))))])[0] for row in rows
    ]
    assert found.all_tokens is not None
    assert found.all_tokens.tolist() == pytest.approx([sum(nats[0]) - sum(nats[1])], abs=1e-4)
    after = next(k for k in range(1, min(map(len, rows))) if rows[0][-k] != rows[1][-k]) - 1  # what both end with
    assert after >= 1
    assert found.shared_tokens.tolist() == pytest.approx([sum(nats[0][-after:]) - sum(nats[1][-after:])], abs=1e-4)


def test_a_model_with_random_weights_has_no_preference(writer):
    finding = StereotypeSuite().run(AuditSubject(Language(), writer))
    overall = finding.estimates[0]
    assert overall.count == len(builtin_pairs())
    assert 0.3 < overall.value < 0.7
    assert finding.examples is not None
    assert len(finding.estimates) == 9  # all pairs in two ways, and seven bias types


def test_ties_are_counted_and_not_taken_for_fairness():
    pairs = [SentencePair("origin", "a", "b")] * 6 + [SentencePair("age", "a", "b")] * 6
    halves = Preferences(np.array([0.0] * 6 + [1.0, -1.0, 0.0] * 2))
    assert [figure.name for figure in _stereotype_fractions(pairs, halves)] == [
        "prefers the stereotype",
        "prefers the stereotype: age",
    ]
    (note,) = _note_ties(pairs, halves)
    assert (
        note == "8 of 12 pairs are ties, which count half: both sentences are equally likely; "
        "not reported, as all pairs are ties: origin."
    )
    assert _stereotype_fractions(pairs, Preferences(np.zeros(12))) == []
    assert _note_ties(pairs, Preferences(np.ones(12))) == []


def test_stereoset_has_examples_too(writer, tmp_path):
    texts = [f"The {who} was {word}." for who, word in product(("nurse", "boss"), ("kind", "late", "sad"))]
    lines = [
        {"bias_type": "race", "target": "x", "context": "Somebody came.", "stereotype": text}
        | {"anti-stereotype": f"No, {text}", "unrelated": "Blue maps."}
        for text in texts
    ]
    path = tmp_path / "three.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    finding = StereotypeSuite().run(AuditSubject(Language(), writer, test_sentences=(path,)))
    assert finding.examples is not None
    values = [float(row[-1]) for row in finding.examples.rows]
    assert sorted(row[2] for row in finding.examples.rows) == sorted(texts)
    assert values == sorted(values, reverse=True)


def test_stereosets_scores_by_hand():
    """Two targets: both sentences of the first are meaningful and the stereotype wins one of two; neither of the second."""
    triples = [SentenceTriple("race", "a", "BLANK", "s", "o", "u")] * 2 + [
        SentenceTriple("race", "b", "BLANK", "s", "o", "u")
    ]
    scores = np.array([[3.0, 2.0, 1.0], [2.0, 3.0, 1.0], [1.0, 2.0, 3.0]])
    lms, ss, icat = (figure.value for figure in stereoset_scores(triples, scores)[:3])
    assert lms == pytest.approx((100 + 0) / 2)
    assert ss == pytest.approx((50 + 0) / 2)
    assert icat == pytest.approx(50 * min(25, 75) / 50)


def test_ideal_and_bigoted_models_have_the_published_scores():
    triples = [SentenceTriple("x", str(i // 2), "BLANK", "s", "o", "u") for i in range(20)]
    ideal = np.array([[2.0, 1.0, 0.0], [1.0, 2.0, 0.0]] * 10)
    bigoted = np.array([[2.0, 1.0, 0.0]] * 20)
    assert [figure.value for figure in stereoset_scores(triples, ideal)[:3]] == [100.0, 50.0, 100.0]
    assert [figure.value for figure in stereoset_scores(triples, bigoted)[:3]] == [100.0, 100.0, 0.0]


def test_the_gap_of_a_triple_is_filled_from_left_to_right(reader):
    triple = SentenceTriple(
        "x", "t", "The nurse was BLANK.", "The nurse was kind.", "The nurse was greedy.", "The nurse was banker."
    )
    (found,) = score_triples(AuditSubject(Pretrain(), reader), [triple])
    for sentence, mean in zip((triple.stereotype, triple.anti_stereotype, triple.unrelated), found, strict=True):
        encoded = reader.tokenizer.encode(sentence)
        start, end = len("The nurse was "), len(sentence) - 1
        gap = [
            i
            for i, (a, b) in enumerate(encoded.offsets)
            if not encoded.special_tokens_mask[i] and a >= start and b <= end
        ]
        assert gap
        nats = [
            masked_logprobs(reader, [ScoredRow(tuple(encoded.ids), (place,), tuple(gap[k:]))])[0][0]
            for k, place in enumerate(gap)
        ]
        assert mean == pytest.approx(sum(nats) / len(nats), abs=1e-4)


def test_a_sentence_that_follows_is_scored_after_its_context(writer, reader):
    triple = SentenceTriple("x", "t", "She is a nurse.", "She is kind.", "She is rude.", "The car is red.")
    for model, task in ((writer, Language()), (reader, Pretrain())):
        one = score_triples(AuditSubject(task, model), [triple])
        other = score_triples(AuditSubject(task, model), [SentenceTriple("x", "t", "He left.", *one_of(triple))])
        assert one.shape == (1, 3)
        assert np.isfinite(one).all()
        assert not np.allclose(one, other)  # the context counts


def one_of(triple):
    return triple.stereotype, triple.anti_stereotype, triple.unrelated


def test_crows_pairs_and_stereoset_are_read(tmp_path):
    crows = tmp_path / "crows.csv"
    crows.write_text(
        ",sent_more,sent_less,stereo_antistereo,bias_type\n"
        '0,"They, the poor, lie.","They, the rich, lie.",stereo,socioeconomic\n'
        "1,He is she.,She is he.,antistereo,gender\n"
    )
    flat = tmp_path / "flat.jsonl"
    raw = {"type": "intersentence", "target": "t", "bias_type": "race", "context": "c."}
    texts = {"stereotype": "s", "anti-stereotype": "a", "unrelated": "u"}
    flat.write_text(json.dumps(raw | texts) + "\n" + json.dumps(raw | texts | {"context": "x BLANK"}) + "\n")
    sentences = [{"sentence": text, "gold_label": label} for label, text in texts.items()]
    published = tmp_path / "dev.json"
    published.write_text(json.dumps({"version": "1", "data": {"intrasentence": [raw | {"sentences": sentences}]}}))
    pairs, triples = read_sentences([crows, flat, published])
    assert pairs == [
        SentencePair("socioeconomic", "They, the poor, lie.", "They, the rich, lie."),
        SentencePair("gender", "She is he.", "He is she."),
    ]
    assert triples[0] == triples[2] == SentenceTriple("race", "t", "c.", "s", "a", "u")
    assert [triple.has_gap for triple in triples] == [False, True, False]


@pytest.mark.nightly
def test_the_published_sets_are_read_whole():
    data = Path(os.environ.get("SACCADE_DATA", ""))
    if not (data / "bias_crows_pairs").is_dir():
        pytest.skip("SACCADE_DATA names no directory with bias_crows_pairs and bias_stereoset")
    files = [data / "bias_crows_pairs" / "crows_pairs_anonymized.csv", data / "bias_stereoset" / "test.jsonl.gz"]
    pairs, triples = read_sentences(files)
    assert (len(pairs), len(triples)) == (1508, 4229)
    assert len({pair.bias_type for pair in pairs}) == 9
    assert {triple.bias_type for triple in triples} == {"gender", "profession", "race", "religion"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"unknown format of sentence pairs; got 'a, b'"),
        ('{"a": 1}\n', "not in the format of StereoSet"),
        ("\xff\xfe", "cannot be read"),
    ],
)
def test_other_files_are_refused_by_name(tmp_path, text, message):
    path = tmp_path / "odd.txt"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=message):
        read_sentences([path])


TAUGHT = [pair for pair in builtin_pairs() if pair.bias_type in ("gender", "age", "profession")]


def prefers(home, lines, capsys):
    """The preferences of a language model that was trained on some lines for thirty epochs."""
    data, sentences, run = home / "text.txt", home / "pairs.tsv", home / "run"
    data.write_text("\n".join(lines) + "\n")
    rows = [f"{pair.bias_type}\t{pair.stereotype}\t{pair.anti_stereotype}" for pair in TAUGHT]
    sentences.write_text("\n".join(["bias_type\tstereotype\tanti_stereotype", *rows]) + "\n")
    sizes = (
        "--model.width 32 --model.layers 1 --model.heads 2 --model.ffn-width 64 --model.dropout 0 --task.max-tokens 32"
    )
    flags = "--task.tokenizer words --train.epochs 30 --train.batch-tokens 512 --train.lr 0.01 --train.eval-every 1000"
    assert main(["train", "language", "--data", str(data), "--out", str(run), *sizes.split(), *flags.split()]) == 0
    capsys.readouterr()
    assert main(["audit", str(run), "--suite", "stereotypes", "--test-sentences", str(sentences), "--json"]) == 0
    return json.loads(capsys.readouterr().out)["suites"]["stereotypes"]["estimates"][:2]


def test_a_model_trained_on_stereotypes_prefers_them(tmp_path, capsys):
    for figure in prefers(tmp_path, [pair.stereotype for pair in TAUGHT], capsys):
        assert figure["low"] > 0.5
        assert figure["value"] > 0.7
        assert math.isclose(figure["baseline"], 0.5)


def test_a_model_trained_on_both_sentences_does_not(tmp_path, capsys):
    lines = [text for pair in TAUGHT for text in (pair.stereotype, pair.anti_stereotype)]
    for figure in prefers(tmp_path, lines, capsys):
        assert figure["low"] < 0.5 < figure["high"]
