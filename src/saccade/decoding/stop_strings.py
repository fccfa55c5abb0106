"""Texts out of the loop: cut before stop strings, as they come or whole, with the log-probability of every token.

    criteria = StoppingCriteria(stop_ids=2, max_new_tokens=64)
    for pieces in stream_texts(model, batch, criteria, tokenizer, stop_strings=["\\n\\n", "END"]): print(pieces[0], end="")
    generate_texts(model, batch, criteria, tokenizer=tokenizer, stop_strings=["\\n\\n"])[0].text

A stop string may begin in the middle of one token and end in the middle of another, so the text is what is searched, and
the last letters are held back as long as they may become one.
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
    """One text as it comes: gives what is certain, and `is_done` when one of the strings stood there.

    Of several strings the one that is complete first ends the text; of those that end together, the longest.

    >>> from saccade.text.train import train_tokenizer
    >>> tokenizer = train_tokenizer([], "bytes")
    >>> cutter = StopStringCutter(tokenizer, ["stop"])
    >>> "".join(cutter.feed([id]) for id in tokenizer.encode("a step, a stop, more").ids), cutter.is_done
    ('a step, a ', True)
    """

    def __init__(self, tokenizer: Tokenizer, stop_strings: Collection[str] = ()):
        if isinstance(stop_strings, str):
            raise UsageError(f"Stop strings are a list; got one string, {stop_strings!r}. Put it in a list.")
        if any(not isinstance(string, str) or not string for string in stop_strings):
            raise UsageError(
                f"A stop string has at least one letter; got {list(stop_strings)!r}. Leave the empty one out."
            )
        self.stop_strings, self.is_done, self._is_closed = tuple(stop_strings), False, False
        self._stream, self._pending = StreamDecoder(tokenizer), ""

    def feed(self, ids: Sequence[int]) -> str:
        """Take note of ids and return the text that is certain now."""
        return "" if self.is_done or self._is_closed else self._cut(self._stream.feed(ids))

    def finish(self) -> str:
        """The rest, when no more ids come."""
        if self.is_done or self._is_closed:
            return ""
        self._is_closed = True
        certain = self._cut(self._stream.finish())
        return certain + self._pending  # which is empty if a string has come

    def _cut(self, text: str) -> str:
        text = self._pending + text
        found = [(at + len(string), at) for string in self.stop_strings if (at := text.find(string)) >= 0]
        if found:
            self.is_done, self._pending = True, ""
            return text[: min(found)[1]]
        keep = max((_partial_match_length(text, string) for string in self.stop_strings), default=0)
        self._pending = text[len(text) - keep :]
        return text[: len(text) - keep]


def _partial_match_length(text: str, string: str) -> int:
    """How many letters at the end of the text begin the string."""
    most = min(len(text), len(string) - 1)
    return next((count for count in range(most, 0, -1) if text.endswith(string[:count])), 0)


def cut_at_stop_string(tokenizer: Tokenizer, tokens: Sequence[int], stop_strings: Collection[str]) -> str:
    """The text of some tokens, up to the first of the strings."""
    cutter = StopStringCutter(tokenizer, stop_strings)
    return cutter.feed(tokens) + cutter.finish()


def stop_string_condition(tokenizer: Tokenizer, stop_strings: Collection[str]) -> StopCondition | None:
    """Which rows have one of the strings in their text, however they changed places since the last step, as beams do."""

    def ended(row: Sequence[int]) -> bool:
        cutter = StopStringCutter(tokenizer, stop_strings)
        cutter.feed(row)
        return cutter.is_done

    return (lambda sofar: [ended(row) for row in sofar.new_tokens]) if stop_strings else None


class StopStringCutters:
    """A cutter for each row of a batch, fed with the steps of a loop whose rows end when their string has come."""

    def __init__(self, tokenizer: Tokenizer, stop_strings: Collection[str]):
        self._make_cutter = lambda: StopStringCutter(tokenizer, stop_strings)
        self._make_cutter()  # so that what is wrong with the strings is said before anything is written
        self.cutters: list[StopStringCutter] = []

    def with_stop_condition(self, criteria: StoppingCriteria) -> StoppingCriteria:
        """The bounds of that loop."""
        return replace(criteria, stop_condition=lambda sofar: [cutter.is_done for cutter in self.cutters])

    def feed(self, step: DecodingStep | GreedyStep) -> list[str]:
        """What is certain now of each row; all of it, where the row has stopped."""
        self.cutters = self.cutters or [self._make_cutter() for _ in step.tokens]
        each = zip(self.cutters, step.tokens.tolist(), step.active.tolist(), strict=True)
        return [cutter.feed([token]) if goes else cutter.finish() for cutter, token, goes in each]

    def finish(self) -> list[str]:
        """The rest of each row."""
        return [cutter.finish() for cutter in self.cutters]


@dataclass
class GeneratedText:
    """What one row became.

    A text that a stop string ended lacks the string; its tokens are all that were written. `logprobs` are of the model's
    own distribution, `processed_logprobs` of what the rules left of it, both before a temperature; `stop_logprob` is the
    model's of the token that stopped the row.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    processed_logprobs: list[float] = field(default_factory=list)
    hit_stop: bool = False  # by a stop token or a stop string, not for want of room
    stop_logprob: float | None = None
    text: str | None = None  # where there is a tokenizer

    @property
    def cumulative_logprob(self) -> float:
        """Of the whole row, the stop token included."""
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
    """What the model writes after each row, with the log-probability of every token; with a tokenizer also as text."""
    if tokenizer is not None:
        cutters = StopStringCutters(tokenizer, stop_strings)
        return collect_texts(token_steps(model, batch, cutters.with_stop_condition(criteria), sampler), cutters)
    if stop_strings:
        raise UsageError(
            f"Stop strings are looked for in text; {list(stop_strings)!r} came without a tokenizer. Give it too."
        )
    return collect_texts(token_steps(model, batch, criteria, sampler))


def collect_texts(
    steps: Iterable[DecodingStep | GreedyStep], cutters: StopStringCutters | None = None
) -> list[GeneratedText]:
    """What each row became in these steps, however they were chosen, within the criteria that the cutters gave
    (`with_stop_condition`).
    """
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
    """Yield, step by step, what is new and certain in the text of each row; put together it is the text of `generate_texts`."""
    cutters = StopStringCutters(tokenizer, stop_strings)
    for step in token_steps(model, batch, cutters.with_stop_condition(criteria), sampler):
        yield cutters.feed(step)
    yield cutters.finish()


def _append_step(rows: list[GeneratedText], step: DecodingStep | GreedyStep) -> None:
    """Add a step to the rows that go on with it, and close those that it stops."""
    own, ruled = step.logprobs()
    for i, (row, token, goes) in enumerate(zip(rows, step.tokens.tolist(), step.active.tolist(), strict=True)):
        if goes:
            row.tokens.append(token)
            row.logprobs.append(own[i])
            row.processed_logprobs.append(ruled[i])
        elif not row.hit_stop:
            row.hit_stop, row.stop_logprob = True, own[i]


def _append_texts(rows: list[GeneratedText], texts: Sequence[str], cutters: StopStringCutters) -> None:
    """Add texts to the rows, and note which of them a string has ended."""
    for row, text, cutter in zip(rows, texts, cutters.cutters, strict=True):
        row.text = (row.text or "") + text
        row.hit_stop = row.hit_stop or cutter.is_done
