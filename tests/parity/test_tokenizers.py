"""Ids and offsets equal `transformers` on ten thousand strings for each kind, and llama.cpp's vectors for real vocabularies.

The vectors and vocabularies are not part of the project: SACCADE_DATA names their directory.
"""

import functools
import gzip
import json
import os
import struct
import warnings
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from saccade.text import TOKENIZER_KINDS, load_llama2c_tokenizer, load_tokenizer, train_tokenizer

pytestmark = pytest.mark.nightly
DATA = Path(os.environ.get("SACCADE_DATA", "data"))
STRINGS = 10_000
CORPUS = [
    "the cat sat on the mat, didn't it? 12 = 42",
    "naïve café für 5 € — 漢字と仮名 😀👩‍👩‍👧",
    "שלום عالم\n\n\tтак",
] * 20
VOCAB = {"bpe": 400, "wordpiece": 250, "unigram": 150, "words": 60, "characters": None, "bytes": None}
ODD = [
    "😀👩‍👩‍👧‍👦🇩🇪",
    "e\u0301\u0327",
    "שלום",
    "\u202eعالم",
    "\x00",
    "\r\n",
    "  ",
    "\u3000",
    "ﬁ½①",
    "漢字",
    "İßſ",
    "�",
    "the cat",
]
TEXT = st.one_of(
    st.text(max_size=60), st.lists(st.one_of(st.sampled_from(ODD), st.text(max_size=6)), max_size=12).map("".join)
)


def published(name):
    path = DATA / "tokenizers" / name
    if not path.exists():
        pytest.skip(f"{path} is not here; set SACCADE_DATA to the directory that has tokenizers/.")
    return path


@functools.cache
def strings():
    """Ten thousand different strings, the same for every kind."""
    found = {}  # in order

    @seed(3)
    @settings(
        max_examples=STRINGS + STRINGS // 2,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(text=TEXT)
    def draw(text):
        found[text] = None

    draw()
    return list(found)


def compare(ours, theirs, *, offsets=True):
    """No differences in ids, and none in offsets where the other side has them."""
    special = [*ours.special_tokens, "<0x", ">>"]  # a text that spells a special token is the unit tests' business
    texts = [text for text in strings() if not any(name in text for name in special)][:STRINGS]
    assert len(texts) == STRINGS
    asked = theirs(texts, return_offsets_mapping=offsets, truncation=False, padding=False)
    found = ours.encode_batch(texts)
    for i, text in enumerate(texts):
        assert found[i].ids == asked["input_ids"][i], repr(text)
        assert not offsets or found[i].offsets == asked["offset_mapping"][i], repr(text)
    long = "the naïve cat 😀 שלום e\u0301 " * 2_000  # 50,000 characters
    assert ours.encode(long).ids == theirs(long)["input_ids"]
    print(f"{len(texts):,} strings, no differences")


def fast(path):
    from transformers import PreTrainedTokenizerFast

    theirs = PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), split_special_tokens=True)
    theirs.backend_tokenizer.no_truncation()  # some files cut and pad by themselves
    theirs.backend_tokenizer.no_padding()
    return theirs


def gpt2_files():
    path = published("gpt2_bpe")
    vocab = json.loads((path / "encoder.json").read_text())
    lines = (path / "vocab.bpe").read_text(encoding="utf-8").split("\n")[1:]
    return vocab, [tuple(line.split(" ")) for line in lines if line]


def gpt2():
    from transformers import GPT2Tokenizer

    vocab, merges = gpt2_files()
    return GPT2Tokenizer(vocab=vocab, merges=merges, split_special_tokens=True)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_trained(kind, tmp_path):
    ours = train_tokenizer(CORPUS, kind, VOCAB[kind], token_template="bos_eos")
    ours.save(tmp_path)
    compare(ours, fast(tmp_path))
    compare(load_tokenizer(tmp_path), fast(tmp_path))


@pytest.mark.parametrize("name", ["bert_uncased", "t5"])
def test_published_json(name):
    compare(load_tokenizer(published(name)), fast(published(name)))


def test_published_bert_vocabulary():
    from transformers import BertTokenizer

    path = published("bert_uncased") / "vocab.txt"
    compare(load_tokenizer(path), BertTokenizer(vocab=str(path), split_special_tokens=True))


def test_published_gpt2_vocabulary():
    compare(load_tokenizer(published("gpt2_bpe")), gpt2())


