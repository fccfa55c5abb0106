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
from saccade.cli.waiting import Waiting
from saccade.cli.writing import shown_texts
from saccade.data import Batch, Example, Text
from saccade.decoding import Beams, Bounds, Decoding, Draw, search, write_texts
from saccade.decoding.contrast import contrast
from saccade.decoding.many import batches, write_many
from saccade.decoding.risk import safest
from saccade.decoding.settings import flag
from saccade.decoding.stop import written
from saccade.decoding.texts import space_between
from saccade.decoding.ways import Ways, spelt
from saccade.models import gpt2, transformer
from saccade.models.new import new
from saccade.tasks.table import task_class

LIMIT = 12
TOKENIZER = text.train(["abcdefgh .,"], "characters", frame="t5")
PROMPTS = ["abcab", "h", "a bad cab.", "dead", "fed a fad"]


def model(family="gpt2", seed=1):
    sizes = {"vocab": TOKENIZER.vocab, "width": 12, "layers": 1, "heads": 3, "inner": 17, "length": 64, "dropout": 0.0}
    torch.manual_seed(seed)
    made = new(family, {"gpt2": gpt2, "transformer": transformer}[family].Config(**sizes)).eval()
    for p in made.parameters():
        nn.init.normal_(p, std=0.5)
    with torch.no_grad():  # letters rather than bytes
        made.body.words.vectors.weight[[TOKENIZER.token(id).startswith("<") for id in range(TOKENIZER.vocab)]] *= 0.2
    made.tokenizer = TOKENIZER
    return made


def ids(prompt):
    return TOKENIZER.encode(prompt, special=False).ids


def batch(prompts=PROMPTS):
    return Batch(Text.of([ids(prompt) for prompt in prompts], left=True))


def texts(settings, prompts=PROMPTS, writer=None):
    return write_texts(writer or model(), batch(prompts), TOKENIZER, settings, limit=LIMIT)


BOUNDS = Bounds([TOKENIZER.end], LIMIT)


def test_nothing_said_is_greedy_and_scored_by_the_mean():
    wanted = written(model(), batch(), BOUNDS, tokenizer=TOKENIZER)
    for (one,), row in zip(texts(Decoding()), wanted, strict=True):
        assert (one.tokens, one.text, one.logprobs, one.ended) == (row.tokens, row.text, row.logprobs, row.ended)
        assert one.text == TOKENIZER.decode(one.tokens)
        assert one.score == pytest.approx(row.logprob / (len(row.tokens) + row.ended))


def test_beams_are_beams():
    asked = Decoding(beams=4, length_penalty=0.4, groups=2, diversity=0.3, enough="sure", n_best=3)
    wanted = search(model(), batch(), BOUNDS, Beams(4, 0.4, 0.0, 2, 0.3, "sure"), best=3)
    for row, right in zip(texts(asked), wanted, strict=True):
        assert [(one.tokens, one.score) for one in row] == [(one.tokens, one.score) for one in right]
        assert [one.text for one in row] == [TOKENIZER.decode(one.tokens) for one in right]


def test_coverage_reaches_the_search():
    writer = model("transformer")
    plain, covered = (texts(Decoding(beams=3, coverage=weight), writer=writer) for weight in (0.0, 2.0))
    assert all(one[0].score <= other[0].score for one, other in zip(covered, plain, strict=True))
    with pytest.raises(ValueError, match="looks across"):
        texts(Decoding(beams=3, coverage=2.0))


def test_draws_are_draws_and_the_same_seed_draws_the_same():
    asked = Decoding(temperature=0.7, top_k=9, top_p=0.9, min_p=0.01, typical=0.95, seed=5)
    wanted = written(model(), batch(), BOUNDS, Draw(0.7, 9, 0.9, 5, 0.01, 0.95))
    assert [one.tokens for (one,) in texts(asked)] == [row.tokens for row in wanted]
    assert texts(asked) == texts(asked)
    assert texts(asked) != texts(replace(asked, seed=6))
    several = texts(replace(asked, n_best=4))
    assert all(row == sorted(row, key=lambda one: -one.score) and len(row) == 4 for row in several)
    assert len({one.text for row in several for one in row}) > len(PROMPTS)


