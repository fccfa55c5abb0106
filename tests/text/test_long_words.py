"""Long words and long lines: their cost is linear, running text of any line length is read, and errors say where."""

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Built
from tokenizers import models, pre_tokenizers, trainers

from saccade.cli import main
from saccade.data.example import TAGS, TEXT_LINE, WORDS, Example
from saccade.data.read import open_text
from saccade.data.read.reader import read_examples, stream_examples
from saccade.data.splits import open_data
from saccade.data.streaming import text as long
from saccade.data.streaming import text_chunks
from saccade.errors import DataError
from saccade.tasks.learn_tokenizer import learn_tokenizer
from saccade.tasks.tag import Tag, check_bio_tags
from saccade.text import SPECIAL_TOKENS, StreamDecoder, train_tokenizer
from saccade.text.loading.validate_tokenizer_json import MAX_TOKEN_CHARACTERS
from saccade.text.tokenizer import MAX_TEXT_CHARACTERS
from saccade.training.prepare import Job, prepare

SENTENCES = ["the cat sat on the mat", "naïve cafés, 1,234 of them", "漢字と仮名 😀", "    spaced   out\t"] * 9


def letters(count: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices("abcdefghijklmnop", k=count))


def cost(work) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


# learning a tokenizer


@pytest.mark.parametrize("word", [letters(200_000), "a" * 200_000, " " * 200_000], ids=["letters", "equal", "spaces"])
def test_bpe_learns_from_long_words_in_linear_time(word):
    assert cost(lambda: train_tokenizer([word], "bpe", 300)) < 5  # 13 s, before words were bounded


@pytest.mark.parametrize("kind", ["bpe", "words", "wordpiece", "unigram"])
@pytest.mark.parametrize("word", ["a" * 50_000, "ab" * 25_000, "漢" * 20_000, "." * 50_000])
def test_no_kind_makes_a_token_that_the_loader_refuses(kind, word):
    tokenizer = train_tokenizer([f"hello {word} hello", word], kind, 400)
    assert max(len(tokenizer.id_to_token(id)) for id in range(tokenizer.vocab)) <= MAX_TOKEN_CHARACTERS
    assert tokenizer.encode("hello").ids


def test_ordinary_text_gives_the_pieces_that_the_plain_trainer_gives():
    plain = Built(models.BPE())
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = list(SPECIAL_TOKENS.values())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet)
    )
    ours = train_tokenizer(SENTENCES, "bpe", 400)
    assert {ours.id_to_token(id): id for id in range(ours.vocab)} == plain.get_vocab()
    whole = "x" * 3_000  # learning cuts it; reading does not
    assert ours.encode(whole).ids == plain.encode(whole).ids


def test_many_marks_on_one_letter_take_linear_time():
    text = "a" + "\u0316\u0301" * 30_000
    assert cost(lambda: train_tokenizer([text, *SENTENCES], "unigram", 100)) < 5  # 15 s by Python's own normalization


def test_white_space_alone_teaches_no_words():
    with pytest.raises(DataError, match="the texts for the unigram tokenizer are only white space"):
        learn_tokenizer([" \n", "\t"], "unigram", None, token_template="none", is_text_stream=True)


# decoding one id after another


@pytest.mark.parametrize(
    ("kind", "text"), [("bytes", "\n"), ("characters", " "), ("bytes", "\xc3"), ("characters", "漢")]
)
def test_a_stream_of_blanks_or_broken_bytes_costs_linear_time(kind, text):
    tokenizer = train_tokenizer([], kind)
    ids = tokenizer.encode(text).ids[:1] * 3_000
    stream, out = StreamDecoder(tokenizer), []
    assert cost(lambda: out.extend(stream.feed([id]) for id in ids)) < 3  # 3 to 60 s, when the window could only grow
    assert "".join(out) + stream.finish() == tokenizer.decode(ids)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_a_stream_of_bytes_and_blanks_gives_what_decode_gives(data):
    tokenizer = train_tokenizer([], data.draw(st.sampled_from(["bytes", "characters"])))
    few = tokenizer.encode("\n é漢😀").ids[:12]
    ids = [
        id for id in data.draw(st.lists(st.sampled_from(few), max_size=40)) for _ in range(data.draw(st.integers(1, 4)))
    ]
    stream = StreamDecoder(tokenizer)
    assert "".join([stream.feed([id]) for id in ids]) + stream.finish() == tokenizer.decode(ids)


# running text


