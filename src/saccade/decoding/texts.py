"""`saccade.generate`: text in, text out; or ids in and ids out, for those who tokenise themselves.

saccade.generate(model, "Once upon a time", limit=50)
saccade.generate(translator, ["Good morning.", "Where is it?"], decoding=Decoding(beams=4))
"""

from collections.abc import Collection, Sequence
from typing import Any, Literal, overload

from saccade.data import Batch, Text
from saccade.decoding import loop
from saccade.decoding.choose import greedy
from saccade.decoding.loop import Choose
from saccade.decoding.many import ROWS, write_many
from saccade.decoding.rules import Ruling
from saccade.decoding.settings import Decoding
from saccade.decoding.ways import Ways
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model
from saccade.text.tokenizer import Tokenizer

TOKENS_OF_CONTEXT = 8  # before a text; they tell whether a space stands between
Stop = int | Collection[int] | None | Literal["end"]


@overload
def generate(
    model: Any,
    prompt: str,
    choose: Choose = greedy,
    *,
    decoding: Decoding | None = None,
    stop: Stop = "end",
    limit: int = 100,
    rules: Sequence[Ruling] = (),
) -> str: ...
@overload
def generate(
    model: Any,
    prompt: Batch,
    choose: Choose = greedy,
    *,
    decoding: Decoding | None = None,
    stop: Stop = "end",
    limit: int = 100,
    rules: Sequence[Ruling] = (),
) -> list[list[int]]: ...
@overload
def generate(
    model: Any,
    prompt: list[str] | tuple[str, ...],
    choose: Choose = greedy,
    *,
    decoding: Decoding | None = None,
    stop: Stop = "end",
    limit: int = 100,
    rules: Sequence[Ruling] = (),
) -> list[str]: ...
def generate(
    model: Any,
    prompt: str | list[str] | tuple[str, ...] | Batch,
    choose: Choose = greedy,
    *,
    decoding: Decoding | None = None,
    stop: Stop = "end",
    limit: int = 100,
    rules: Sequence[Ruling] = (),
) -> str | list[str] | list[list[int]]:
    """Generate text from a prompt, or from each of several; greedy, unless `choose` or `decoding` say otherwise.

    A language model returns the prompt and what follows it, an encoder-decoder what it writes for the text that it reads; with
    a JSON schema (`Decoding(schema=...)`) both return the JSON alone. At most `limit` new tokens are written, and none after the
    tokenizer's end token, or after those that `stop` names. A `Batch` of ids returns the new ids of each row, without the one
    that stopped it.
    """
    if isinstance(prompt, Batch):
        if decoding is not None:
            raise UsageError("decoding is for text; with a Batch of ids, say choose and rules, or use write_texts.")
        ends = _end(model) if isinstance(stop, str) else stop
        return loop.generate(model, prompt, choose, stop=ends, limit=limit, rules=rules)
    tokenizer = _need_tokenizer(model)
    ways = Ways(decoding or Decoding(), model, tokenizer.target)
    ways.rules += rules
    if choose is not greedy:
        ways.choose = choose
    if not isinstance(stop, str):
        ways.ends = [] if stop is None else [stop] if isinstance(stop, int) else list(stop)
    texts = [prompt] if isinstance(prompt, str) else list(prompt)
    write = _continuations if model.capabilities.continues else _answers
    found = write(ways, tokenizer, texts, limit)
    return found[0] if isinstance(prompt, str) else found


def _need_tokenizer(model: Any) -> Tokenizer:
    if not (isinstance(model, Model) and model.capabilities.generates_text):
        name = model.family.name if isinstance(model, Model) else type(model).__name__
        raise ModelError(f"Text is written by a language model or an encoder-decoder; {name} does not write.")
    if model.tokenizer is None:
        raise ModelError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    return model.tokenizer


def _end(model: Any) -> int | None:
    tokenizer = getattr(model, "tokenizer", None)
    return None if tokenizer is None else tokenizer.target.end


def _continuations(ways: Ways, tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[str]:
    rows = [tokens_of(text, tokenizer) for text in texts]
    written = zip(texts, rows, write_many(ways, rows, limit=limit), strict=True)
    if ways.decoding.structured:
        return [one[0].text or "" for _, _, one in written]
    return [text + space_between(tokenizer, row, one[0].tokens) + (one[0].text or "") for text, row, one in written]


def _answers(ways: Ways, tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[str]:
    places, device = ways.model.limit, next(ways.model.parameters()).device
    out = []
    for start in range(0, len(texts), ROWS):
        found = tokenizer.encode_batch(list(texts[start : start + ROWS]))
        rows = [one.ids if places is None else one.truncate(places).ids for one in found]
        batch = Batch(Text.of(rows)).to(device)
        written = ways.write(batch, limit=limit if places is None else min(limit, places))
        out += [best.text or "" for best, *_ in written]
    return out


def tokens_of(text: str, tokenizer: Tokenizer) -> list[int]:
    """What a language model goes on from; nothing is a new line."""
    ids = tokenizer.encode(text or "\n", special=False).ids
    if not ids:
        raise UsageError("The model's tokenizer has no token for an empty beginning; give a text to go on with.")
    return ids


def space_between(tokenizer: Tokenizer, before: Sequence[int], tokens: Sequence[int]) -> str:
    """The space in front of what is written, where a tokenizer drops it because it sees the beginning of a text."""
    last, first = list(before[-TOKENS_OF_CONTEXT:]), list(tokens[:1])
    rest = tokenizer.decode(last + first).removeprefix(tokenizer.decode(last))
    return " " if rest.startswith(" ") and not tokenizer.decode(first).startswith(" ") else ""
