"""Windows that lose nothing, spans by trying all of them, thresholds that a run remembers, and the command that answers."""

import json
import math
import tomllib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.cli import main
from saccade.data import Example
from saccade.data.batching import BatchPlan
from saccade.data.example import Records
from saccade.data.samples import get_sample
from saccade.data.splits import Splits
from saccade.models.model import Model
from saccade.tasks.batches import make_batches
from saccade.tasks.predict import predict
from saccade.tasks.qa_windows import (
    IGNORE_INDEX,
    NO_ANSWER_POSITION,
    Window,
    best_spans,
    make_windows,
    merge_windows,
    window_starts,
)
from saccade.tasks.runs.run import open_run
from saccade.tasks.span import ALWAYS_ANSWER_THRESHOLD, Config, Span
from saccade.text.train import train_tokenizer
from saccade.training import prepare
from saccade.training.config import Config as Train
from saccade.training.prepare import Job, PreparedRun
from saccade.training.run import run_training

TINY = {"width": 16, "layers": 1, "ffn_width": 16, "heads": 2, "dropout": 0.0}


def ready(examples, **task_fields) -> PreparedRun:
    task = Span(Config(**task_fields))
    table, chosen = Records(list(examples)), task.defaults(examples, False)
    torch.manual_seed(0)
    model = prepare._build_model(Job("span", model_fields=TINY), task, chosen, table.examples)
    config = Train(epochs=1, batch_tokens=2048, save_minutes=0.0)
    return PreparedRun(Job("span"), task, model, Splits(table, table, None, digest="some"), config, chosen, [])


def asked(context, question="who is it?", *found):
    return Example({"context": context, "question": question, "answers": list(found)})


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), st.integers(1, 20), st.integers(1, 30))
def test_windows_cover_every_token_and_none_is_spare(count, room, stride):
    begins = window_starts(count, room, stride)
    seen = [set(range(start, min(start + room, count))) for start in begins]
    assert set().union(*seen) == set(range(count))
    assert all(max(window) < count - 1 for window in seen[:-1])
    assert all(b - a == min(stride, room) for a, b in pairwise(begins))


@pytest.mark.parametrize(
    ("pieces", "vocab"), [("characters", None), ("bpe", 290), ("bytes", None), ("unigram", 60), ("wordpiece", 60)]
)
def test_gold_tokens_of_any_tokenizer_hold_the_answer_and_no_token_more(pieces, vocab):
    context = "Zoë’s  two boats (red, 3 m long) lie in Århus; Bo sold one in May 2019, they say."
    tokenizer = train_tokenizer([context] * 3, pieces, vocab, token_template="bos_eos")
    encoded = tokenizer.encode("who?", context)
    for text in ("Zoë", "two boats", "red, 3 m long", "Århus", "2019", "say"):
        at = context.index(text)
        found = make_windows(
            asked(context, "who?", (at, text)), encoded, max_tokens=60, stride=7, max_question_tokens=9
        )
        held = [window for window in found if window.gold != (NO_ANSWER_POSITION, NO_ANSWER_POSITION)]
        assert held
        for window in held:
            (first, last), n = window.gold, len(window.source)
            scores = torch.zeros(1, n, 2)
            scores[0, first, 0] = scores[0, last, 1] = 5.0
            ((_, start, end),) = best_spans(scores, [window], max_answer_tokens=60, count=1)[0]
            assert context[start:end].strip() == context[start:end]
            assert start <= at < at + len(text) <= end
            places = window.offsets[[first - window.text_start, last - window.text_start]]
            assert places[0, 1] > at
            assert places[1, 0] < at + len(text)