def test_a_line_of_any_length_is_read_in_stretches(tmp_path):
    text = " ".join(letters(7, seed) for seed in range(40_000))  # 320,000 characters
    path = tmp_path / "text8.txt"
    path.write_text(f"first\n{text}\nlast", encoding="utf-8")
    found = list(stream_examples([path], [TEXT_LINE]))
    assert "".join(e["text"] for e in found) == f"first\n{text}\nlast\n"
    assert max(len(e["text"]) for e in found) <= text_chunks.MAX_CHUNK_CHARACTERS
    assert [e.line for e in found] == [1, 2, 2, 2, 2, 2, 3]
    for e in found[1:-1]:
        assert text[e.character - 1 :].startswith(e["text"].rstrip("\n"))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="ab é漢😀\u0301\n", max_size=120), most=st.integers(2, 20), chunk=st.integers(12, 30))
def test_stretches_and_parts_are_the_whole_text(text, most, chunk, tmp_path, monkeypatch):
    pieces = [text[a:b] for a, b in text_chunks.chunk_text(text, most)]
    assert "".join(pieces) == text
    assert all(0 < len(piece) <= most for piece in pieces) or not text
    if not text.strip():
        return
    path = tmp_path / "a.txt"
    path.write_text(text, encoding="utf-8")
    with monkeypatch.context() as change:
        change.setattr(open_text, "CHUNK_BYTES", chunk)
        found = list(open_text.read_line_parts(open_text.open_source(path)))
    assert "".join(part for _, _, part, _ in found) == text
    lines = text.split("\n")
    for number, column, part, ends in found:
        start = max(0, column - 1)
        assert lines[number - 1][start : start + len(part)] == part.removesuffix("\n")
        assert ends == (start + len(part.removesuffix("\n")) == len(lines[number - 1]) and (column == 0 or ends))


def test_stretches_have_the_ids_of_the_whole_line(tmp_path):
    line = " ".join(SENTENCES * 60)
    tokenizer = train_tokenizer(SENTENCES, "bpe", 400)
    pieces = [line[a:b] for a, b in text_chunks.chunk_text(line, 500)]
    assert len(pieces) > 10
    assert [id for piece in pieces for id in tokenizer.encode(piece).ids] == tokenizer.encode(line).ids


def test_the_last_tenth_of_one_line_is_held_out(tmp_path):
    path = tmp_path / "one.txt"
    text = "ab " * 33_400  # two stretches
    path.write_text(text, encoding="utf-8")
    found = open_data([path], [TEXT_LINE], contiguous=True)
    assert "".join(e["text"] for t in (found.train, found.dev) for e in t.examples) == text + "\n"
    assert len("".join(e["text"] for e in found.dev.examples)) == pytest.approx(len(text) / 10, abs=2)
    assert found.notes[-1] == (
        "No dev file: the last 10% of the text, from line 1, character 90,181 on, is held out as dev."
    )


def test_one_line_that_is_too_large_to_be_held(tmp_path, monkeypatch):
    monkeypatch.setattr(long, "MIN_STREAMED_BYTES", 1000)
    monkeypatch.setattr(long, "MAX_SAMPLE_CHARACTERS", 200_000)
    monkeypatch.setattr(long, "MAX_DEV_CHARACTERS", 100_000)
    monkeypatch.setattr(long, "MAX_BLOCK_CHARACTERS", 60_000)
    path = tmp_path / "one.txt"
    text = letters(1_500_000)
    path.write_text(text, encoding="utf-8")
    found = open_data([path], [TEXT_LINE], contiguous=True)
    assert isinstance(found.train.examples, long.StreamedExamples)
    assert "".join(e["text"] for t in (found.train, found.dev) for e in t.examples) == text + "\n"
    places = {e.character for e in found.train.examples.sample}
    assert len(places) > 2
    assert max(places) > 700_000  # from the whole text, not from its beginning
    assert not places & {e.character for e in found.dev.examples}


