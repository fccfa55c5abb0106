"""Tokenizers that came from somewhere else and go out again: `transformers` gives the ids that we give, without protobuf."""

import io
import json
import os
import struct
import sys
from pathlib import Path

import pytest
import sentencepiece
import torch
import transformers
from test_directories import same_bytes

from saccade.data import Batch, Text
from saccade.decoding import generate
from saccade.models.build import new
from saccade.models.load import load
from saccade.text import load_llama2c_tokenizer
from saccade.text import load_tokenizer as load_tokenizer
from saccade.text.backends.sentencepiece_proto import encode_field
from support.exports import CORPUS, PUBLISHED, export_model, make_config, plain_texts

FAMILY = {family.name: family for family in PUBLISHED}
IDENTITY = {"normalization_rule_name": "identity"}
LLAMA = {"model_type": "bpe", "byte_fallback": True, "remove_extra_whitespaces": False, "vocab_size": 420} | IDENTITY
T5 = {"bos_id": -1, "pad_id": 0, "eos_id": 1, "unk_id": 2, "vocab_size": 120}
PIECES = {  # the family, the file's name, and how SentencePiece was trained
    "llama": ("llama", "tokenizer.model", LLAMA),
    "llama without a space in front": ("llama", "tokenizer.model", LLAMA | {"add_dummy_prefix": False}),
    "llama with a table": ("llama", "tokenizer.model", {"model_type": "bpe", "vocab_size": 150}),
    "t5": ("t5", "spiece.model", T5),
    "t5 without a table": ("t5", "spiece.model", T5 | IDENTITY),
    "t5 with bytes": ("t5", "spiece.model", T5 | {"byte_fallback": True, "vocab_size": 400}),
}


def pieces(**options):
    out = io.BytesIO()
    given = {"hard_vocab_limit": False, "minloglevel": 2, "num_threads": 1} | options
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=out, **given)
    return out.getvalue()


def with_tokenizer(family, tokenizer):
    """A new model that speaks a tokenizer."""
    torch.manual_seed(3)
    model = new(
        FAMILY[family],
        make_config(
            FAMILY[family], vocab=tokenizer.vocab, decoder_start_id=tokenizer.pad_id or 0, pad_id=tokenizer.pad_id
        ),
    )
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name and name.endswith("weight") else 0.0, std=0.7)
    model.tokenizer = tokenizer
    return model.eval()


def compare(made, count=1000, *, strip=False):
    found = plain_texts(made.tokenizer, count)
    ours = made.tokenizer.encode_batch(found)
    theirs = made.words(found)["input_ids"]
    assert [text for text, a, b in zip(found, theirs, ours, strict=True) if a != b.ids] == []
    for text, one in zip(found[:200], ours, strict=False):
        back = made.tokenizer.decode(one.ids)
        assert made.words.decode(one.ids, skip_special_tokens=True) == (back.strip() if strip else back), repr(text)


@pytest.mark.parametrize("name", PIECES)
def test_sentencepiece(name, tmp_path, monkeypatch):
    for protobuf in ("google", "google.protobuf"):
        monkeypatch.setitem(sys.modules, protobuf, None)
    family, file, options = PIECES[name]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / file).write_bytes(pieces(**options))
    tokenizer = load_tokenizer(tmp_path / "raw")
    assert type(tokenizer.backend).__name__ == "SentencePieceBackend"
    made = export_model(with_tokenizer(family, tokenizer), tmp_path / "out")
    assert (made.words.bos_token_id, made.words.eos_token_id) == (tokenizer.bos_id, tokenizer.eos_id)
    compare(made)
    assert tokenizer.encode("a").ids[0 if family == "llama" else -1] == (1 if family == "llama" else tokenizer.eos_id)
    assert type(made.tokenizer.backend).__name__ == "SentencePieceBackend"  # we go on reading the model itself
    assert [one.ids for one in made.tokenizer.encode_batch(CORPUS)] == [
        one.ids for one in tokenizer.encode_batch(CORPUS)
    ]
    made.ours.save(tmp_path / "twice")
    same_bytes(tmp_path / "out", tmp_path / "twice")