def test_a_window_is_the_question_and_a_stretch_of_the_text():
    tokenizer = train_tokenizer(["abcdefghij?"], "characters", token_template="bos_eos")
    example = asked("abcdefghij", "ab?", (4, "ef"))
    found = make_windows(example, tokenizer.encode("ab?", "abcdefghij"), max_tokens=11, stride=3, max_question_tokens=2)
    shown = [tokenizer.decode(window.source.tolist(), keep_special_tokens=True) for window in found]
    assert shown == ["<s>ab</s><s>abcde</s>", "<s>ab</s><s>defgh</s>", "<s>ab</s><s>ghij</s>"]
    assert [window.gold for window in found] == [
        (NO_ANSWER_POSITION, NO_ANSWER_POSITION),
        (6, 7),
        (NO_ANSWER_POSITION, NO_ANSWER_POSITION),
    ]  # the first has half of it
    assert [window.is_first for window in found] == [True, False, False]
    assert [window.lengths for window in found] == [(11, 0), (11, 0), (10, 0)]
    assert found[1].segment_ids is not None
    assert found[1].segment_ids.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1]
    assert found[1].offsets.tolist() == [[i, i + 1] for i in range(3, 8)]
    assert [window.question_end for window in found] == [3, 3, 3]  # <s>ab, for a model that looks near
    assert Span().batch(found).source.global_mask.tolist() == [[True] * 3 + [False] * 8] * 3
    with pytest.raises(ValueError, match=r"task.max_tokens is 6, of which the question takes 6; raise task.max_tokens"):
        make_windows(example, tokenizer.encode("ab?", "abc"), max_tokens=6, stride=3, max_question_tokens=2)


def test_gold_of_several_of_none_and_of_what_no_token_has():
    tokenizer = train_tokenizer(["abc?"], "characters", token_template="bos_eos")
    encoded = tokenizer.encode("?", "abcabc")

    def gold(*found):
        return make_windows(asked("abcabc", "?", *found), encoded, max_tokens=30, stride=9, max_question_tokens=9)[
            0
        ].gold

    begin = encoded.text_ids.index(1)
    assert gold((0, "a"), (1, "b"), (1, "b")) == (begin + 1, begin + 1)  # what most people said
    assert gold((2, "c"), (0, "a")) == (begin + 2, begin + 2)  # of equals the first
    assert gold() == (NO_ANSWER_POSITION, NO_ANSWER_POSITION)
    assert gold((6, "x")) == (IGNORE_INDEX, IGNORE_INDEX)
    bare = Example({"context": "abcabc", "question": "?"})
    assert make_windows(bare, encoded, max_tokens=30, stride=9, max_question_tokens=9)[0].gold is None


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12), st.integers(1, 5), st.integers(0, 3), st.integers(0, 10_000))
def test_the_best_spans_are_those_of_trying_them_all(tokens, longest, count, first, seed):
    generator = np.random.Generator(np.random.PCG64(seed))
    text = "".join(generator.choice(list("ab c"), tokens))
    places = np.array([[i, i + 1] for i in range(tokens)], np.int32)
    row = Window(asked(text), np.zeros(first + tokens + 1, np.int32), text_start=first, offsets=places)
    scores = torch.from_numpy(generator.normal(size=(1, first + tokens + 2, 2)))
    scores[0, -1] = -torch.inf  # padding
    every = sorted(
        (-float(scores[0, first + a, 0] + scores[0, first + b, 1]), a, b + 1)
        for a in range(tokens)
        for b in range(a, min(tokens, a + longest))
    )[:count]
    kept = [(a, b) for _, a, b in every if text[a:b].strip()]
    found = best_spans(scores, [row], max_answer_tokens=longest, count=count)[0]
    assert [text[a:b] for _, a, b in found] == [text[a:b].strip() for a, b in kept]
    assert [-score for score, _, _ in found] == pytest.approx([s for s, a, b in every if text[a:b].strip()], abs=1e-5)


