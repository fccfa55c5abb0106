"""Tokenizers: the same ids and offsets as `transformers`, exact round trips, no forged tokens, bounded files."""

import io
import json
import os
import struct
import warnings

import pytest
import sentencepiece
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from saccade.text import (
    SPECIAL_TOKENS,
    TEMPLATES,
    TOKENIZER_KINDS,
    StreamDecoder,
    Tokenizer,
    load_llama2c_tokenizer,
    load_tokenizer,
    train_tokenizer,
)
from saccade.text.backends.hf_tokenizers import HFBackend
from saccade.text.loading.safe_regex import check_regex

CORPUS = ["the cat sat on the mat, didn't it?", "a naïve café: 12 euros!", "the dog and the cat — friends (really)"] * 5
TEXTS = [
    "the cat",
    "  two  spaces ",
    "",
    " ",
    "naïve 😀 e\u0301",
    "The mat\n\nthe\tdog",
    "\x00a\u200db",
    "שלום the 漢字",
    "▁x_y",
    "￼�",
]
FORGED = [
    "[MASK]",
    "<mask>",
    "</s>",
    "<s>",
    "<pad>",
    "<unk>",
    "<|endoftext|>",
    ">>fra<<",
    "[CLS] a [SEP]",
    "a</s>b",
    "<0x41>",
]
VOCAB = {"bpe": 300, "wordpiece": 90, "unigram": 60, "words": 40, "characters": None, "bytes": None}
EXACT = ["bpe", "characters", "bytes"]


@pytest.fixture(scope="module")
def trained() -> dict[str, Tokenizer]:
    return {kind: train_tokenizer(CORPUS, kind, VOCAB[kind], token_template="bos_eos") for kind in TOKENIZER_KINDS}


def saved(tokenizer, path):
    tokenizer.save(path)
    return path


def read_as_published(path, **options):
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_file=str(path / "tokenizer.json"), split_special_tokens=True, **options)


def same(ours, theirs, text, pair=None):
    found = ours.encode(text, pair)
    asked = theirs(text, pair, return_offsets_mapping=True, return_token_type_ids=True)
    assert found.ids == asked["input_ids"], text
    assert found.offsets == asked["offset_mapping"], text
    assert found.segment_ids == asked["token_type_ids"], text


