"""A question and a text as windows that a model can read, and the answers found in windows as answers to the question."""

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

IGNORE_INDEX = -100  # a place to learn nothing from
NO_ANSWER_POSITION = 0  # the token of a window at which the answer "no answer" begins and ends
NO_ANSWER_SPAN = (-1, -1)  # an answer that stands in no window


@dataclass(frozen=True)
class Window(Item):
    """A question and a stretch of its text; gold is the first and the last token of the answer, in this window."""

    text_start: int = 0  # where in the window the text begins
    offsets: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), np.int32))  # (n, 2): each token's characters
    is_first: bool = True  # the first window of its example
    question_end: int = 0  # tokens up to the end of the question, which a model that looks near lets everybody see


def make_windows(
    example: Example, encoded: Encoding, *, max_tokens: int, stride: int, max_question_tokens: int
) -> list[Window]:
    """The example in windows of at most `limit` tokens, each `stride` tokens after the one before; long questions are cut."""
    parts = np.array([-1 if part is None else part for part in encoded.text_ids])
    text = np.flatnonzero(parts == 1)
    begin, end = (int(text[0]), int(text[-1]) + 1) if len(text) else (len(parts), len(parts))
    beyond = np.flatnonzero(parts == 0)[max_question_tokens:]
    before = np.setdiff1d(np.arange(begin), beyond)
    after = np.arange(end, len(parts))
    question_end = int(np.flatnonzero(parts[before] == 0)[-1]) + 1 if (parts[before] == 0).any() else 1
    room = max_tokens - len(before) - len(after)
    if room < 1:
        raise UsageError(
            f"task.max_tokens is {max_tokens}, and a question takes {len(before) + len(after)} of it; "
            "raise task.max_tokens or lower task.max_question_tokens."
        )
    ids, segments = np.array(encoded.ids, np.int32), np.array(encoded.segment_ids, np.int8)
    places = np.array(encoded.offsets, np.int32).reshape(-1, 2)[begin:end]
    span = answer_token_span(example, places)
    out: list[Window] = []
    for start in window_starts(end - begin, room, stride):
        stop = min(start + room, end - begin)
        chosen = np.concatenate([before, np.arange(begin + start, begin + stop), after])
        gold = span if span is None or span[0] == IGNORE_INDEX else _span_in_window(span, start, stop, len(before))
        view = places[start:stop]
        made = Window(example, ids[chosen], None, gold, segments[chosen], (), len(before), view, not out, question_end)
        out.append(made)
    return out


def window_starts(count: int, size: int, stride: int) -> list[int]:
    """Where windows begin: a stride apart, until one reaches the end; no token is left out.

    >>> window_starts(10, size=4, stride=3), window_starts(10, size=4, stride=9), window_starts(3, size=4, stride=1)
    ([0, 3, 6], [0, 4, 8], [0])
    """
    step = min(stride, size)
    return list(range(0, max(1, count - size + step), step))


def answer_token_span(example: Example, offsets: np.ndarray) -> tuple[int, int] | None:
    """The first and the last of the text's tokens that the gold answer has; None where the gold is not known.

    Of several gold answers the one that most people gave is learnt, and of equals the first. An answer that has no token,
    such as one of characters that the tokenizer drops, teaches nothing.
    """
    if "answers" not in example:
        return None
    if not example["answers"]:
        return NO_ANSWER_SPAN
    answers = [tuple(answer) for answer in example["answers"]]
    start, text = max(answers, key=answers.count)
    ends, begins = (np.maximum.accumulate(offsets[:, side]) if len(offsets) else offsets[:, side] for side in (1, 0))
    first = int(np.searchsorted(ends, start, side="right"))  # the first token that ends behind the first character
    last = int(np.searchsorted(begins, start + len(text), side="left")) - 1  # the last that begins before the last
    return (first, last) if first <= last < len(offsets) else (IGNORE_INDEX, IGNORE_INDEX)


def _span_in_window(span: tuple[int, int], start: int, stop: int, first: int) -> tuple[int, int]:
    """Places in the text as places in a window; a window that has not the whole answer has none."""
    if start <= span[0] and span[1] < stop:
        return span[0] - start + first, span[1] - start + first
    return NO_ANSWER_POSITION, NO_ANSWER_POSITION


def best_spans(
    scores: Tensor, windows: Sequence[Window], *, max_answer_tokens: int, count: int
) -> list[list[tuple[float, int, int]]]:
    """The best (score, first character, end) of each window, from (B, L, 2) scores of begins and ends, the best first."""
    scores = scores.float()
    length = scores.size(1)
    inside = torch.zeros(scores.shape[:2], dtype=torch.bool)
    for i, row in enumerate(windows):
        inside[i, row.text_start : row.text_start + len(row.offsets)] = True
    scores = scores.masked_fill(~inside.to(scores.device).unsqueeze(-1), -torch.inf)
    wide = min(max_answer_tokens, length)
    ends = F.pad(scores[..., 1], (0, wide - 1), value=-torch.inf).unfold(1, wide, 1)  # (B, L, wide)
    sums = (scores[..., :1] + ends).flatten(1)
    top = sums.topk(min(count, sums.size(1)))
    out = []
    for row, values, found in zip(windows, top.values.tolist(), top.indices.tolist(), strict=True):
        spans = []
        for value, at in zip(values, found, strict=True):
            first = at // wide - row.text_start
            if value > -torch.inf:
                spans.append((value, *_trim_whitespace(row, first, first + at % wide)))
        out.append([span for span in spans if span[1] < span[2]])
    return out


def _trim_whitespace(row: Window, first: int, last: int) -> tuple[int, int]:
    """The characters of some tokens, without white space around them."""
    start, end = int(row.offsets[first, 0]), int(row.offsets[last, 1])
    text = row.example["context"][start:end]
    return start + len(text) - len(text.lstrip()), end - len(text) + len(text.rstrip())


def merge_windows(answers: Sequence[dict[str, Any]], items: Sequence[Item], count: int) -> list[dict[str, Any]]:
    """An answer for each example: the best spans of all its windows, and the least that any of them says for no answer."""
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
