"""Settings become the very calls that they name, contradictions are refused, and many texts come out in their order."""

import io
import json
import math
import re
import subprocess
import sys
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from saccade import text
from saccade.cli import main
from saccade.cli.generate_texts import format_example_texts
from saccade.data import Batch, Example, Text
from saccade.decoding import BeamConfig, GenerationConfig, Sampler, StoppingCriteria, beam_search, generate_hypotheses
from saccade.decoding.batch_generate import generate_many, plan_batches
from saccade.decoding.config import flag
from saccade.decoding.contrastive import contrastive_search
from saccade.decoding.generate_text import leading_space
from saccade.decoding.generator import TextGenerator, bad_words_ids
from saccade.decoding.mbr import mbr_select
from saccade.decoding.stop_strings import generate_texts
from saccade.models.build import new
from saccade.models.families import gpt2, transformer
from saccade.progress import ProgressBar
from saccade.tasks.registry import task_class

LIMIT = 12
TOKENIZER = text.train_tokenizer(["abcdefgh .,"], "characters", token_template="t5")
PROMPTS = ["abcab", "h", "a bad cab.", "dead", "fed a fad"]


def model(family="gpt2", seed=1):
    sizes = {
        "vocab": TOKENIZER.vocab,
        "width": 12,
        "layers": 1,
        "heads": 3,
        "ffn_width": 17,
        "max_positions": 64,
        "dropout": 0.0,
    }
    torch.manual_seed(seed)
    made = new(family, {"gpt2": gpt2, "transformer": transformer}[family].Config(**sizes)).eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.5)
    with torch.no_grad():  # letters rather than bytes
        made.body.words.vectors.weight[
            [TOKENIZER.id_to_token(id).startswith("<") for id in range(TOKENIZER.vocab)]
        ] *= 0.2
    made.tokenizer = TOKENIZER
    return made


def ids(prompt):
    return TOKENIZER.encode(prompt, add_special_tokens=False).ids


def batch(prompts=PROMPTS):
    return Batch(Text.pad([ids(prompt) for prompt in prompts], pad_left=True))


def texts(settings, prompts=PROMPTS, writer=None):
    return generate_hypotheses(writer or model(), batch(prompts), TOKENIZER, settings, max_new_tokens=LIMIT)


BOUNDS = StoppingCriteria([TOKENIZER.eos_id], LIMIT)


def test_nothing_said_is_greedy_and_scored_by_the_mean():
    wanted = generate_texts(model(), batch(), BOUNDS, tokenizer=TOKENIZER)
    for (one,), row in zip(texts(GenerationConfig()), wanted, strict=True):
        assert (one.tokens, one.text, one.logprobs, one.hit_stop) == (row.tokens, row.text, row.logprobs, row.hit_stop)
        assert one.text == TOKENIZER.decode(one.tokens)
        assert one.score == pytest.approx(row.cumulative_logprob / (len(row.tokens) + row.hit_stop))


def test_beams_are_beams():
    asked = GenerationConfig(
        beams=4, length_penalty=0.4, beam_groups=2, diversity_penalty=0.3, early_stopping="exact", n_best=3
    )
    wanted = beam_search(model(), batch(), BOUNDS, BeamConfig(4, 0.4, 0.0, 2, 0.3, "exact"), n_best=3)
    for row, right in zip(texts(asked), wanted, strict=True):
        assert [(one.tokens, one.score) for one in row] == [(one.tokens, one.score) for one in right]
        assert [one.text for one in row] == [TOKENIZER.decode(one.tokens) for one in right]


def test_coverage_reaches_the_search():
    writer = model("transformer")
    plain, covered = (texts(GenerationConfig(beams=3, coverage_penalty=weight), writer=writer) for weight in (0.0, 2.0))
    assert all(one[0].score <= other[0].score for one, other in zip(covered, plain, strict=True))
    with pytest.raises(ValueError, match="needs cross-attention"):
        texts(GenerationConfig(beams=3, coverage_penalty=2.0))


def test_draws_are_draws_and_the_same_seed_draws_the_same():
    asked = GenerationConfig(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01, typical_p=0.95, seed=5)
    wanted = generate_texts(model(), batch(), BOUNDS, Sampler(0.7, 9, 0.9, 5, 0.01, 0.95))
    assert [one.tokens for (one,) in texts(asked)] == [row.tokens for row in wanted]
    assert texts(asked) == texts(asked)
    assert texts(asked) != texts(replace(asked, seed=6))
    several = texts(replace(asked, n_best=4))
    assert all(row == sorted(row, key=lambda one: -one.score) and len(row) == 4 for row in several)
    assert len({one.text for row in several for one in row}) > len(PROMPTS)


