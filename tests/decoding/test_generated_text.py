"""What comes out of the loop: stop strings by brute force, log-probabilities, contrastive search, least risk."""

import math
import random
from itertools import product

import pytest
import sacrebleu
import torch
from torch import nn

from saccade.data import Batch, Text
from saccade.decoding import StoppingCriteria
from saccade.decoding.contrastive import contrastive_search, contrastive_steps
from saccade.decoding.logits_processors import BadWords
from saccade.decoding.loop import generate, teacher_forced_logits
from saccade.decoding.mbr import UTILITIES, bleu, chrf, mbr_select, word_f1
from saccade.decoding.sampling import Sampler
from saccade.decoding.stop_strings import (
    StopStringCutter,
    StopStringCutters,
    collect_texts,
    generate_texts,
    stream_texts,
)
from saccade.models.families import gpt2
from saccade.text.train import train_tokenizer

VOCAB = 37


def writer(vocab):
    torch.manual_seed(3)
    model = gpt2.GPT2(gpt2.Config(vocab=vocab, width=12, layers=2, heads=3, max_positions=64)).eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)
    return model


def cut(text, strings):
    """By trying every end: the first place at which some string is complete, and the longest that ends there."""
    for end in range(len(text) + 1):
        found = [string for string in strings if text[:end].endswith(string)]
        if found:
            return text[: end - max(map(len, found))], True
    return text, False


def test_stop_strings_are_found_across_tokens():
    """All texts of two letters, against all pairs of short strings, fed letter by letter and in lumps."""
    tokenizer, chance = train_tokenizer([], "bytes"), random.Random(0)
    strings = ["".join(s) for n in (1, 2, 3) for s in product("ab", repeat=n)]
    texts = ["".join(s) for n in range(6) for s in product("ab", repeat=n)]
    for text in texts:
        for pair in chance.sample(list(product(strings, strings)), 12):
            wanted, done = cut(text, pair)
            ids = tokenizer.encode(text).ids
            for lump in (1, 2, 5):
                cutter, given = StopStringCutter(tokenizer, pair), ""
                for start in range(0, len(ids), lump):
                    given += cutter.feed(ids[start : start + lump])
                    assert wanted.startswith(given)  # nothing is given that would have to be taken back
                assert (given + cutter.finish(), cutter.is_done) == (wanted, done), (text, pair, lump)


def test_only_what_may_become_a_stop_string_is_held_back():
    tokenizer = train_tokenizer([], "bytes")
    cutter = StopStringCutter(tokenizer, ["STOP", "\n\n"])
    given = [cutter.feed([id]) for id in tokenizer.encode("a\nS\nSTART é").ids]
    assert given == ["a", "", "\n", "S", "\n", "", "STA", "R", "T", " ", "", "é"]
    assert cutter.finish() == ""
    assert not cutter.is_done


@pytest.mark.parametrize("kind", ["bytes", "characters", "bpe"])
def test_stop_strings_in_the_loop(kind):
    tokenizer = train_tokenizer(["abc abd bcd dcb"] * 3, kind, 270 if kind == "bpe" else None)
    model = writer(tokenizer.vocab)
    batch = Batch(Text.pad([[tokenizer.token_to_id("a")], [tokenizer.token_to_id("b"), tokenizer.token_to_id("c")]]))
    letters = [tokenizer.token_to_id(letter) for letter in "abcd"]
    others = [[token] for token in range(tokenizer.vocab) if token not in letters]
    bounds = StoppingCriteria(tokenizer.eos_id, 30, [BadWords(others)])
    plain = generate_texts(model, batch, bounds, Sampler(2.0, seed=4), tokenizer=tokenizer)
    assert not any(one.hit_stop for one in plain)
    strings = ["cad", "bb"]
    assert any(string in one.text for string in strings for one in plain)
    got = generate_texts(model, batch, bounds, Sampler(2.0, seed=4), tokenizer=tokenizer, stop_strings=strings)
    for mine, whole in zip(got, plain, strict=True):
        assert (mine.text, mine.hit_stop) == cut(whole.text, strings)
        assert mine.tokens == whole.tokens[: len(mine.tokens)]
        assert mine.stop_logprob is None
    pieces = list(stream_texts(model, batch, bounds, tokenizer, Sampler(2.0, seed=4), stop_strings=strings))
    assert ["".join(row) for row in zip(*pieces, strict=True)] == [one.text for one in got]


def test_stop_strings_that_are_none_are_refused():
    tokenizer, batch = train_tokenizer([], "bytes"), Batch(Text.pad([[7]]))
    model = writer(tokenizer.vocab)
    for strings, words in (([""], "at least one character"), ("abc", "are a list; got one string")):
        with pytest.raises(ValueError, match=words):
            generate_texts(
                model,
                batch,
                StoppingCriteria(stop_ids=None, max_new_tokens=3),
                tokenizer=tokenizer,
                stop_strings=strings,
            )
        with pytest.raises(ValueError, match=words):
            list(
                stream_texts(
                    model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=3), tokenizer, stop_strings=strings
                )
            )
    with pytest.raises(ValueError, match="Stop strings need a tokenizer"):
        generate_texts(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=3), stop_strings=["a"])


