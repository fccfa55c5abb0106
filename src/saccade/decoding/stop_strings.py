"""Generated texts with stop strings, streaming, and the log-probability of every token.

    criteria = StoppingCriteria(stop_ids=2, max_new_tokens=64)
    for pieces in stream_texts(model, batch, criteria, tokenizer, stop_strings=["\\n\\n", "END"]): print(pieces[0], end="")
    generate_texts(model, batch, criteria, tokenizer=tokenizer, stop_strings=["\\n\\n"])[0].text

A stop string may begin and end in the middle of tokens, so the text is searched, and its last characters are held back
while they may be the start of a stop string.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from saccade.data import Batch
from saccade.decoding.loop import DecodingStep, GreedyStep, SamplerFunction, token_steps
from saccade.decoding.sampling import greedy
from saccade.decoding.stopping import StopCondition, StoppingCriteria
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.text.stream_decoder import StreamDecoder
from saccade.text.tokenizer import Tokenizer


class StopStringCutter:
    """Cuts a stream of tokens before the first stop string; `is_done` tells that one has occurred.

    The stop string that ends first counts; among those that end at the same position, the longest.

    >>> from saccade.text.train import train_tokenizer
    >>> tokenizer = train_tokenizer([], "bytes")
    >>> cutter = StopStringCutter(tokenizer, ["stop"])
    >>> "".join(cutter.feed([id]) for id in tokenizer.encode("a step, a stop, more").ids), cutter.is_done
    ('a step, a ', True)
    """

    stop_strings: tuple[str, ...]
    is_done: bool

    def __init__(self, tokenizer: Tokenizer, stop_strings: Collection[str] = ()):
        if isinstance(stop_strings, str):
            raise UsageError(f"Stop strings are a list; got one string, {stop_strings!r}. Put it in a list.")
        if any(not isinstance(string, str) or not string for string in stop_strings):
            raise UsageError(
                f"A stop string needs at least one character; got {list(stop_strings)!r}. Leave the empty one out."
            )
        self.stop_strings, self.is_done, self._is_closed = tuple(stop_strings), False, False
        self._stream, self._pending = StreamDecoder(tokenizer), ""

    def feed(self, ids: Sequence[int]) -> str:
        """Add ids, and return the new text that cannot be part of a stop string."""
        return "" if self.is_done or self._is_closed else self._cut(self._stream.feed(ids))

    def finish(self) -> str:
        """Return the rest of the text at the end of the stream."""
        if self.is_done or self._is_closed:
            return ""
        self._is_closed = True
        text = self._cut(self._stream.finish())
        return text + self._pending  # which is empty if a stop string has occurred

    def _cut(self, text: str) -> str:
        text = self._pending + text
        matches = [(at + len(string), at) for string in self.stop_strings if (at := text.find(string)) >= 0]
        if matches:
            self.is_done, self._pending = True, ""
            return text[: min(matches)[1]]
        held = max((_partial_match_length(text, string) for string in self.stop_strings), default=0)
        self._pending = text[len(text) - held :]
        return text[: len(text) - held]


def _partial_match_length(text: str, string: str) -> int:
    """The length of the longest prefix of the string with which the text ends."""
    longest = min(len(text), len(string) - 1)
    return next((count for count in range(longest, 0, -1) if text.endswith(string[:count])), 0)


def cut_at_stop_string(tokenizer: Tokenizer, tokens: Sequence[int], stop_strings: Collection[str]) -> str:
    """Decode tokens, and cut the text before the first stop string."""
    cutter = StopStringCutter(tokenizer, stop_strings)
    return cutter.feed(tokens) + cutter.finish()


def stop_string_condition(tokenizer: Tokenizer, stop_strings: Collection[str]) -> StopCondition | None:
    """A stop condition without state, which also works for reordered rows, such as those of beam search."""

    def has_stop_string(row: Sequence[int]) -> bool:
        cutter = StopStringCutter(tokenizer, stop_strings)
        cutter.feed(row)
        return cutter.is_done

    return (lambda history: [has_stop_string(row) for row in history.new_tokens]) if stop_strings else None


class StopStringCutters:
    """A `StopStringCutter` for each row of a batch, fed with the steps of the decoding loop."""

    def __init__(self, tokenizer: Tokenizer, stop_strings: Collection[str]):
        self._make_cutter = lambda: StopStringCutter(tokenizer, stop_strings)
        self._make_cutter()  # raises an error for invalid stop strings before decoding begins
        self.cutters: list[StopStringCutter] = []

    def with_stop_condition(self, criteria: StoppingCriteria) -> StoppingCriteria:
        """Criteria that end a row when its cutter has met a stop string."""
        return replace(criteria, stop_condition=lambda history: [cutter.is_done for cutter in self.cutters])

    def feed(self, step: DecodingStep | GreedyStep) -> list[str]:
        """Add a step, and return the new text of each row; the rest of it where the row has stopped."""
        self.cutters = self.cutters or [self._make_cutter() for _ in step.tokens]
        rows = zip(self.cutters, step.tokens.tolist(), step.active.tolist(), strict=True)
        return [cutter.feed([token]) if is_active else cutter.finish() for cutter, token, is_active in rows]

    def finish(self) -> list[str]:
        """The rest of the text of each row."""
        return [cutter.finish() for cutter in self.cutters]


@dataclass
class GeneratedText:
    """The generated text of one row.

    The text ends before a stop string, but `tokens` are all that were generated. `logprobs` are those of the model,
    `processed_logprobs` those after the logits processors, both before the temperature; `stop_logprob` is the model's
    log-probability of the stop token.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    processed_logprobs: list[float] = field(default_factory=list)
    hit_stop: bool = False  # ended by a stop token or stop string, not by the token limit
    stop_logprob: float | None = None
    text: str | None = None  # None without a tokenizer

    @property
    def cumulative_logprob(self) -> float:
        """The log-probability of the whole row, including its stop token."""
        return sum(self.logprobs) + (self.stop_logprob or 0.0)