def test_windows_of_one_text_are_joined_and_two_equal_examples_are_two():
    example = asked("Ann saw Bob")
    rows = [Window(example, np.zeros(3, np.int32), is_first=opens) for opens in (True, False, True)]
    said = [
        {"null": 2.0, "best": [(1.0, 0, 3), (0.5, 8, 11)]},
        {"null": -1.0, "best": [(3.0, 8, 11)]},
        {"null": 0.0, "best": []},
    ]
    first, second = merge_windows(said, rows, 2)
    assert first["null"] == -1.0
    assert [(span["text"], span["start"], span["end"], span["score"]) for span in first["best"]] == [
        ("Bob", 8, 11, 3.0),
        ("Ann", 0, 3, 1.0),
    ]
    assert second == {"null": 0.0, "best": []}


def test_a_long_text_gives_the_answer_of_its_best_window():
    """A model that points at the letter z, wherever that is, finds it in a text of many windows."""
    made = ready(
        get_sample("questions").make(8, 0), max_tokens=24, stride=5, tokenizer="characters", max_answer_tokens=1
    )
    made.model.tokenizer = train_tokenizer(["abcdefghijklmnopqrstuvwxyz ?"], "characters", token_template="bos_eos")
    context = "abc " * 30 + "z" + " def" * 30
    example = asked(context, "z?", (context.index("z"), "z"))
    items = made.task.encode([example], made.model)
    assert len(items) > 20
    letter = made.model.tokenizer.token_to_id("z")

    class Pointer(torch.nn.Module):
        def forward(self, batch):
            return (batch.source.tokens == letter).float().unsqueeze(-1).expand(-1, -1, 2) * 9

    found = made.task.merge_answers(made.task.answer(Pointer(), made.task.batch(items)), items)  # type: ignore[arg-type]
    assert len(found) == 1
    best = found[0]["best"][0]
    assert (best["text"], best["start"], best["end"], best["score"]) == ("z", 120, 121, 18.0)
    plan = make_batches(made.task, [example], made.model, batch_tokens=48).plan
    assert isinstance(plan, BatchPlan)
    assert np.asarray(plan.lengths).tolist() == [[len(item.source), 0] for item in items]  # a row each


def test_the_loss_is_the_mean_of_both_ends_and_skips_what_cannot_be_learnt():
    made = ready(get_sample("questions").make(6, 0))
    items = made.task.encode(made.splits.train.examples, made.model)
    batch = made.task.batch([*items[:4], replace(items[4], gold=(IGNORE_INDEX, IGNORE_INDEX))])
    assert made.task.count_targets(batch) == 4
    scores = made.model.eval()(batch)
    costs = [
        -scores[i, : len(item.source), side].log_softmax(-1)[item.gold[side]] / 2
        for i, item in enumerate(items[:4])
        for side in (0, 1)
    ]
    torch.testing.assert_close(made.task.loss(made.model, batch), torch.stack(costs).sum())


def test_no_answer_is_said_beyond_the_threshold_and_the_shares_agree():
    example = asked("Ann saw Bob")
    best = [{"text": "Ann", "start": 0, "end": 3, "score": 2.0}, {"text": "Bob", "start": 8, "end": 11, "score": 1.0}]
    answer = {"null": 3.0, "best": best}
    for threshold, said in ((0.5, None), (1.0, "Ann"), (1.5, "Ann")):
        task = Span(Config(threshold=threshold))
        prediction = task.to_prediction(answer, example)
        shown = prediction.as_dict()
        total = math.exp(3 - threshold) + math.exp(2) + math.exp(1)
        assert shown["answer"] == said
        assert shown["no_answer"] == pytest.approx(math.exp(3 - threshold) / total)
        assert [span["score"] for span in shown["best"]] == pytest.approx([math.exp(2) / total, math.exp(1) / total])
        assert shown["score"] == max(shown["no_answer"], shown["best"][0]["score"])
        assert str(prediction) == f"{said or 'no answer'}  {shown['score']:.0%}"
    assert str(Span().to_prediction({"null": 0.0, "best": []}, example)) == "no answer  100%"