def test_roberta_vocabulary(tmp_path):
    from transformers import RobertaTokenizer

    vocab, merges = gpt2_files()
    vocab |= {name: len(vocab) + i for i, name in enumerate(["<s>", "</s>", "<pad>", "<unk>", "<mask>"])}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab))
    (tmp_path / "merges.txt").write_text("\n".join(" ".join(pair) for pair in merges), encoding="utf-8")
    compare(load_tokenizer(tmp_path), RobertaTokenizer(vocab=vocab, merges=merges, split_special_tokens=True))


def test_marian(tmp_path):
    """Both sides read with a published model of 32,000 pieces; `transformers` has no offsets for it."""
    from transformers import MarianTokenizer

    path = DATA / "weights" / "marian_enpt_tiny" / "vocab.enpt.spm"
    if not path.exists():
        pytest.skip(f"{path} is not here; set SACCADE_DATA to the directory that has weights/.")
    single = load_tokenizer(path)
    for side in ("source", "target"):
        (tmp_path / f"{side}.spm").write_bytes(path.read_bytes())
    vocab = {single.id_to_token(id): id for id in range(single.vocab)} | {"<pad>": single.vocab}
    (tmp_path / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package for punctuation
        theirs = MarianTokenizer.from_pretrained(tmp_path, split_special_tokens=True)
    compare(load_tokenizer(tmp_path), theirs, offsets=False)


@pytest.mark.parametrize("name", ["bert_uncased", "t5", "gpt2_bpe"])
def test_a_hundred_thousand_sentences(name):
    path, corpus = published(name), DATA / "tatoeba_deu_eng" / "deu.txt.gz"
    if not corpus.exists():
        pytest.skip(f"{corpus} is not here; set SACCADE_DATA to the directory that has it.")
    rows = gzip.decompress(corpus.read_bytes()).decode().splitlines()
    sentences = [sentence for row in rows[-50_000:] for sentence in row.split("\t")[:2]]
    asked = (gpt2() if name == "gpt2_bpe" else fast(path))(sentences, return_offsets_mapping=True)
    found = load_tokenizer(path).encode_batch(sentences)
    assert len(found) == 100_000
    assert [one.ids for one in found] == asked["input_ids"]
    assert [one.offsets for one in found] == asked["offset_mapping"]


def gguf_pieces(path):
    """The pieces and scores in a GGUF file: after 24 bytes, pairs of a name and a typed value."""
    content, place = path.read_bytes(), 24
    plain = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def take(layout):
        nonlocal place
        (found,) = struct.unpack_from("<" + layout, content, place)
        place += struct.calcsize(layout)
        return found

    def value(kind):
        nonlocal place
        if kind == 8:
            length = take("Q")
            place += length
            return content[place - length : place]
        if kind == 9:
            inner, count = take("I"), take("Q")
            return [value(inner) for _ in range(count)]
        return take(plain[kind])

    (count,) = struct.unpack_from("<Q", content, 16)
    found = {}
    for _ in range(count):
        name = value(8).decode()
        found[name] = value(take("I"))
    return found["tokenizer.ggml.tokens"], found["tokenizer.ggml.scores"]


def llama(tmp_path):
    """LLaMA's vocabulary, rewritten in llama2.c's format."""
    tokens, scores = gguf_pieces(published("llama_cpp_vectors") / "ggml-vocab-llama-spm.gguf")
    content = struct.pack("<I", max(map(len, tokens)))
    for token, score in zip(tokens, scores, strict=True):
        piece = token.replace("▁".encode(), b" ")
        content += struct.pack("<fi", score, len(piece)) + piece
    (tmp_path / "tok.bin").write_bytes(content)
    return load_llama2c_tokenizer(tmp_path / "tok.bin")


@pytest.mark.parametrize("name", ["bert-bge", "gpt-2", "llama-spm"])
def test_the_vectors_of_llama_cpp(name, tmp_path):
    where = published("llama_cpp_vectors")
    makers = {
        "bert-bge": lambda: load_tokenizer(published("bert_uncased")),
        "gpt-2": lambda: load_tokenizer(published("gpt2_bpe")),
        "llama-spm": lambda: llama(tmp_path),
    }
    tokenizer = makers[name]()
    texts = (where / f"ggml-vocab-{name}.gguf.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = (where / f"ggml-vocab-{name}.gguf.out").read_text().split("\n")
    answers = [[int(id) for id in line.split()] for line in lines[: len(texts)]]
    assert len(texts) > 40
    assert len(answers) == len(texts)
    for text, answer in zip(texts, answers, strict=True):
        assert tokenizer.encode(text, add_special_tokens=False).ids == answer, repr(text)
    print(f"{name}: {len(texts)} vectors, no differences")