def test_samples_are_judged_by_each_other():
    choose = Draw(1.0, seed=2)
    draws = [written(model(), batch(), BOUNDS, choose, tokenizer=TOKENIZER) for _ in range(5)]
    for (one,), row in zip(texts(Decoding(samples=5, seed=2)), zip(*draws, strict=True), strict=True):
        best = safest([draw.text for draw in row])
        assert (one.text, one.score) == (best.text, best.utility)
        assert one.tokens == row[best.number].tokens


def test_contrast_is_contrast_with_log_probabilities():
    wanted = contrast(model(), batch(), BOUNDS, alpha=0.5)
    for (one,), row, prompt in zip(texts(Decoding(contrast=0.5)), wanted, PROMPTS, strict=True):
        assert one.tokens == row
        whole = torch.tensor([ids(prompt) + row])
        writer = model()
        state, first = writer.start(Batch(Text(whole)))
        logs = writer.step(first, state)[0, len(ids(prompt)) - 1 : -1].log_softmax(-1)
        assert_close(torch.tensor(one.logprobs), logs.gather(-1, torch.tensor(row)[:, None])[:, 0])


def test_contrast_ends_at_a_stop_string_and_keeps_to_the_rules():
    """The greedy text of alpha 0 by another path, and with rules what they left of each probability."""
    rules = {"forbid": ("h",), "stop": ("c", "f")}
    almost, plain = (texts(Decoding(contrast=alpha, **rules)) for alpha in (1e-9, 0.0))
    assert any(one.ended and one.closing is None for (one,) in plain)
    for (one,), (right,) in zip(almost, plain, strict=True):
        assert (one.tokens, one.text, one.ended) == (right.tokens, right.text, right.ended)
        assert_close(one.ruled, right.ruled)
        assert_close(one.logprobs, right.logprobs)
        assert all(ruled > own for ruled, own in zip(one.ruled, one.logprobs, strict=True))


@pytest.mark.parametrize("settings", [{}, {"beams": 3}, {"temperature": 2.0}, {"contrast": 0.4}, {"look_up": True}])
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
    got, wanted = (texts(Decoding(**settings), writer=one) for one in (padded, writer))
    assert [[one.text for one in row] for row in got] == [[one.text for one in row] for row in wanted]


@pytest.mark.parametrize("stop", [(), ("a", "dd")])
def test_speculation_changes_nothing(stop, tmp_path):
    model(seed=4).save(tmp_path / "draft")
    wanted = texts(Decoding(stop=stop))
    for asked in (Decoding(look_up=True, stop=stop), Decoding(draft=str(tmp_path / "draft"), stop=stop)):
        for (one,), (right,) in zip(texts(asked), wanted, strict=True):
            assert (one.tokens, one.text, one.ended) == (right.tokens, right.text, right.ended)
            assert_close(one.logprobs, right.logprobs, rtol=1e-4, atol=1e-4)
            assert one.score == pytest.approx(right.score, abs=1e-4)


def test_a_draft_with_other_tokens_is_refused(tmp_path):
    other = model()
    other.tokenizer = text.train(["zyxw"], "characters", frame="t5")
    other.save(tmp_path / "draft")
    with pytest.raises(ValueError, match=r"--draft: .* has other tokens"):
        texts(Decoding(draft=str(tmp_path / "draft")))