def test_samples_are_judged_by_each_other():
    choose = Sampler(1.0, seed=2)
    draws = [generate_texts(model(), batch(), BOUNDS, choose, tokenizer=TOKENIZER) for _ in range(5)]
    for (one,), row in zip(texts(GenerationConfig(mbr_samples=5, seed=2)), zip(*draws, strict=True), strict=True):
        best = mbr_select([draw.text for draw in row])
        assert (one.text, one.score) == (best.text, best.utility)
        assert one.tokens == row[best.index].tokens


def test_contrast_is_contrast_with_log_probabilities():
    wanted = contrastive_search(model(), batch(), BOUNDS, alpha=0.5)
    for (one,), row, prompt in zip(texts(GenerationConfig(contrastive_alpha=0.5)), wanted, PROMPTS, strict=True):
        assert one.tokens == row
        whole = torch.tensor([ids(prompt) + row])
        writer = model()
        state, first = writer.start(Batch(Text(whole)))
        logs = writer.step(first, state)[0, len(ids(prompt)) - 1 : -1].log_softmax(-1)
        assert_close(torch.tensor(one.logprobs), logs.gather(-1, torch.tensor(row)[:, None])[:, 0])


def test_contrast_ends_at_a_stop_string_and_keeps_to_the_rules():
    """The greedy text of alpha 0 by another path, and with rules what they left of each probability."""
    rules = {"bad_words": ("h",), "stop": ("c", "f")}
    almost, plain = (texts(GenerationConfig(contrastive_alpha=alpha, **rules)) for alpha in (1e-9, 0.0))
    assert any(one.hit_stop and one.stop_logprob is None for (one,) in plain)
    for (one,), (right,) in zip(almost, plain, strict=True):
        assert (one.tokens, one.text, one.hit_stop) == (right.tokens, right.text, right.hit_stop)
        assert_close(one.processed_logprobs, right.processed_logprobs)
        assert_close(one.logprobs, right.logprobs)
        assert all(ruled > own for ruled, own in zip(one.processed_logprobs, one.logprobs, strict=True))


@pytest.mark.parametrize(
    "settings", [{}, {"beams": 3}, {"temperature": 2.0}, {"contrastive_alpha": 0.4}, {"prompt_lookup": True}]
)
def test_scores_without_a_token_are_never_chosen(settings):
    """A padded vocabulary: the tokenizer has fewer tokens than the model has scores, and the model likes those best."""
    writer, extra = model(), 5
    sizes = replace(writer.config, vocab=TOKENIZER.vocab + extra)
    padded = new("gpt2", sizes).eval()
    with torch.no_grad():
        for name, p in padded.named_parameters():
            own = writer.get_parameter(name)
            p[: len(own)] = own
    head = padded.body.head
    head.register_forward_hook(
        lambda module, given, out: out.index_fill(-1, torch.arange(TOKENIZER.vocab, out.size(-1)), 99.0)
    )
    padded.tokenizer = TOKENIZER
    got, wanted = (texts(GenerationConfig(**settings), writer=one) for one in (padded, writer))
    assert [[one.text for one in row] for row in got] == [[one.text for one in row] for row in wanted]


@pytest.mark.parametrize("stop", [(), ("a", "dd")])
def test_speculation_changes_nothing(stop, tmp_path):
    model(seed=4).save(tmp_path / "draft")
    wanted = texts(GenerationConfig(stop=stop))
    for asked in (
        GenerationConfig(prompt_lookup=True, stop=stop),
        GenerationConfig(draft_model=str(tmp_path / "draft"), stop=stop),
    ):
        for (one,), (right,) in zip(texts(asked), wanted, strict=True):
            assert (one.tokens, one.text, one.hit_stop) == (right.tokens, right.text, right.hit_stop)
            assert_close(one.logprobs, right.logprobs, rtol=1e-4, atol=1e-4)
            assert one.score == pytest.approx(right.score, abs=1e-4)


def test_a_draft_with_other_tokens_is_refused(tmp_path):
    other = model()
    other.tokenizer = text.train_tokenizer(["zyxw"], "characters", token_template="t5")
    other.save(tmp_path / "draft")
    with pytest.raises(ValueError, match=r"--draft-model: .* has other tokens"):
        texts(GenerationConfig(draft_model=str(tmp_path / "draft")))


