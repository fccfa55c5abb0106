"""From a beginning to a text: one as it is written, or many when they are whole."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator

from saccade.cli.waiting import Waiting
from saccade.data import Batch, Text
from saccade.decoding.beam import Hypothesis
from saccade.decoding.loop import picks
from saccade.decoding.many import fitted, write_many
from saccade.decoding.texts import TOKENS_OF_CONTEXT, space_between, tokens_of
from saccade.decoding.ways import Ways


def show(text: str, ways: Ways, length: int) -> None:
    """One text, printed as it is written."""
    whole = tokens_of(text, ways.tokenizer)
    ids, room = fitted(whole, length, ways.model.limit)
    alone = ways.decoding.structured
    sys.stdout.write("" if alone else text)
    cutters = ways.cutters()
    batch = Batch(Text.of([ids])).to(next(ways.model.parameters()).device)
    for number, step in enumerate(picks(ways.model, batch, cutters.within(ways.bounds(room)), ways.choose)):
        front = space_between(ways.tokenizer, ids, step.tokens.tolist()) if number == 0 and not alone else ""
        sys.stdout.write(front + cutters.feed(step)[0])
        sys.stdout.flush()
    print(*cutters.end())
    _say_cut(len(ids) < len(whole), ways)


def gone_on(beginnings: Iterable[str], ways: Ways, length: int) -> Iterator[tuple[str, list[str], list[Hypothesis]]]:
    """Each beginning, the texts that it became, the best first, and what was written for them, in the order of the beginnings."""
    open_ones: deque[tuple[str, list[int]]] = deque()
    cut = 0

    def prompts() -> Iterator[list[int]]:
        nonlocal cut
        for line in beginnings:
            ids = tokens_of(line, ways.tokenizer)
            cut += len(fitted(ids, length, ways.model.limit)[0]) < len(ids)
            open_ones.append((line, ids[-TOKENS_OF_CONTEXT:]))
            yield ids

    with Waiting() as waiting:
        for found in write_many(ways, prompts(), limit=length, told=waiting.told):
            line, ids = open_ones.popleft()
            yield line, [_after(line, ids, one, ways) for one in found], found
    _say_cut(cut, ways)


def _after(line: str, ids: list[int], one: Hypothesis, ways: Ways) -> str:
    """A beginning and what follows it; JSON stands alone."""
    if ways.decoding.structured:
        return one.text or ""
    return line + space_between(ways.tokenizer, ids, one.tokens) + (one.text or "")


def _say_cut(count: int, ways: Ways) -> None:
    if count:
        what = "1 beginning fills" if count == 1 else f"{count:,} beginnings fill"
        told = f"{what} the {ways.model.limit} tokens that the model reads; only the end was read."
        print(f"saccade generate: {told}", file=sys.stderr)