@pytest.mark.parametrize("beams", [1, 3])
def test_rules_and_stop_strings_hold(beams):
    settings = Decoding(beams=beams, min_length=4, no_repeat=2, forbid=("a", "bc"), stop=("h", "dg"))
    assert any(set("ah") & set(row[0].text) for row in texts(Decoding(beams=beams)))
    for row, prompt in zip(texts(settings), PROMPTS, strict=True):
        one = row[0]
        assert "a" not in one.text
        assert "bc" not in one.text
        assert "h" not in one.text
        assert "dg" not in one.text
        whole = TOKENIZER.decode(one.tokens)
        assert whole.startswith(one.text)
        assert one.ended == (len(one.tokens) < LIMIT or whole != one.text)
        pairs = list(pairwise(ids(prompt) + one.tokens))
        new = range(len(ids(prompt)) - 1, len(pairs))
        assert not any(pairs[place] in pairs[:place] for place in new)
    for row in texts(Decoding(beams=beams, regex="(ab|cd){2}e?")):
        assert re.fullmatch("(ab|cd){2}e?", row[0].text)
    for row in texts(Decoding(beams=beams, allow=("bad", "add a fee"))):
        assert row[0].text in ("bad", "add a fee")
    assert all(len(row[0].tokens) <= 3 for row in texts(Decoding(beams=beams, length=3)))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"beams": 0}, "--beams: at least 1 is needed; got 0"),
        ({"beams": 4, "temperature": 0.7}, "--temperature: --beams leaves nothing to chance"),
        ({"beams": 4, "samples": 3}, "--beams and --samples are two ways"),
        ({"contrast": 0.5, "look_up": True}, "--contrast and --look-up are two ways"),
        ({"draft": "x", "look_up": True}, "--draft and --look-up are two ways"),
        ({"draft": "x", "temperature": 0.5}, "--temperature: --draft leaves nothing to chance"),
        ({"samples": 4, "temperature": 0.0}, "--samples: they are drawn"),
        ({"top_k": 4}, "--top-k: it narrows what is drawn"),
        ({"typical": 0.5, "temperature": 0.0}, "--typical: it narrows"),
        ({"groups": 2}, "--groups: it is about beams"),
        ({"coverage": 0.1}, "--coverage: it is about beams"),
        ({"n_best": 3}, "--n-best: several texts come of --beams"),
        ({"beams": 2, "n_best": 3}, "2 beams find 2 texts at most; got 3"),
        ({"length": 3, "min_length": 5}, "at most 3 tokens and at least 5"),
        ({"allow": ("a",), "regex": "a"}, "--allow: a list of texts and --regex"),
        ({"temperature": float("nan")}, "--temperature: a number is needed; got nan"),
        ({"no_repeat": -1}, "--no-repeat: 0 or more"),
        ({"beams": 4, "groups": 3}, "4 beams in 3 groups"),
        ({"temperature": -1.0}, "--temperature: 0 or more is needed; got -1.0"),
        ({"repetition": 0.0}, "--repetition: a number above 0 is needed"),
        ({"diversity": 0.5}, "--diversity: it is about beams"),
        ({"beams": 4, "diversity": 0.5}, "--diversity: it is between groups"),
        ({"contrast": -1.0}, "--contrast: a share from 0 to 1 is needed; got -1.0"),
        ({"contrast": 2.0}, "--contrast: a share from 0 to 1 is needed; got 2.0"),
        ({"temperature": 1.0, "top_p": 2.0}, "--top-p: a share above 0 and at most 1"),
        ({"temperature": 1.0, "min_p": -0.1}, "--min-p: a share from 0 to 1"),
        ({"forbid": ("a", "")}, "--forbid: a text of at least one letter"),
        ({"stop": ("",)}, "--stop: a text of at least one letter"),
        ({"regex": "a*", "stop": ("b",)}, "--regex: it says where a text ends, and --stop would cut it"),
        ({"allow": ("ab",), "stop": ("b",)}, "--allow: it says where a text ends"),
        ({"regex": "("}, "--regex: The expression '('"),
        ({"temperature": 1.0, "seed": 2**64}, "--seed: a whole number of at most 64 bits"),
        ({"beams": 2, "length_penalty": 1000.0}, "--length-penalty: a number from -10 to 10 is needed; got 1000.0"),
        ({"length_penalty": -1000.0}, "--length-penalty: a number from -10 to 10"),
    ],
)
def test_what_cannot_be_is_refused_by_name(given, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Decoding(**given).check()  # before a model is looked at


@pytest.mark.parametrize("penalty", [-10.0, 10.0])
def test_the_steepest_length_penalty_still_gives_numbers(penalty):
    for row in texts(Decoding(beams=3, length_penalty=penalty, n_best=3)) + texts(Decoding(length_penalty=penalty)):
        assert all(math.isfinite(one.score) for one in row)
        assert all(one.score == pytest.approx(one.logprob / counted(one) ** penalty) for one in row)
    with pytest.raises(ValueError, match="length penalty is a number from -10 to 10; got 11"):
        Beams(2, length_penalty=11.0)


def counted(one):
    return len(one.tokens) + (one.closing is not None)


def test_a_word_that_cannot_be_written_need_not_be_forbidden():
    words = text.train(["a bad cab"], "words", 20, frame="t5")
    assert len(spelt(["bad", "cab"], words)) == 2
    with pytest.raises(ValueError, match="--forbid: the tokenizer has no tokens for 'dog'"):
        spelt(["bad", "dog"], words)


def test_a_command_that_draws_by_nature_draws_unless_told_otherwise():
    assert Decoding().or_draw(0.8, 0.95) == Decoding(temperature=0.8, top_p=0.95)
    assert Decoding(top_k=3, top_p=0.5).or_draw(0.8, 0.95) == Decoding(temperature=0.8, top_k=3, top_p=0.5)
    assert Decoding(samples=4).or_draw(0.8, 0.95).temperature == 0.8
    for told in (Decoding(temperature=0.0), Decoding(beams=2), Decoding(contrast=0.5), Decoding(look_up=True)):
        assert told.or_draw(0.8, 0.95) == told


@pytest.mark.parametrize("settings", [Decoding(), Decoding(beams=2, n_best=2)])
def test_many_come_out_in_their_order(settings, monkeypatch):
    monkeypatch.setattr("saccade.decoding.many.WINDOW", 4)
    monkeypatch.setattr("saccade.decoding.many.ROWS", 3)
    prompts, heard = [PROMPTS[n % 5][: 1 + n % 3] for n in range(10)], []
    got = list(write_many(Ways(settings, model(), TOKENIZER), map(ids, prompts), limit=LIMIT, told=heard.append))
    assert heard == [3, 4, 7, 8, 10]
    for prompt, row in zip(prompts, got, strict=True):
        (alone,) = texts(settings, [prompt])
        assert [one.tokens for one in row] == [one.tokens for one in alone]
        assert_close([one.score for one in row], [one.score for one in alone], rtol=1e-4, atol=1e-4)


def test_the_first_is_out_before_the_last_is_in(monkeypatch):
    monkeypatch.setattr("saccade.decoding.many.WINDOW", 2)
    asked = []
    coming = (asked.append(n) or ids("ab") for n in range(100))
    found = write_many(Ways(Decoding(), model(), TOKENIZER), coming, limit=3)
    next(found)
    assert asked == [0, 1]


def test_what_is_too_long_loses_its_beginning():
    (long,) = write_many(Ways(Decoding(), model(), TOKENIZER), [ids("abc" * 50)], limit=LIMIT)
    (short,) = texts(Decoding(), [("abc" * 50)[-(64 - LIMIT) :]])
    assert long[0].tokens == short[0].tokens


def test_batches_are_bounded_by_what_is_written():
    assert next(batches([(5, 10)] * 200, beams=1)) == list(range(64))
    assert max(map(len, batches([(100, 924)] * 50, beams=4))) == 4
    assert list(batches([(9, 9000), (2, 9000), (5, 9000)], beams=8)) == [[0], [2], [1]]


@pytest.mark.parametrize("settings", [Decoding(), Decoding(beams=2), Decoding(regex="[a-h]{30,}")])
def test_a_long_prompt_takes_no_room_from_its_neighbours(settings):
    """Of 64 places; alone, each writes as much as there is room for."""
    prompts, ways = ["a", "abcd" * 10, "hg", "dcba" * 8 + "a", "e" * 40], Ways(settings, model(), TOKENIZER)
    rooms = [50, 24, 50, 31, 24] if not settings.regex else [50, 34, 50, 34, 34]
    prompts = prompts if not settings.regex else [prompt[:30] for prompt in prompts]
    got = write_many(ways, map(ids, prompts), limit=50)
    for prompt, room, (one, *_) in zip(prompts, rooms, got, strict=True):
        (alone,) = write_texts(model(), batch([prompt]), TOKENIZER, settings, limit=room)
        assert one.tokens == alone[0].tokens
        assert one.ended or len(one.tokens) == room


def test_a_program_gets_scores_and_log_probabilities():
    task = task_class("translate")()
    (row,) = texts(Decoding(beams=3, n_best=3), PROMPTS[:1])
    shown = json.loads(shown_texts(task, row, Example({"source": "abcab"}), True))
    assert shown["translation"] == row[0].text
    assert shown["score"] == row[0].score
    assert sum(shown["logprobs"]) / len(shown["logprobs"]) == pytest.approx(shown["score"])
    assert [other["translation"] for other in shown["others"]] == [one.text for one in row[1:]]
    lines = shown_texts(task, row, Example({"source": "abcab"}), False).splitlines()
    assert lines == [f"{one.score:.4f}\t{one.text}" for one in row]


def test_every_flag_has_its_sentence():
    page = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `--")]
    told = {word for row in rows for word in re.findall(r"--[a-z-]+", row)}
    assert {flag(item.name) for item in fields(Decoding)} <= told


class Terminal(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


@pytest.mark.parametrize(("terminal", "after", "shown"), [(True, 0.0, True), (True, 9.0, False), (False, 0.0, False)])
def test_only_who_waits_long_at_a_terminal_sees_a_bar(terminal, after, shown, monkeypatch):
    monkeypatch.setattr("saccade.cli.waiting.AFTER", after)
    stream = Terminal(terminal)
    with Waiting(stream) as waiting:
        waiting.told(3, 7)
        waiting.told(7, 7)
    assert ("7/7" in stream.getvalue()) == shown
    assert bool(stream.getvalue()) == shown


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["translate", "nowhere", "--beams", "0"], "saccade translate: --beams: at least 1 is needed; got 0."),
        (["caption", "nowhere", "--beams", "2", "--samples", "3"], "--beams and --samples are two ways to write"),
        (["generate", "nowhere", "a", "--data", "b"], "A text and --data are two ways to begin"),
        (["generate", "nowhere", "--count", "3", "--beams", "2"], "--count 3 texts would be the same one"),
        (["generate", "nowhere", "--count", "0"], "At least one text has to be asked for"),
    ],
)
def test_a_wrong_call_is_refused_before_a_model_is_looked_for(words, said, capsys):
    assert main(words) == 2
    assert said in capsys.readouterr().err


def test_flags_are_explained_without_torch():
    """So that help answers at once."""
    code = "import sys, saccade.cli.predict, saccade.cli.generate; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_space_between_prompt_and_text_is_not_lost():
    """Sentence pieces carry the space in front of a word, and a decoder drops that of the first."""
    pieces = text.train(["a bad cab fed a dad " * 9], "unigram", 40, frame="t5")
    before, after = (pieces.encode(part, special=False).ids for part in ("a bad", "cab fed"))
    whole = "a bad" + space_between(pieces, before, after) + pieces.decode(after)
    assert whole == pieces.decode(before + after) == "a bad cab fed"
    assert space_between(TOKENIZER, ids("ab"), ids("c")) == ""