@pytest.mark.parametrize("beams", [1, 3])
def test_rules_and_stop_strings_hold(beams):
    settings = GenerationConfig(
        beams=beams, min_new_tokens=4, no_repeat_ngram_size=2, bad_words=("a", "bc"), stop=("h", "dg")
    )
    assert any(set("ah") & set(row[0].text) for row in texts(GenerationConfig(beams=beams)))
    for row, prompt in zip(texts(settings), PROMPTS, strict=True):
        one = row[0]
        assert "a" not in one.text
        assert "bc" not in one.text
        assert "h" not in one.text
        assert "dg" not in one.text
        whole = TOKENIZER.decode(one.tokens)
        assert whole.startswith(one.text)
        assert one.hit_stop == (len(one.tokens) < LIMIT or whole != one.text)
        pairs = list(pairwise(ids(prompt) + one.tokens))
        new = range(len(ids(prompt)) - 1, len(pairs))
        assert not any(pairs[place] in pairs[:place] for place in new)
    for row in texts(GenerationConfig(beams=beams, regex="(ab|cd){2}e?")):
        assert re.fullmatch("(ab|cd){2}e?", row[0].text)
    for row in texts(GenerationConfig(beams=beams, choices=("bad", "add a fee"))):
        assert row[0].text in ("bad", "add a fee")
    assert all(len(row[0].tokens) <= 3 for row in texts(GenerationConfig(beams=beams, max_new_tokens=3)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beams": 0}, "--beams: at least 1 is needed; got 0"),
        ({"beams": 4, "temperature": 0.7}, "--temperature: --beams does not sample"),
        ({"beams": 4, "mbr_samples": 3}, "--beams and --mbr-samples are two decoding strategies"),
        (
            {"contrastive_alpha": 0.5, "prompt_lookup": True},
            "--contrastive-alpha and --prompt-lookup are two decoding strategies",
        ),
        ({"draft_model": "x", "prompt_lookup": True}, "--draft-model and --prompt-lookup are two decoding strategies"),
        ({"draft_model": "x", "temperature": 0.5}, "--temperature: --draft-model does not sample"),
        ({"mbr_samples": 4, "temperature": 0.0}, "--mbr-samples: a temperature of 0 does not sample"),
        ({"top_k": 4}, "--top-k: it filters what is sampled"),
        ({"typical_p": 0.5, "temperature": 0.0}, "--typical-p: it filters"),
        ({"beam_groups": 2}, "--beam-groups: it belongs to beam search"),
        ({"coverage_penalty": 0.1}, "--coverage-penalty: it belongs to beam search"),
        ({"n_best": 3}, "--n-best: several texts come from beam search"),
        ({"beams": 2, "n_best": 3}, "2 beams give at most 2 texts; got 3"),
        ({"max_new_tokens": 3, "min_new_tokens": 5}, "a maximum of 3 tokens is below the minimum of 5"),
        ({"choices": ("a",), "regex": "a"}, "--choices: it and --regex both constrain"),
        ({"temperature": float("nan")}, "--temperature: a number is needed; got nan"),
        ({"no_repeat_ngram_size": -1}, "--no-repeat-ngram-size: 0 or more"),
        ({"beams": 4, "beam_groups": 3}, "4 beams in 3 groups"),
        ({"temperature": -1.0}, "--temperature: 0 or more is needed; got -1.0"),
        ({"repetition_penalty": 0.0}, "--repetition-penalty: a number above 0 is needed"),
        ({"diversity_penalty": 0.5}, "--diversity-penalty: it belongs to beam search"),
        ({"beams": 4, "diversity_penalty": 0.5}, "--diversity-penalty: it applies between beam groups"),
        (
            {"contrastive_alpha": -1.0},
            "--contrastive-alpha: a number from 0 to 1 is needed, and 0 disables it; got -1.0",
        ),
        ({"contrastive_alpha": 2.0}, "--contrastive-alpha: a number from 0 to 1 is needed, and 0 disables it; got 2.0"),
        ({"temperature": 1.0, "top_p": 2.0}, "--top-p: a probability above 0 and at most 1"),
        ({"temperature": 1.0, "min_p": -0.1}, "--min-p: a number from 0 to 1"),
        ({"bad_words": ("a", "")}, "--bad-words: a text of at least one character"),
        ({"stop": ("",)}, "--stop: a text of at least one character"),
        ({"regex": "a*", "stop": ("b",)}, "--regex: the constraint decides where a text ends, and --stop would cut it"),
        ({"choices": ("ab",), "stop": ("b",)}, "--choices: the constraint decides where a text ends"),
        ({"regex": "("}, "--regex: The expression '('"),
        ({"temperature": 1.0, "seed": 2**64}, "--seed: a whole number of at most 64 bits"),
        ({"beams": 2, "length_penalty": 1000.0}, "--length-penalty: a number from -10 to 10 is needed; got 1000.0"),
        ({"length_penalty": -1000.0}, "--length-penalty: a number from -10 to 10"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        GenerationConfig(**given).check()  # before a model is looked at


@pytest.mark.parametrize("penalty", [-10.0, 10.0])
def test_the_steepest_length_penalty_still_gives_numbers(penalty):
    for row in texts(GenerationConfig(beams=3, length_penalty=penalty, n_best=3)) + texts(
        GenerationConfig(length_penalty=penalty)
    ):
        assert all(math.isfinite(one.score) for one in row)
        assert all(one.score == pytest.approx(one.cumulative_logprob / counted(one) ** penalty) for one in row)
    with pytest.raises(ValueError, match="length penalty must be from -10 to 10; got 11"):
        BeamConfig(2, length_penalty=11.0)


def counted(one):
    return len(one.tokens) + (one.stop_logprob is not None)


def test_a_word_that_cannot_be_written_need_not_be_forbidden():
    words = text.train_tokenizer(["a bad cab"], "words", 20, token_template="t5")
    assert len(bad_words_ids(["bad", "cab"], words)) == 2
    with pytest.raises(ValueError, match="--bad-words: the tokenizer has no tokens for 'dog'"):
        bad_words_ids(["bad", "dog"], words)


def test_a_command_that_draws_by_nature_draws_unless_told_otherwise():
    assert GenerationConfig().with_default_sampling(0.8, 0.95) == GenerationConfig(temperature=0.8, top_p=0.95)
    assert GenerationConfig(top_k=3, top_p=0.5).with_default_sampling(0.8, 0.95) == GenerationConfig(
        temperature=0.8, top_k=3, top_p=0.5
    )
    assert GenerationConfig(mbr_samples=4).with_default_sampling(0.8, 0.95).temperature == 0.8
    for told in (
        GenerationConfig(temperature=0.0),
        GenerationConfig(beams=2),
        GenerationConfig(contrastive_alpha=0.5),
        GenerationConfig(prompt_lookup=True),
    ):
        assert told.with_default_sampling(0.8, 0.95) == told


@pytest.mark.parametrize("settings", [GenerationConfig(), GenerationConfig(beams=2, n_best=2)])
def test_many_come_out_in_their_order(settings, monkeypatch):
    monkeypatch.setattr("saccade.decoding.batch_generate.MAX_PROMPTS_SORTED", 4)
    monkeypatch.setattr("saccade.decoding.batch_generate.MAX_PROMPTS_PER_BATCH", 3)
    prompts, heard = [PROMPTS[n % 5][: 1 + n % 3] for n in range(10)], []
    got = list(
        generate_many(
            TextGenerator(settings, model(), TOKENIZER),
            map(ids, prompts),
            max_new_tokens=LIMIT,
            on_progress=heard.append,
        )
    )
    assert heard == [3, 4, 7, 8, 10]
    for prompt, row in zip(prompts, got, strict=True):
        (alone,) = texts(settings, [prompt])
        assert [one.tokens for one in row] == [one.tokens for one in alone]
        assert_close([one.score for one in row], [one.score for one in alone], rtol=1e-4, atol=1e-4)


def test_the_first_is_out_before_the_last_is_in(monkeypatch):
    monkeypatch.setattr("saccade.decoding.batch_generate.MAX_PROMPTS_SORTED", 2)
    asked = []
    coming = (asked.append(n) or ids("ab") for n in range(100))
    found = generate_many(TextGenerator(GenerationConfig(), model(), TOKENIZER), coming, max_new_tokens=3)
    next(found)
    assert asked == [0, 1]


def test_what_is_too_long_loses_its_beginning():
    (long,) = generate_many(
        TextGenerator(GenerationConfig(), model(), TOKENIZER), [ids("abc" * 50)], max_new_tokens=LIMIT
    )
    (short,) = texts(GenerationConfig(), [("abc" * 50)[-(64 - LIMIT) :]])
    assert long[0].tokens == short[0].tokens


def test_batches_are_bounded_by_what_is_written():
    assert next(plan_batches([(5, 10)] * 200, beams=1)) == list(range(64))
    assert max(map(len, plan_batches([(100, 924)] * 50, beams=4))) == 4
    assert list(plan_batches([(9, 9000), (2, 9000), (5, 9000)], beams=8)) == [[0], [2], [1]]


@pytest.mark.parametrize(
    "settings", [GenerationConfig(), GenerationConfig(beams=2), GenerationConfig(regex="[a-h]{30,}")]
)
def test_a_long_prompt_takes_no_room_from_its_neighbours(settings):
    """Of 64 places; alone, each writes as much as there is room for."""
    prompts, ways = ["a", "abcd" * 10, "hg", "dcba" * 8 + "a", "e" * 40], TextGenerator(settings, model(), TOKENIZER)
    rooms = [50, 24, 50, 31, 24] if not settings.regex else [50, 34, 50, 34, 34]
    prompts = prompts if not settings.regex else [prompt[:30] for prompt in prompts]
    got = generate_many(ways, map(ids, prompts), max_new_tokens=50)
    for prompt, room, (one, *_) in zip(prompts, rooms, got, strict=True):
        (alone,) = generate_hypotheses(model(), batch([prompt]), TOKENIZER, settings, max_new_tokens=room)
        assert one.tokens == alone[0].tokens
        assert one.hit_stop or len(one.tokens) == room


def test_a_program_gets_scores_and_log_probabilities():
    task = task_class("translate")()
    (row,) = texts(GenerationConfig(beams=3, n_best=3), PROMPTS[:1])
    shown = json.loads(format_example_texts(task, row, Example({"source": "abcab"}), True))
    assert shown["text"] == row[0].text
    assert shown["score"] == row[0].score
    assert sum(shown["logprobs"]) / len(shown["logprobs"]) == pytest.approx(shown["score"])
    assert [other["text"] for other in shown["alternatives"]] == [one.text for one in row[1:]]
    lines = format_example_texts(task, row, Example({"source": "abcab"}), False).splitlines()
    assert lines == [f"{one.score:.4f}\t{one.text}" for one in row]


def test_every_flag_has_its_sentence():
    page = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `--")]
    told = {word for row in rows for word in re.findall(r"--[a-z-]+", row)}
    assert {flag(item.name) for item in fields(GenerationConfig)} <= told


class Terminal(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize(("terminal", "after", "shown"), [(True, 0.0, True), (True, 9.0, False), (False, 0.0, False)])
def test_only_who_waits_long_at_a_terminal_sees_a_bar(terminal, after, shown, monkeypatch):
    monkeypatch.setattr("saccade.progress.MIN_SECONDS_BEFORE_BAR", after)
    stream = Terminal(terminal)
    with ProgressBar(stream) as waiting:
        waiting.update(3, 7)
        waiting.update(7, 7)
    assert ("7/7" in stream.getvalue()) == shown
    assert bool(stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translate", "nowhere", "--beams", "0"], "saccade translate: --beams: at least 1 is needed; got 0."),
        (
            ["caption", "nowhere", "--beams", "2", "--mbr-samples", "3"],
            "--beams and --mbr-samples are two decoding strategies",
        ),
        (["generate", "nowhere", "a", "--data", "b"], "A prompt and --data are both given"),
        (["generate", "nowhere", "--count", "3", "--beams", "2"], "All 3 texts of --count would be equal"),
        (["generate", "nowhere", "--count", "0"], "--count is 0; it must be at least 1"),
    ],
)
def test_a_wrong_call_is_refused_before_a_model_is_looked_for(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_flags_are_explained_without_torch():
    """So that help answers at once."""
    code = "import sys, saccade.cli.commands.predict, saccade.cli.commands.generate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_space_between_prompt_and_text_is_not_lost():
    """Sentence pieces carry the space in front of a word, and a decoder drops that of the first."""
    pieces = text.train_tokenizer(["a bad cab fed a dad " * 9], "unigram", 40, token_template="t5")
    before, after = (pieces.encode(part, add_special_tokens=False).ids for part in ("a bad", "cab fed"))
    whole = "a bad" + leading_space(pieces, before, after) + pieces.decode(after)
    assert whole == pieces.decode(before + after) == "a bad cab fed"
    assert leading_space(TOKENIZER, ids("ab"), ids("c")) == ""
