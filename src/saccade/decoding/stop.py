"""Texts out of the loop: cut before stop strings, as they come or whole, with the log-probability of every token.

    bounds = Bounds(stop=2, limit=64)
    for pieces in stream(model, batch, bounds, tokenizer, strings=["\\n\\n", "END"]): print(pieces[0], end="")
    written(model, batch, bounds, tokenizer=tokenizer, strings=["\\n\\n"])[0].text

A stop string may begin in the middle of one token and end in the middle of another, so the text is what is searched, and
the last letters are held back as long as they may become one.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from saccade.data import Batch
from saccade.decoding.bounds import Bounds, Until
from saccade.decoding.choose import greedy
from saccade.decoding.loop import Choose, Pick, Step, picks
from saccade.errors import UsageError
from saccade.models.family import AutoregressiveModel
from saccade.text.stream import Stream
from saccade.text.tokenizer import Tokenizer


class Cutter:
    """One text as it comes: gives what is certain, and is `done` when one of the strings stood there.

    Of several strings the one that is complete first ends the text; of those that end together, the longest.

    >>> from saccade.text.train import train
    >>> tokenizer = train([], "bytes")
    >>> cutter = Cutter(tokenizer, ["stop"])
    >>> "".join(cutter.feed([id]) for id in tokenizer.encode("a step, a stop, more").ids), cutter.done
    ('a step, a ', True)
    """

    def __init__(self, tokenizer: Tokenizer, strings: Collection[str] = ()):
        if isinstance(strings, str):
            raise UsageError(f"Stop strings are a list; got one string, {strings!r}. Put it in a list.")
        if any(not isinstance(string, str) or not string for string in strings):
            raise UsageError(f"A stop string has at least one letter; got {list(strings)!r}. Leave the empty one out.")
        self.strings, self.done, self._closed = tuple(strings), False, False
        self._stream, self._held = Stream(tokenizer), ""

    def feed(self, ids: Sequence[int]) -> str:
        """Take note of ids and return the text that is certain now."""
        return "" if self.done or self._closed else self._take(self._stream.feed(ids))

    def end(self) -> str:
        """The rest, when no more ids come."""
        if self.done or self._closed:
            return ""
        self._closed = True
        certain = self._take(self._stream.end())
        return certain + self._held  # which is empty if a string has come

    def _take(self, text: str) -> str:
        text = self._held + text
        found = [(at + len(string), at) for string in self.strings if (at := text.find(string)) >= 0]
        if found:
            self.done, self._held = True, ""
            return text[: min(found)[1]]
        keep = max((_begun(text, string) for string in self.strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]


def _begun(text: str, string: str) -> int:
    """How many letters at the end of the text begin the string."""
    most = min(len(text), len(string) - 1)
    return next((count for count in range(most, 0, -1) if text.endswith(string[:count])), 0)


def cut(tokenizer: Tokenizer, tokens: Sequence[int], strings: Collection[str]) -> str:
    """The text of some tokens, up to the first of the strings."""
    cutter = Cutter(tokenizer, strings)
    return cutter.feed(tokens) + cutter.end()


def until_strings(tokenizer: Tokenizer, strings: Collection[str]) -> Until | None:
    """Which rows have one of the strings in their text, however they changed places since the last step, as beams do."""

    def ended(row: Sequence[int]) -> bool:
        cutter = Cutter(tokenizer, strings)
        cutter.feed(row)
        return cutter.done

    return (lambda sofar: [ended(row) for row in sofar.written]) if strings else None


class Cutters:
    """A cutter for each row of a batch, fed with the steps of a loop whose rows end when their string has come."""

    def __init__(self, tokenizer: Tokenizer, strings: Collection[str]):
        self._new = lambda: Cutter(tokenizer, strings)
        self._new()  # so that what is wrong with the strings is said before anything is written
        self.rows: list[Cutter] = []

    def within(self, bounds: Bounds) -> Bounds:
        """The bounds of that loop."""
        return replace(bounds, until=lambda sofar: [cutter.done for cutter in self.rows])

    def feed(self, step: Step | Pick) -> list[str]:
        """What is certain now of each row; all of it, where the row has stopped."""
        self.rows = self.rows or [self._new() for _ in step.tokens]
        each = zip(self.rows, step.tokens.tolist(), step.going.tolist(), strict=True)
        return [cutter.feed([token]) if goes else cutter.end() for cutter, token, goes in each]

    def end(self) -> list[str]:
        """The rest of each row."""
        return [cutter.end() for cutter in self.rows]


@dataclass
class Written:
    """What one row became.

    A text that a stop string ended lacks the string; its tokens are all that were written. `logprobs` are of the model's
    own distribution, `ruled` of what the rules left of it, both before a temperature; `closing` is the model's of the token
    that stopped the row.
    """

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    ruled: list[float] = field(default_factory=list)
    ended: bool = False  # by a stop token or a stop string, not for want of room
    closing: float | None = None
    text: str | None = None  # where there is a tokenizer

    @property
    def logprob(self) -> float:
        """Of the whole row, the stop token included."""
        return sum(self.logprobs) + (self.closing or 0.0)


def written(
    model: AutoregressiveModel,
    batch: Batch,
    bounds: Bounds,
    choose: Choose = greedy,
    *,
    tokenizer: Tokenizer | None = None,
    strings: Collection[str] = (),
) -> list[Written]:
    """What the model writes after each row, with the log-probability of every token; with a tokenizer also as text."""
    if tokenizer is not None:
        cutters = Cutters(tokenizer, strings)
        return collect(picks(model, batch, cutters.within(bounds), choose), cutters)
    if strings:
        raise UsageError(
            f"Stop strings are looked for in text; {list(strings)!r} came without a tokenizer. Give it too."
        )
    return collect(picks(model, batch, bounds, choose))


def collect(found: Iterable[Step | Pick], cutters: Cutters | None = None) -> list[Written]:
    """What each row became in these steps, however they were chosen, `within` the bounds that the cutters gave."""
    rows: list[Written] = []
    for step in found:
        rows = rows or [Written(text=None if cutters is None else "") for _ in step.tokens]
        _note(rows, step)
        if cutters is not None:
            _spell(rows, cutters.feed(step), cutters)
    if cutters is not None:
        _spell(rows, cutters.end(), cutters)
    return rows


def stream(
    model: AutoregressiveModel,
    batch: Batch,
    bounds: Bounds,
    tokenizer: Tokenizer,
    choose: Choose = greedy,
    *,
    strings: Collection[str] = (),
) -> Iterator[list[str]]:
    """Yield, step by step, what is new and certain in the text of each row; put together it is the text of `written`."""
    cutters = Cutters(tokenizer, strings)
    for step in picks(model, batch, cutters.within(bounds), choose):
        yield cutters.feed(step)
    yield cutters.end()


def _note(rows: list[Written], step: Step | Pick) -> None:
    """Add a step to the rows that go on with it, and close those that it stops."""
    own, ruled = step.chances()
    for i, (row, token, goes) in enumerate(zip(rows, step.tokens.tolist(), step.going.tolist(), strict=True)):
        if goes:
            row.tokens.append(token)
            row.logprobs.append(own[i])
            row.ruled.append(ruled[i])
        elif not row.ended:
            row.ended, row.closing = True, own[i]


def _spell(rows: list[Written], texts: Sequence[str], cutters: Cutters) -> None:
    """Add texts to the rows, and note which of them a string has ended."""
    for row, text, cutter in zip(rows, texts, cutters.rows, strict=True):
        row.text = (row.text or "") + text
        row.ended = row.ended or cutter.done