@pytest.mark.parametrize("name", ["one.txt", "one.jsonl"])
def test_a_language_model_reads_more_than_a_tokenizer_takes_at_once(tmp_path, name):
    text = "to be or not " * (MAX_TEXT_CHARACTERS // 11)
    path = tmp_path / name
    path.write_text(text if name.endswith("txt") else f'{{"text": "{text}"}}', encoding="utf-8")
    ready = prepare(Job("language", (str(path),), model_fields={"width": 16, "layers": 1, "ffn_width": 16, "heads": 2}))
    ids = ready.task.encode_stream(ready.splits.train.examples, ready.model)
    assert len(ids) == sum(len(e["text"]) for e in ready.splits.train.examples) > MAX_TEXT_CHARACTERS  # by characters
    assert np.array_equal(ids[:26], np.tile(ids[:13], 2))


def test_only_the_beginning_of_a_longer_text_is_tokenized_where_its_end_is_cut():
    tokenizer = train_tokenizer([], "bytes", token_template="bos_eos")
    assert tokenizer.encode("ab" * 40, max_tokens=6, max_characters=20) == tokenizer.encode("ab" * 40, max_tokens=6)


# what is refused, and where


def conll(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


def test_a_word_without_end_is_named_with_its_place(tmp_path):
    path = conll(tmp_path / "a.conll", "Ada\tB-PER", "", "# a remark", "Bob\tB-PER", "x" * 10_000 + "\tO")
    with pytest.raises(
        DataError,
        match=r"a\.conll:5: the word has 10,000 characters; a word may have at most 1,000; column 1 is 'xxx.*Write spaces",
    ):
        read_examples([path], [WORDS, TAGS])
    lists = tmp_path / "a.jsonl"
    lists.write_text('{"words": ["Ada", "%s"], "tags": ["B-PER", "O"]}\n' % ("y" * 1_001), encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.jsonl:1: word 2 has 1,001 characters.*column words is"):
        read_examples([lists], [WORDS, TAGS])
    spans = tmp_path / "b.jsonl"
    span = '"spans": [{"start": 0, "end": 3, "label": "PER"}]'
    spans.write_text(f'{{"text": "Ada {"z" * 2_000}", {span}}}\n', encoding="utf-8")
    with pytest.raises(DataError, match=r"b\.jsonl:1: the word at character 5 has 2,000 characters"):
        read_examples([spans], [WORDS, TAGS])


def test_lower_case_prefixes_are_read_as_capitals(tmp_path):
    rows = ["ada\tb-per", "lovelace\ti-per", "saw\to", "rome\tb-loc", ""] * 3
    found = read_examples([conll(tmp_path / "a.conll", *rows)], [WORDS, TAGS])
    assert found.examples[0]["tags"] == ["B-per", "I-per", "O", "B-loc"]
    assert any("lowercase" in line for line in found.notes)


def test_tags_that_mark_no_spans_are_a_data_error():
    example = Example({"words": ["it", "rains"], "tags": ["PRON", "VERB"]}, "a.conll", 7)
    for work in (lambda: Tag().fit([example]), lambda: check_bio_tags(example)):
        with pytest.raises(DataError, match=r"a\.conll:7: the tag 'PRON' is not a BIO tag.*such as B-PER"):
            work()


def test_a_text_of_one_character_has_no_next_token(tmp_path, capsys):
    path = tmp_path / "one.txt"
    path.write_text("a", encoding="utf-8")
    small = ["--model.width", "16", "--model.layers", "1", "--train.max-steps", "1", "--out", str(tmp_path / "run")]
    assert main(["train", "language", "--data", str(path), *small]) == 3
    assert "one.txt:1: a text of 1 token has no next token to predict" in capsys.readouterr().err


def test_a_file_name_that_is_not_unicode_is_named_in_ascii(tmp_path, capsys):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.txt")
    try:
        Path(path).write_text("to be or not to be\n" * 50, encoding="utf-8")
    except OSError:
        pytest.skip("this file system has Unicode names only")
    for data in (path, str(tmp_path)):
        assert main(["train", "language", "--data", data, "--out", str(tmp_path / "run")]) == 3
        said = capsys.readouterr().err
        assert "the name of this file is not Unicode" in said
        assert "caf\\xe9.txt" in said
        assert "Rename it" in said


def test_a_run_is_not_begun_in_a_directory_whose_name_is_not_unicode(tmp_path, capsys):
    out = os.fsdecode(os.fsencode(tmp_path) + b"/r\xe9")
    assert main(["train", "regress", "--out", out, "--train.max-steps", "1"]) == 2
    assert "r\\xe9: this path is not valid UTF-8; choose another directory with --out." in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_typed_text_that_no_tokenizer_takes_is_a_data_error(tmp_path, capsys):
    run = str(tmp_path / "run")
    small = ["--model.width", "16", "--model.layers", "1", "--train.max-steps", "1", "--out", run]
    path = tmp_path / "a.txt"
    path.write_text("to be or not to be\n" * 30, encoding="utf-8")
    assert main(["train", "language", "--data", str(path), *small]) == 0
    capsys.readouterr()
    assert main(["generate", run, "a" * (MAX_TEXT_CHARACTERS + 1)]) == 3
    assert "Text 0 has 1,000,001 characters; at most 1,000,000 are tokenized" in capsys.readouterr().err
    assert main(["generate", run, "caf\udce9"]) == 3
    assert "half a character" in capsys.readouterr().err