def generate_texts(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    sampler: SamplerFunction = greedy,
    *,
    tokenizer: Tokenizer | None = None,
    stop_strings: Collection[str] = (),
) -> list[GeneratedText]:
    """Generate tokens for each row, with the log-probability of each; with a tokenizer also the text."""
    if tokenizer is not None:
        cutters = StopStringCutters(tokenizer, stop_strings)
        return collect_texts(token_steps(model, batch, cutters.with_stop_condition(criteria), sampler), cutters)
    if stop_strings:
        raise UsageError(
            f"Stop strings need a tokenizer; got {list(stop_strings)!r} without one. Pass the tokenizer too."
        )
    return collect_texts(token_steps(model, batch, criteria, sampler))


def collect_texts(
    steps: Iterable[DecodingStep | GreedyStep], cutters: StopStringCutters | None = None
) -> list[GeneratedText]:
    """Collect decoding steps into texts; with cutters, the steps must use the criteria of `with_stop_condition`."""
    rows: list[GeneratedText] = []
    for step in steps:
        rows = rows or [GeneratedText(text=None if cutters is None else "") for _ in step.tokens]
        _append_step(rows, step)
        if cutters is not None:
            _append_texts(rows, cutters.feed(step), cutters)
    if cutters is not None:
        _append_texts(rows, cutters.finish(), cutters)
    return rows


def stream_texts(
    model: AutoregressiveModel,
    batch: Batch,
    criteria: StoppingCriteria,
    tokenizer: Tokenizer,
    sampler: SamplerFunction = greedy,
    *,
    stop_strings: Collection[str] = (),
) -> Iterator[list[str]]:
    """Yield the new text of each row after every step; joined, the pieces are the texts of `generate_texts`."""
    cutters = StopStringCutters(tokenizer, stop_strings)
    for step in token_steps(model, batch, cutters.with_stop_condition(criteria), sampler):
        yield cutters.feed(step)
    yield cutters.finish()


def _append_step(rows: list[GeneratedText], step: DecodingStep | GreedyStep) -> None:
    """Append the tokens of a step to active rows, and end the rows that got a stop token."""
    logprobs, processed = step.logprobs()
    for i, (row, token, is_active) in enumerate(zip(rows, step.tokens.tolist(), step.active.tolist(), strict=True)):
        if is_active:
            row.tokens.append(token)
            row.logprobs.append(logprobs[i])
            row.processed_logprobs.append(processed[i])
        elif not row.hit_stop:
            row.hit_stop, row.stop_logprob = True, logprobs[i]


def _append_texts(rows: list[GeneratedText], texts: Sequence[str], cutters: StopStringCutters) -> None:
    """Append new text to the rows, and mark rows that a stop string has ended."""
    for row, text, cutter in zip(rows, texts, cutters.cutters, strict=True):
        row.text = (row.text or "") + text
        row.hit_stop = row.hit_stop or cutter.is_done