def test_llama2c_begins_with_its_token_and_writes_the_same(tmp_path):
    learnt = sentencepiece.SentencePieceProcessor(model_proto=pieces(**LLAMA))
    content = struct.pack("<I", 20)
    for id in range(len(learnt)):
        piece = learnt.id_to_piece(id).replace("▁", " ").encode()
        content += struct.pack("<fi", learnt.get_score(id), len(piece)) + piece
    (tmp_path / "tok.bin").write_bytes(content)
    made = export_model(with_tokenizer("llama", load_llama2c_tokenizer(tmp_path / "tok.bin")), tmp_path / "out")
    compare(made)
    for prompt in ("the cat", "so it goes on", "12 = 42"):
        ids = made.tokenizer.encode(prompt).ids
        assert ids[0] == made.tokenizer.bos_id == made.words(prompt)["input_ids"][0]
        ours = generate(made.ours, Batch(Text.pad([ids])), stop_ids=made.tokenizer.eos_id, max_new_tokens=16)[0]
        theirs = made.theirs.generate(**made.words(prompt, return_tensors="pt"), max_new_tokens=16, do_sample=False)
        assert theirs[0, len(ids) :][: len(ours)].tolist() == ours


def test_what_a_tokenizer_json_cannot_say_is_left_to_sentencepiece(tmp_path):
    """Pieces of the user's own are read before anything else, which a tokenizer.json has no word for."""
    (tmp_path / "tokenizer.model").write_bytes(pieces(**LLAMA, user_defined_symbols=["the cat"]))
    load_tokenizer(tmp_path).save(tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())["tokenizer_class"] == "LlamaTokenizer"


@pytest.mark.parametrize(
    "more",
    [
        b"\xc3\x01\xc4\x01",
        encode_field(2, encode_field(3, b"x")),
        encode_field(1, encode_field(1, b"y" * 3000) + encode_field(2, 0.0)),
    ],
)
def test_a_strange_model_is_saved_without_a_tokenizer_json(more, tmp_path):
    """A group, which SentencePiece passes over; a kind of model that is no number; a piece of 3,000 letters."""
    (tmp_path / "tokenizer.model").write_bytes(pieces(**LLAMA) + more)
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.save(tmp_path / "out")
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    assert load_tokenizer(tmp_path / "out").encode("the cat").ids == tokenizer.encode("the cat").ids


def test_marian(tmp_path):
    """Two SentencePiece models over one vocabulary, which `transformers` reads with SentencePiece too."""
    raw = tmp_path / "raw"
    raw.mkdir()
    source, target = (pieces(vocab_size=size, bos_id=-1, eos_id=0, unk_id=1) for size in (90, 110))
    names = ["</s>", "<unk>"]
    for side, content in (("source", source), ("target", target)):
        (raw / f"{side}.spm").write_bytes(content)
        learnt = sentencepiece.SentencePieceProcessor(model_proto=content)
        names += [learnt.id_to_piece(id) for id in range(len(learnt))]
    vocab = {name: id for id, name in enumerate([*dict.fromkeys(names), "<pad>"])}
    (raw / "vocab.json").write_text(json.dumps(vocab))
    made = export_model(with_tokenizer("marian", load_tokenizer(raw)), tmp_path / "out")
    compare(made, 300, strip=True)  # its class takes off spaces at either end of what was written
    assert made.theirs.config.pad_token_id == made.theirs.config.decoder_start_token_id == vocab["<pad>"]
    assert made.theirs.generation_config.eos_token_id == vocab["</s>"] == 0


def test_wordpiece_of_bert(tmp_path):
    letters = [chr(code) for code in range(97, 123)]
    lines = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *letters,
        *(f"##{x}" for x in letters),
        "the",
        "cat",
        ",",
        "?",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(lines))
    made = export_model(with_tokenizer("bert", load_tokenizer(tmp_path)), tmp_path / "out")
    compare(made)
    pair, theirs = made.tokenizer.encode("the cat", "a mat"), made.words("the cat", "a mat")
    assert (theirs["input_ids"], theirs["token_type_ids"]) == (pair.ids, pair.segment_ids)
    assert made.words.mask_token_id == made.tokenizer.mask_id == 4