def spm(path, kind="unigram", **options):
    """A small SentencePiece model in a file."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS),
        model_writer=out,
        model_type=kind,
        minloglevel=2,
        hard_vocab_limit=False,
        **options,
    )
    path.write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


# trained


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_trained_tokenizer_is_read_alike_by_us_and_by_transformers(kind, trained, tmp_path):
    ours = trained[kind]
    theirs, again = read_as_published(saved(ours, tmp_path)), load_tokenizer(tmp_path)
    for text in TEXTS:
        same(ours, theirs, text)
        same(again, theirs, text, "the other")
    assert (again.vocab, again.role_ids) == (ours.vocab, ours.role_ids)
    ids = ours.encode("the cat, the mat").ids
    assert again.decode(ids) == theirs.decode(ids, skip_special_tokens=True) == ours.decode(ids)
    assert again.decode(ids, keep_special_tokens=True) == theirs.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_training_twice_gives_the_same_tokenizer(kind, trained):
    again = train_tokenizer(iter(CORPUS), kind, VOCAB[kind], token_template="bos_eos")
    assert again.backend._json == trained[kind].backend._json
    assert VOCAB[kind] is None or again.vocab <= VOCAB[kind]


@pytest.mark.parametrize("kind", EXACT)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=40))
def test_exact_kinds_give_back_any_string(kind, trained, text):
    tokenizer = trained[kind]
    found = tokenizer.encode(text)
    assert tokenizer.decode(found.ids) == text
    spans = [span for span, special in zip(found.offsets, found.special_tokens_mask, strict=True) if not special]
    assert spans == sorted(spans)
    assert {place for a, b in spans for place in range(a, b)} == set(range(len(text)))


def test_bytes_are_the_bytes():
    found = train_tokenizer([], "bytes", special_tokens={}).encode("aé")
    assert found.ids == [97, 0xC3, 0xA9]
    assert found.offsets == [(0, 1), (1, 2), (1, 2)]


def test_transformers_loads_what_we_save_by_itself(trained, tmp_path):
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(saved(trained["bpe"].with_max_tokens(64), tmp_path))
    assert (theirs.eos_token, theirs.pad_token_id, theirs.model_max_length) == ("</s>", 0, 64)
    assert theirs("the cat")["input_ids"] == trained["bpe"].encode("the cat").ids
    assert load_tokenizer(tmp_path).max_tokens == 64


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([], "bpee", 300), "Did you mean 'bpe'"),
        (([], "bpe", 100), "`vocab` is 100; it must be a number from 261"),
        (([], "bytes", 100), "leave `vocab` out"),
        (("a string", "words", 10), "Put it in a list"),
    ],
)
def test_training_says_what_is_wrong(arguments, said):
    with pytest.raises(ValueError, match=said):
        train_tokenizer(*arguments)


# special tokens


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
@pytest.mark.parametrize("text", FORGED)
def test_no_text_becomes_a_special_token(kind, text, trained):
    tokenizer = trained[kind]
    special = set(tokenizer.special_tokens.values()) - {tokenizer.unk_id}
    for one in (text, f" {text}", text.lower(), f"the {text} cat"):
        read = tokenizer.encode(one, add_special_tokens=False).ids
        assert not special & set(read)
        if kind in EXACT:
            assert tokenizer.decode(read) == one


def test_a_special_token_that_is_a_plain_word_is_not_read_either():
    tokenizer = train_tokenizer(["a mask is a mask"], "words", 10, special_tokens=SPECIAL_TOKENS | {"mask": "mask"})
    assert tokenizer.mask_id not in tokenizer.encode("a mask").ids
    assert tokenizer.id_to_token(tokenizer.mask_id) == "mask"
    assert tokenizer.token_to_id("mask") == tokenizer.mask_id


def test_special_tokens_are_written_by_id(trained):
    tokenizer = trained["words"]
    assert tokenizer.mask_id is not None
    assert (
        tokenizer.decode(
            [*tokenizer.encode("the", add_special_tokens=False).ids, tokenizer.mask_id], keep_special_tokens=True
        )
        == "the <mask>"
    )
    assert tokenizer.decode([tokenizer.mask_id]) == ""
    assert (tokenizer.sep_id, tokenizer.cls_id) == (None, None)


def test_merges_that_would_build_a_special_token_are_left_out():
    vocab = {"<": 0, "s": 1, ">": 2, "<s": 3, "<s>": 4}
    model = {"type": "BPE", "vocab": vocab, "merges": [["<", "s"], ["<s", ">"]]}
    flag = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    tokenizer = Tokenizer(HFBackend({"model": model, "added_tokens": [{"id": 4, "content": "<s>", **flag}]}), {})
    assert tokenizer.encode("<s>").ids == [3, 2]


# published files


def bert_directory(path, **config):
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "the",
        "cat",
        "##s",
        "n",
        "##a",
        "##ive",
        "naive",
        ",",
        "é",
        "e",
        "The",
    ]
    (path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    (path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize("lower", [True, False])
def test_wordpiece_files_are_read_as_bert(lower, tmp_path):
    from transformers import BertTokenizer

    path = bert_directory(tmp_path, do_lower_case=lower, model_max_length=17)
    ours = load_tokenizer(path)
    theirs = BertTokenizer(vocab=str(path / "vocab.txt"), do_lower_case=lower, split_special_tokens=True)
    for text in [*TEXTS, "The cats, naïve", *FORGED]:
        same(ours, theirs, text)
        same(ours, theirs, text, "the cat")
    assert ours.max_tokens == 17
    assert (ours.cls_id, ours.sep_id, ours.mask_id, ours.pad_id, ours.unk_id) == (2, 3, 4, 0, 1)
    assert ours.encode("cat", "the").text_ids == [None, 0, None, 1, None]
    same(load_tokenizer(saved(ours, tmp_path / "again")), theirs, "The cats", "naïve")


@pytest.mark.parametrize("family", ["roberta", "gpt2"])
def test_bpe_files_are_read_as_their_family(family, tmp_path):
    from transformers import GPT2Tokenizer, RobertaTokenizer

    special = SPECIAL_TOKENS if family == "roberta" else {"eos": "<|endoftext|>"}
    model = json.loads(train_tokenizer(CORPUS, "bpe", 300, special_tokens=special).backend._json)["model"]
    (tmp_path / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
    lines = ["#version: 0.2", *(" ".join(pair) for pair in model["merges"])]
    (tmp_path / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    ours = load_tokenizer(tmp_path)
    maker = RobertaTokenizer if family == "roberta" else GPT2Tokenizer
    files = {"vocab": model["vocab"], "merges": [tuple(pair) for pair in model["merges"]]}
    theirs = maker(**files, split_special_tokens=True)
    for text in [*TEXTS, *FORGED]:
        same(ours, theirs, text)
        same(ours, theirs, text, " the cat")
    if family == "roberta":
        frame = [ours.bos_id, None, ours.eos_id, ours.eos_id, None, ours.eos_id]
        found = ours.encode("c", "a")
        assert [
            id if special else None for id, special in zip(found.ids, found.special_tokens_mask, strict=True)
        ] == frame


def test_a_t5_model_is_read_as_sentencepiece_reads_it(tmp_path):
    oracle = spm(tmp_path / "spiece.model", vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    ours = load_tokenizer(tmp_path)
    for text in [*TEXTS, *FORGED]:
        assert ours.encode(text).ids == [*oracle.encode(text), 1]
    assert ours.encode("the", "cat").ids == [*oracle.encode("the"), 1, *oracle.encode("cat"), 1]
    found = ours.encode("the naïve cat")
    assert "".join("the naïve cat"[a:b] for a, b in found.offsets) == "the naïve cat"
    assert (ours.pad_id, ours.eos_id, ours.unk_id, ours.bos_id) == (0, 1, 2, None)
    assert ours.vocab == len(oracle) + 100
    assert ours.token_to_id("<extra_id_0>") == ours.vocab - 1
    assert ours.decode(ours.encode("the cat").ids, keep_special_tokens=True) == "the cat</s>"
    again = load_tokenizer(saved(ours, tmp_path / "again"))
    assert (again.special_tokens, again.role_ids, again.vocab) == (ours.special_tokens, ours.role_ids, ours.vocab)


def test_a_llama_model_keeps_spaces_and_falls_back_to_bytes(tmp_path):
    options = {"byte_fallback": True, "remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
    spm(tmp_path / "tokenizer.model", "bpe", vocab_size=320, **options)
    ours = load_tokenizer(tmp_path)
    found = ours.encode("the  😀")
    assert found.ids[0] == ours.bos_id
    assert found.offsets[-4:] == [(5, 6)] * 4
    for text in TEXTS:
        if "▁" not in text:  # SentencePiece writes a space with this sign
            assert ours.decode(ours.encode(text).ids) == text


def test_a_user_defined_piece_with_a_role_is_taken_apart(tmp_path):
    spm(tmp_path / "spiece.model", vocab_size=60, user_defined_symbols=["[MASK]"], control_symbols=["[CLS]", "[SEP]"])
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "BigBirdTokenizer"}')
    ours = load_tokenizer(tmp_path)
    assert ours.mask_id is not None
    found = ours.encode("the [MASK]")
    assert ours.mask_id not in found.ids
    assert found.ids[0] == ours.cls_id
    assert found.ids[-1] == ours.sep_id
    assert len(found.ids) == len(found.offsets)


def marian_directory(path):
    source = spm(path / "source.spm", vocab_size=60)
    target = spm(path / "target.spm", "bpe", vocab_size=70)
    pieces = {model.id_to_piece(i) for model in (source, target) for i in range(3, len(model))}
    names = ["</s>", "<unk>", *sorted(pieces), ">>fra<<", "<pad>"]
    (path / "vocab.json").write_text(json.dumps({name: id for id, name in enumerate(names)}), encoding="utf-8")
    return path


def test_marian_has_two_sides(tmp_path):
    from transformers import MarianTokenizer

    ours = load_tokenizer(marian_directory(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # recommends a package for punctuation
        theirs = MarianTokenizer.from_pretrained(tmp_path)
        kept = MarianTokenizer.from_pretrained(saved(ours, tmp_path / "again"))
    texts = [text for text in TEXTS if text.strip()]
    for text in texts:
        assert ours.encode(text).ids == theirs(text)["input_ids"] == kept(text)["input_ids"]
        assert ours.target.encode(text).ids == theirs(text_target=text)["input_ids"]
    assert any(ours.encode(text).ids != ours.target.encode(text).ids for text in texts)
    code = ours.token_to_id(">>fra<<")
    assert code in ours.special_tokens.values()
    assert code not in ours.encode(">>fra<< the cat").ids
    assert ours.target.decode([code, *ours.target.encode("the cat").ids]) == "the cat"
    assert (ours.eos_id, ours.unk_id, ours.pad_id) == (0, 1, ours.vocab - 1)


def llama2c_file(path, pieces, spell=lambda byte: f"<0x{byte:02X}>"):
    special = [("<unk>", 0.0), ("\n<s>\n", 0.0), ("\n</s>\n", 0.0), *((spell(byte), 0.0) for byte in range(256))]
    content = struct.pack("<I", 9)
    for text, score in [*special, *pieces]:
        content += struct.pack("<fi", score, len(text.encode())) + text.encode()
    path.write_bytes(content)
    return path


def test_llama2c_merges_the_best_score_first(tmp_path):
    pieces = [(" ", -9.0), ("a", -9.0), ("b", -9.0), (" a", -3.0), ("ab", -1.0), (" ab", -2.0)]
    ours = load_llama2c_tokenizer(llama2c_file(tmp_path / "tok.bin", pieces))
    assert [ours.id_to_token(id) for id in ours.encode("ab aa é").ids] == [
        "<s>",
        "▁ab",
        "▁a",
        "a",
        "▁",
        "<0xC3>",
        "<0xA9>",
    ]
    assert ours.decode(ours.encode("ab aa é").ids) == "ab aa é"
    again = load_tokenizer(saved(ours, tmp_path / "again"))
    assert again.encode("ab </s>").ids == ours.encode("ab </s>").ids
    (tmp_path / "half.bin").write_bytes((tmp_path / "tok.bin").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"is this llama2.c's format"):
        load_llama2c_tokenizer(tmp_path / "half.bin")


def test_llama2cs_older_file_writes_bytes_as_characters(tmp_path):
    """Of '<0x0A>' it wrote the line feed itself, and of '<0xE9>' an é: the ids of a text are the same."""
    pieces = [(" ", -9.0), ("a", -9.0), ("é", -9.0), ("\n", -9.0), (" a", -3.0), ("aé", -1.0)]
    newer = load_llama2c_tokenizer(llama2c_file(tmp_path / "new.bin", pieces))
    older = load_llama2c_tokenizer(llama2c_file(tmp_path / "old.bin", pieces, spell=chr))
    for text in (*TEXTS, "a aé\n\0\x7f\x80ÿé"):
        assert older.encode(text).ids == newer.encode(text).ids, text
        assert older.decode(older.encode(text).ids) == newer.decode(newer.encode(text).ids), text
    assert [older.id_to_token(id) for id in older.encode("z\x80").ids[2:]] == ["<0x7A>", "<0xC2>", "<0x80>"]


# lengths


def test_nothing_is_cut_unless_asked(trained, tmp_path):
    spec = json.loads(trained["characters"].backend._json)
    spec["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.max_tokens == 4
    assert len(tokenizer.encode("the cat")) == 9
    assert tokenizer.decode(tokenizer.encode("the cat", max_tokens=4).ids) == "th"


def test_the_longer_text_is_cut_first(trained):
    tokenizer = trained["characters"]
    found = tokenizer.encode("abcdef", "xyz", max_tokens=8)
    theirs = read_limited(tokenizer, 8).encode("abcdef", "xyz")
    assert (found.ids, found.offsets, found.segment_ids) == (theirs.ids, theirs.offsets, theirs.type_ids)
    with pytest.raises(ValueError, match="4 special tokens do not fit in a length of 3"):
        tokenizer.encode("abcdef", "xyz", max_tokens=3)


def read_limited(tokenizer, length):
    import tokenizers

    published = tokenizers.Tokenizer.from_str(tokenizer.backend._json)
    published.enable_truncation(length)
    return published


@pytest.mark.parametrize("kind", TOKENIZER_KINDS)
def test_a_batch_equals_its_texts(kind, trained):
    tokenizer = trained[kind]
    assert tokenizer.encode_batch(TEXTS) == [tokenizer.encode(text) for text in TEXTS]
    assert tokenizer.encode_batch(TEXTS, TEXTS[::-1], max_characters=20) == [
        tokenizer.encode(a, b) for a, b in zip(TEXTS, TEXTS[::-1], strict=True)
    ]
    assert tokenizer.encode_batch([]) == []


def test_errors_say_what_came(trained):
    tokenizer = trained["bytes"]
    with pytest.raises(ValueError, match=r"Text 1 has 11 characters; at most 10 .* Divide it .* `max_characters`"):
        tokenizer.encode_batch(["a", "b" * 11], max_characters=10)
    with pytest.raises(ValueError, match=r"lone surrogate .* at index 2"):
        tokenizer.encode("ab\ud800")
    with pytest.raises(ValueError, match="Text 0 is of type bytes"):
        tokenizer.encode(b"ab")
    with pytest.raises(ValueError, match="Id 999 at index 1 is not in the vocabulary, whose ids are 0 to 260"):
        tokenizer.decode([1, 999])
    with pytest.raises(ValueError, match="got one string"):
        tokenizer.encode_batch("ab")


# streaming


@pytest.fixture(scope="module")
def streamed(trained, tmp_path_factory) -> dict[str, Tokenizer]:
    path = tmp_path_factory.mktemp("llama")
    pieces = llama2c_file(path / "tok.bin", [(" ", -9.0), ("a", -9.0), (" a", -1.0), ("  ", -2.0)])
    spm(path / "spiece.model", vocab_size=60, pad_id=0, eos_id=1, unk_id=2, bos_id=-1)
    return trained | {"llama": load_llama2c_tokenizer(pieces), "t5": load_tokenizer(path / "spiece.model")}


@pytest.mark.parametrize("kind", [*TOKENIZER_KINDS, "llama", "t5"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_stream_gives_what_decode_gives(kind, streamed, data):
    tokenizer = streamed[kind]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab - 1), max_size=80))
    special = data.draw(st.booleans())
    stream = StreamDecoder(tokenizer, keep_special_tokens=special)
    given_out = [stream.feed([id]) for id in ids]
    assert "".join(given_out) + stream.finish() == tokenizer.decode(ids, keep_special_tokens=special)


@pytest.mark.parametrize("kind", [*EXACT, "llama"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.characters(exclude_characters="\ufffd▁", exclude_categories=["Cs"]), max_size=60))
def test_a_stream_never_shows_half_a_character(kind, streamed, text):
    tokenizer = streamed[kind]
    stream, out = StreamDecoder(tokenizer), ""
    for id in tokenizer.encode(text).ids:
        out += stream.feed([id])
        assert text.startswith(out)
    assert out + stream.finish() == text


# hostile files


def test_code_in_a_directory_is_reported_and_not_run(tmp_path):
    tokenizer = load_tokenizer(bert_directory(tmp_path, auto_map={"AutoTokenizer": ["evil.Tokenizer", None]}))
    assert "evil.Tokenizer" in tokenizer.notes[0]
    assert "not run" in tokenizer.notes[0]


def hostile(**parts):
    return json.dumps({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}} | parts)


GROW = {"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaa"}
BOMB = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "contains a list"),
        ("{}", "no model with a vocabulary"),
        ('{"model": {"vocab": {}}}', "the vocabulary is empty"),
        ('{"model": {"vocab": {"\\ud800": 0}}}', "half a character"),
        (hostile(model={"type": "BPE", "vocab": {"a": 0}, "merges": 0.5}), "merges is a float"),
        (hostile(pre_tokenizer=BOMB), "has nested repeats"),
        (hostile(pre_tokenizer=BOMB | {"pattern": {"Regex": "((a{999}){999}){999}"}}), "has counts up to"),
        (hostile(pre_tokenizer={"type": "Evil"}), "cannot be read"),
        (hostile(model={"type": "WordLevel", "vocab": {"a": -1}, "unk_token": "a"}), "has the id -1"),
        (hostile(model={"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}), "cannot be read"),
        (hostile(model={"type": "BPE", "vocab": {"a": 0}, "merges": [[], 3]}), "two tokens are needed"),
        (hostile(model={"type": "WordPiece", "vocab": {"a": 0}, "max_input_chars_per_word": 10**9}), "quadratic"),
        (hostile(added_tokens=[{"id": 0}]), "must be a list of tokens"),
        (hostile(normalizer={"type": "Sequence", "normalizers": [GROW] * 5}), "times longer"),
        (hostile(normalizer={"type": "Sequence", "normalizers": [{"type": "NFC"}] * 1001}), "list of 1,001 entries"),
        (
            hostile(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAA"}),
            "shorter than its own length field says",
        ),
    ],
)
def test_a_hostile_file_is_refused_by_name(content, said, tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(ValueError, match=said) as caught:
        load_tokenizer(tmp_path)
    assert "tokenizer.json" in str(caught.value)


def test_only_regular_files_of_bounded_size_are_read(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        load_tokenizer(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"it contains nothing. Supported are tokenizer.json"):
        load_tokenizer(tmp_path)
    os.mkfifo(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match="not a regular file"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with (tmp_path / "tokenizer.json").open("wb") as file:
        file.truncate(65 << 20)
    with pytest.raises(ValueError, match="the maximum is"):
        load_tokenizer(tmp_path)
    (tmp_path / "bad.model").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"bad.model is not a SentencePiece model"):
        load_tokenizer(tmp_path / "bad.model")


PUBLISHED = [
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{M}]*[\p{Ll}\p{Lo}]+(?i:'s|'t)?|\p{N}{1,3}| ?[^\s]+[\r\n/]*|\s+",
]


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_published_patterns_pass(pattern):
    check_regex(pattern, "a.json")


@pytest.mark.parametrize("pattern", ["(a*)*", "((a+)b?)+", "(?:x+y*){3,}", "([a-z]+ ?)*$", "(a{2,}){2,}"])
def test_patterns_that_explode_do_not(pattern):
    with pytest.raises(ValueError, match="has nested repeats"):
        check_regex(pattern, "a.json")


def test_a_panic_in_the_library_is_a_value_error(tmp_path):
    spec = json.loads(hostile(pre_tokenizer=BOMB | {"pattern": {"Regex": "^a*a*a*$"}}))
    tokenizer = Tokenizer(HFBackend(spec), {})
    with pytest.raises(ValueError, match="failed on a text"):
        tokenizer.encode("a" * 600 + "b")


def test_every_frame_is_written_for_both_libraries():
    for name, frame in TEMPLATES.items():
        single, pair = frame.to_hf_template({role: f"<{role}>" for role in frame.list_required_roles()})
        assert ("$A:0" in single, "$B" in pair) == (True, True), name