def test_log_probabilities_before_and_after_the_rules():
    model, batch = writer(VOCAB), Batch(Text.pad([[3, 4]]))
    (plain,) = generate_texts(model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=1))
    state, text = model.start(batch)
    with torch.no_grad():
        scores = model.step(text, state)[0, -1]
    assert plain.logprobs == pytest.approx([float(scores.log_softmax(-1).max())], rel=1e-5)
    assert plain.processed_logprobs == plain.logprobs
    best = plain.tokens[0]
    (ruled,) = generate_texts(
        model, batch, StoppingCriteria(stop_ids=None, max_new_tokens=1, processors=[BadWords([[best]])])
    )
    second = ruled.tokens[0]
    assert ruled.logprobs == pytest.approx([float(scores.log_softmax(-1)[second])], rel=1e-5)
    left = torch.cat([scores[:best], scores[best + 1 :]])
    assert ruled.processed_logprobs == pytest.approx([float(scores[second] - left.logsumexp(-1))], rel=1e-5)
    (ended,) = generate_texts(model, batch, StoppingCriteria(stop_ids=best, max_new_tokens=3))
    assert (ended.tokens, ended.hit_stop, ended.stop_logprob, ended.text) == ([], True, plain.logprobs[0], None)
    assert ended.cumulative_logprob == ended.stop_logprob


def test_contrast_without_contrast_is_greedy_and_with_it_is_not():
    model, batch = writer(VOCAB), Batch(Text.pad([[3, 4], [5]]))
    wanted = generate(model, batch, stop_ids=7, max_new_tokens=20)
    assert contrastive_search(model, batch, StoppingCriteria(stop_ids=7, max_new_tokens=20), alpha=0.0) == wanted
    assert contrastive_search(model, batch, StoppingCriteria(stop_ids=7, max_new_tokens=20), candidates=1) == wanted
    assert contrastive_search(model, batch, StoppingCriteria(stop_ids=7, max_new_tokens=20), alpha=0.9) != wanted
    assert (
        contrastive_search(
            model, Batch(Text(torch.zeros(0, 4, dtype=torch.long))), StoppingCriteria(stop_ids=7, max_new_tokens=3)
        )
        == []
    )
    for settings in ({"candidates": 0}, {"alpha": 1.5}, {"alpha": math.nan}):
        with pytest.raises(ValueError, match="At least 1 candidate and an alpha from 0 to 1"):
            contrastive_search(model, batch, StoppingCriteria(stop_ids=7, max_new_tokens=20), **settings)
    with pytest.raises(ValueError, match="Row 0 of the prompt is empty"):
        contrastive_search(
            model, Batch(Text(torch.zeros(1, 0, dtype=torch.long))), StoppingCriteria(stop_ids=7, max_new_tokens=3)
        )
    with pytest.raises(ValueError, match=r"Linear has none\. Use `generate`"):
        contrastive_search(nn.Linear(2, 2), batch, StoppingCriteria(stop_ids=7, max_new_tokens=3))


def test_contrast_with_stop_strings_and_log_probabilities():
    tokenizer = train_tokenizer([], "bytes")
    model, batch = writer(tokenizer.vocab), Batch(Text.pad([[70, 71], [80]]))
    letters = [tokenizer.token_to_id(letter) for letter in "abcd"]
    others = [[token] for token in range(tokenizer.vocab) if token not in letters]
    bounds = StoppingCriteria(tokenizer.eos_id, 20, [BadWords(others)])
    rows = contrastive_search(model, batch, bounds)
    texts = [tokenizer.decode(row) for row in rows]
    string = texts[0][3:5]
    cutters = StopStringCutters(tokenizer, [string])
    found = collect_texts(contrastive_steps(model, batch, cutters.with_stop_condition(bounds)), cutters)
    assert [(one.text, one.hit_stop) for one in found] == [cut(text, [string]) for text in texts]
    for one, prompt in zip(found, ([70, 71], [80]), strict=True):
        with torch.no_grad():
            scores = teacher_forced_logits(model, Batch(Text.pad([prompt]), Text.pad([one.tokens])))[0].log_softmax(-1)
        wanted = scores[torch.arange(len(one.tokens)), one.tokens].tolist()
        assert one.logprobs == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("name", UTILITIES)
def test_the_safest_is_that_of_all_pairs(name):
    chance = random.Random(1)
    for _ in range(5):
        samples = [" ".join(chance.choices(["the", "cat", "sat", "mat"], k=chance.randint(1, 4))) for _ in range(7)]
        samples += samples[:2]  # a text may be drawn twice
        means = []
        for i, text in enumerate(samples):
            others = [other for j, other in enumerate(samples) if j != i]
            means.append(sum(UTILITIES[name](text, other) for other in others) / len(others))
        found = mbr_select(samples, UTILITIES[name])
        assert found.utility == pytest.approx(max(means))
        assert means[found.index] == pytest.approx(max(means))
        assert found.text == samples[found.index]


def test_utilities_by_hand_and_by_sacrebleu():
    one, two = "the cat sat on the mat", "the cat is on a mat"
    assert chrf(one, two) == pytest.approx(sacrebleu.CHRF().sentence_score(one, [two]).score / 100)
    assert bleu(one, two) == pytest.approx(sacrebleu.BLEU(effective_order=True).sentence_score(one, [two]).score / 100)
    assert word_f1(one, two) == pytest.approx(2 * 4 / 12)  # the, cat, on, mat
    assert (word_f1("", ""), word_f1("", "a"), word_f1("a", "b")) == (1.0, 0.0, 0.0)
    assert mbr_select(["alone"]).text == "alone"
    with pytest.raises(ValueError, match="needs at least one sample"):
        mbr_select([])