def kept_directory(home, **files):
    """A LLaMA as others publish it, with a chat template and settings for generation."""
    (home / "raw").mkdir()
    (home / "raw" / "tokenizer.model").write_bytes(pieces(**LLAMA))
    with_tokenizer("llama", load_tokenizer(home / "raw")).save(home / "in")
    for name, content in files.items():
        path = home / "in" / name.replace("_json", ".json").replace("_jinja", ".jinja")
        stated = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(content if isinstance(content, str) else json.dumps(stated | content), encoding="utf-8")
    return home / "in"


TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\r\n{% endfor %}"


@pytest.mark.parametrize(
    "files",
    [{"chat_template_jinja": TEMPLATE}, {"tokenizer_config_json": {"chat_template": TEMPLATE}}],
    ids=["file", "key"],
)
def test_the_chat_template_is_kept(files, tmp_path):
    where = kept_directory(tmp_path, **files)
    made = export_model(load(where), tmp_path / "out")
    assert made.tokenizer.chat_template.replace("\r", "") == TEMPLATE.replace("\r", "")
    wanted = transformers.AutoTokenizer.from_pretrained(where)
    talk = [{"role": "user", "content": "the cat?"}]
    assert made.words.apply_chat_template(talk, tokenize=False) == wanted.apply_chat_template(talk, tokenize=False)
    assert "user: the cat?" in made.words.apply_chat_template(talk, tokenize=False)
    made.ours.save(tmp_path / "twice")
    same_bytes(tmp_path / "out", tmp_path / "twice")


def test_settings_for_generation_are_kept(tmp_path):
    stated = {"temperature": 0.6, "do_sample": True, "eos_token_id": [2, 7], "auto_map": {"x": "y"}}
    ids = {"eos_token_id": [2, 7], "pad_token_id": 3, "bos_token_id": 0}
    where = kept_directory(tmp_path, generation_config_json=stated, config_json=ids)
    made = export_model(load(where), tmp_path / "out")
    found = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    # the tokenizer begins with 1; that 2 ends a text is true, and 7 may do so too
    assert found == {
        "temperature": 0.6,
        "do_sample": True,
        "eos_token_id": [2, 7],
        "pad_token_id": 3,
        "bos_token_id": 1,
    }
    assert made.theirs.config.bos_token_id == 1
    made.ours.save(tmp_path / "twice")
    same_bytes(tmp_path / "out", tmp_path / "twice")


def test_ids_beyond_the_vocabulary_are_not_written(tmp_path):
    """As in a small GPT-2 whose config was left as it is published: it says 50256."""
    config = transformers.GPT2Config(vocab_size=53, n_embd=12, n_layer=1, n_head=3, n_positions=19)
    transformers.GPT2LMHeadModel(config).save_pretrained(tmp_path / "in")
    load(tmp_path / "in").save(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (found["bos_token_id"], found["eos_token_id"]) == (None, None)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "out").eos_token_id is None


def test_t5_begins_with_nought_and_pads_with_another(tmp_path):
    config = transformers.T5Config(vocab_size=53, d_model=12, d_kv=4, d_ff=17, num_layers=1, num_heads=3)
    config.decoder_start_token_id, config.pad_token_id = 0, 5
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path / "in")
    ours = load(tmp_path / "in")
    assert ours.config.decoder_start_id == 0
    ours.save(tmp_path / "out")
    found = json.loads((tmp_path / "out" / "config.json").read_text())
    assert (found["decoder_start_token_id"], found["pad_token_id"], found["eos_token_id"]) == (0, 5, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["bert_uncased", "t5", "gpt2_bpe", "marian_enpt_tiny", "tok512.bin"])
def test_published_vocabularies(name, tmp_path):
    home = Path(os.environ.get("SACCADE_DATA", "data"))
    path = home / ("weights" if name in ("marian_enpt_tiny", "tok512.bin") else "tokenizers") / name
    if not path.exists():
        pytest.skip(f"{path} is not here; set SACCADE_DATA to the directory that has it.")
    if name == "marian_enpt_tiny":  # 32,000 pieces, and a table of replacements
        (tmp_path / "tokenizer.model").write_bytes((path / "vocab.enpt.spm").read_bytes())
        path = tmp_path
    tokenizer = load_llama2c_tokenizer(path) if path.suffix == ".bin" else load_tokenizer(path)
    family = {"bert_uncased": "bert", "t5": "t5", "gpt2_bpe": "gpt2"}.get(name, "llama")
    compare(export_model(with_tokenizer(family, tokenizer), tmp_path / "out"))