def test_a_run_whose_questions_all_have_answers_can_be_opened(tmp_path):
    examples = [asked("Ann is here.", "who is here?", (0, "Ann")), asked("It is Bob.", "who is it?", (6, "Bob"))] * 4
    for _ in run_training(ready(examples), tmp_path / "run"):
        pass
    opened = open_run(tmp_path / "run")
    task, model = opened.task, opened.model
    assert task.threshold == ALWAYS_ANSWER_THRESHOLD
    found, _ = predict(task, model, examples[:2])
    assert all(task.to_prediction(answer, example).answer for answer, example in zip(found, examples[:2], strict=True))


def test_the_threshold_is_tuned_unless_it_is_set_or_every_question_has_an_answer():
    def answer(margin, text="Ann"):
        return {"null": margin, "best": [{"text": text, "start": 0, "end": 3, "score": 0.0}]}

    found = [answer(-2.0), answer(1.0), answer(4.0), answer(6.0)]
    examples = [asked("Ann", "?", (0, "Ann")), asked("Ann", "?", (0, "Ann")), asked("Ann"), asked("Ann")]
    task = Span()
    assert task.score(found, examples)[0].value == 0.75  # at 0 the second is not answered
    task.tune(found, examples)
    assert task.threshold == 2.5
    assert task.score(found, examples)[0].value == 1.0
    task.tune(found[:2], examples[:2])
    assert task.threshold == ALWAYS_ANSWER_THRESHOLD
    fixed = Span(Config(threshold=0.25))
    fixed.tune(found, examples)
    assert (fixed.threshold, fixed.tuned_settings) == (0.25, {})
    with pytest.raises(ValueError, match=r"task.stride is 0; at least 1"):
        Config(stride=0)


def test_a_run_remembers_its_threshold_and_the_command_answers(tmp_path, capsys):
    made = ready(get_sample("questions").make(30, 2))
    list(run_training(made, tmp_path / "run"))
    kept = tomllib.loads((tmp_path / "run" / "config.toml").read_text(encoding="utf-8"))["task"]
    assert kept["threshold"] == made.task.tuned_settings["threshold"]
    task = open_run(tmp_path / "run", "span").task
    assert isinstance(task, Span)
    assert task.threshold == kept["threshold"]
    list(
        run_training(ready(get_sample("questions").make(30, 2)), tmp_path / "run")
    )  # what was tuned does not keep it from going on
    where, text = str(tmp_path / "run"), made.splits.train.examples[0]["context"]
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    capsys.readouterr()
    assert main(["answer", where, "--context", text, "Who has the books?", "What is red?", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["question"] for row in rows] == ["Who has the books?", "What is red?"]
    for row in rows:
        assert all(text[span["start"] : span["end"]] == span["text"] for span in row["best"])
        assert sum(span["score"] for span in row["best"]) + row["no_answer"] == pytest.approx(1)
    assert main(["answer", where, "--context", str(tmp_path / "text.txt"), "What is red?"]) == 0
    assert capsys.readouterr().out == f"{rows[1]['answer'] or 'no answer'}  {rows[1]['score']:.0%}\n"
    assert main(["predict", where, text, "What is red?", "--json"]) == 0  # the same by the general word
    assert json.loads(capsys.readouterr().out)["answer"] == rows[1]["answer"]
    assert main(["answer", where, "What is red?"]) == 2
    assert "--context FILE|TEXT" in capsys.readouterr().err
    assert main(["label", where, text]) == 4
    assert f"was trained for the task span ({task.description}); use saccade answer" in capsys.readouterr().err


def test_a_published_head_is_opened_as_this_task(tmp_path):
    made = ready(get_sample("questions").make(8, 0))
    model: Model = made.model
    model.save(tmp_path / "model")
    opened = open_run(tmp_path / "model")
    task, again = opened.task, opened.model
    assert task.name == "span"
    examples = made.splits.train.examples
    before, after = (predict(made.task, one, examples)[0] for one in (model, again))
    assert [a["best"][0]["text"] for a in before] == [a["best"][0]["text"] for a in after]
