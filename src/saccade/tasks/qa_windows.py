"""Sliding windows for extractive question answering: windows of a question and its context, and merging of their spans."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Example
from saccade.errors import UsageError
from saccade.tasks.base import Item
from saccade.text.tokenizer import Encoding

IGNORE_INDEX = -100  # target that the loss ignores
NO_ANSWER_POSITION = 0  # token of a window that stands for "no answer", as its start and its end
NO_ANSWER_SPAN = (-1, -1)  # the span of "no answer" in the context, outside every window


@dataclass(frozen=True)
class Window(Item):
    """A question and a part of its context; gold is the first and the last token of the answer, as positions in this window."""

    text_start: int = 0  # position in the window at which the context begins
    offsets: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))  # (n, 2): each token's characters
    is_first: bool = True  # the first window of its example
    question_end: int = 0  # tokens up to the end of the question; global tokens of a model with local attention


def make_windows(
    example: Example, encoded: Encoding, *, max_tokens: int, stride: int, max_question_tokens: int
) -> list[Window]:
    """The windows of an example, each of at most `max_tokens` tokens and `stride` apart; long questions are truncated."""
    text_ids = np.array([-1 if text_id is None else text_id for text_id in encoded.text_ids])
    context = np.flatnonzero(text_ids == 1)
    begin, end = (int(context[0]), int(context[-1]) + 1) if len(context) else (len(text_ids), len(text_ids))
    truncated = np.flatnonzero(text_ids == 0)[max_question_tokens:]
    before = np.setdiff1d(np.arange(begin), truncated)
    after = np.arange(end, len(text_ids))
    question_end = int(np.flatnonzero(text_ids[before] == 0)[-1]) + 1 if (text_ids[before] == 0).any() else 1
    room = max_tokens - len(before) - len(after)
    if room < 1:
        raise UsageError(
            f"task.max_tokens is {max_tokens}, of which the question takes {len(before) + len(after)}; "
            "raise task.max_tokens or lower task.max_question_tokens."
        )
    ids, segments = np.array(encoded.ids, np.int32), np.array(encoded.segment_ids, np.int8)
    offsets = np.array(encoded.offsets, np.int32).reshape(-1, 2)[begin:end]
    gold_span = answer_token_span(example, offsets)
    out: list[Window] = []
    for start in window_starts(end - begin, room, stride):
        stop = min(start + room, end - begin)
        indices = np.concatenate([before, np.arange(begin + start, begin + stop), after])
        gold = (
            gold_span
            if gold_span is None or gold_span[0] == IGNORE_INDEX
            else _span_in_window(gold_span, start, stop, len(before))
        )
        window_offsets = offsets[start:stop]
        window = Window(
            example, ids[indices], None, gold, segments[indices], (), len(before), window_offsets, not out, question_end
        )
        out.append(window)
    return out


def window_starts(count: int, size: int, stride: int) -> list[int]:
    """The starts of windows that cover `count` tokens: `stride` apart, and at most `size`, so that no token is left out.

    >>> window_starts(10, size=4, stride=3), window_starts(10, size=4, stride=9), window_starts(3, size=4, stride=1)
    ([0, 3, 6], [0, 4, 8], [0])
    """
    step = min(stride, size)
    return list(range(0, max(1, count - size + step), step))


def answer_token_span(example: Example, offsets: np.ndarray) -> tuple[int, int] | None:
    """The first and the last token of the gold answer in the context; None if the gold is unknown.

    Of several gold answers the most frequent one is the target, and of ties the first. An answer without tokens, such as one
    of characters that the tokenizer drops, is ignored by the loss.
    """
    if "answers" not in example:
        return None
    if not example["answers"]:
        return NO_ANSWER_SPAN
    answers = [tuple(answer) for answer in example["answers"]]
    start, text = max(answers, key=answers.count)
    ends, begins = (np.maximum.accumulate(offsets[:, side]) if len(offsets) else offsets[:, side] for side in (1, 0))
    first = int(np.searchsorted(ends, start, side="right"))  # the first token that ends after the first character
    last = int(np.searchsorted(begins, start + len(text), side="left")) - 1  # the last that begins before the end
    return (first, last) if first <= last < len(offsets) else (IGNORE_INDEX, IGNORE_INDEX)


def _span_in_window(span: tuple[int, int], start: int, stop: int, first: int) -> tuple[int, int]:
    """A span of the context as positions in a window; "no answer" if the window does not contain all of it."""
    if start <= span[0] and span[1] < stop:
        return span[0] - start + first, span[1] - start + first
    return NO_ANSWER_POSITION, NO_ANSWER_POSITION


def best_spans(
    scores: Tensor, windows: Sequence[Window], *, max_answer_tokens: int, count: int
) -> list[list[tuple[float, int, int]]]:
    """The best spans of each window as (score, start, end) in characters, best first, from (B, L, 2) start and end logits."""
    scores = scores.float()
    length = scores.size(1)
    in_context = torch.zeros(scores.shape[:2], dtype=torch.bool)
    for i, window in enumerate(windows):
        in_context[i, window.text_start : window.text_start + len(window.offsets)] = True
    scores = scores.masked_fill(~in_context.to(scores.device).unsqueeze(-1), -torch.inf)
    max_width = min(max_answer_tokens, length)
    ends = F.pad(scores[..., 1], (0, max_width - 1), value=-torch.inf).unfold(1, max_width, 1)  # (B, L, wide)
    sums = (scores[..., :1] + ends).flatten(1)
    top = sums.topk(min(count, sums.size(1)))
    out = []
    for window, values, indices in zip(windows, top.values.tolist(), top.indices.tolist(), strict=True):
        spans = []
        for value, index in zip(values, indices, strict=True):
            first = index // max_width - window.text_start
            if value > -torch.inf:
                spans.append((value, *_trim_whitespace(window, first, first + index % max_width)))
        out.append([span for span in spans if span[1] < span[2]])
    return out


def _trim_whitespace(window: Window, first: int, last: int) -> tuple[int, int]:
    """The characters of a span of tokens, without surrounding white space."""
    start, end = int(window.offsets[first, 0]), int(window.offsets[last, 1])
    text = window.example["context"][start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def merge_windows(answers: Sequence[dict[str, Any]], items: Sequence[Item], count: int) -> list[dict[str, Any]]:
    """One answer per example: the best spans of all its windows, and the lowest no-answer score of any window."""
    out: list[dict[str, Any]] = []
    texts: list[str] = []
    for answer, item in zip(answers, items, strict=True):
        if not isinstance(item, Window) or item.is_first:
            texts.append(item.example["context"])
            out.append({"null": answer["null"], "best": list(answer["best"])})
        else:
            out[-1] = {"null": min(out[-1]["null"], answer["null"]), "best": out[-1]["best"] + list(answer["best"])}
    for answer, text in zip(out, texts, strict=True):
        best: dict[tuple[int, int], float] = {}
        for score, start, end in sorted(answer["best"], key=lambda span: -span[0]):
            best.setdefault((start, end), score)
        answer["best"] = [
            {"text": text[start:end], "start": start, "end": end, "score": score}
            for (start, end), score in list(best.items())[:count]
        ]
    return out
