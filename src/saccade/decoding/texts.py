"""`saccade.generate`: text in, text out; or ids in and ids out, for those who tokenise themselves.

saccade.generate(model, "Once upon a time", max_new_tokens=50)
saccade.generate(translator, ["Good morning.", "Where is it?"], decoding=GenerationConfig(beams=4))
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Literal, overload

from saccade.data import Batch, Text
from saccade.decoding import loop
from saccade.decoding.batch_generate import MAX_PROMPTS_PER_BATCH, fit_to_context, generate_many
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.decoding.logits_processors import LogitsProcessor
from saccade.decoding.loop import SamplerFunction
from saccade.decoding.sampling import greedy
from saccade.errors import ModelError, UsageError
from saccade.models.model import Model
from saccade.text.tokenizer import Tokenizer

MAX_CONTEXT_TOKENS = 8  # before a text; they tell whether a space stands between
StopIds = int | Collection[int] | None | Literal["eos"]


@overload
def generate(
    model: Any,
    prompt: str,
    sampler: SamplerFunction = greedy,
    *,
    decoding: GenerationConfig | None = None,
    stop_ids: StopIds = "eos",
    max_new_tokens: int = 100,
    processors: Sequence[LogitsProcessor] = (),
) -> str: ...
@overload
def generate(
    model: Any,
    prompt: Batch,
    sampler: SamplerFunction = greedy,
    *,
    decoding: GenerationConfig | None = None,
    stop_ids: StopIds = "eos",
    max_new_tokens: int = 100,
    processors: Sequence[LogitsProcessor] = (),
) -> list[list[int]]: ...
@overload
def generate(
    model: Any,
    prompt: list[str] | tuple[str, ...],
    sampler: SamplerFunction = greedy,
    *,
    decoding: GenerationConfig | None = None,
    stop_ids: StopIds = "eos",
    max_new_tokens: int = 100,
    processors: Sequence[LogitsProcessor] = (),
) -> list[str]: ...
def generate(
    model: Any,
    prompt: str | list[str] | tuple[str, ...] | Batch,
    sampler: SamplerFunction = greedy,
    *,
    decoding: GenerationConfig | None = None,
    stop_ids: StopIds = "eos",
    max_new_tokens: int = 100,
    processors: Sequence[LogitsProcessor] = (),
) -> str | list[str] | list[list[int]]:
    """Generate text from a prompt, or from each of several; greedy, unless `sampler` or `decoding` say otherwise.

    A language model returns the prompt and what follows it, an encoder-decoder what it writes for the text that it reads; with
    a JSON schema (`GenerationConfig(schema=...)`) both return the JSON alone. At most `max_new_tokens` new tokens are
    written, and none after the tokenizer's end token, or after those that `stop_ids` names. A `Batch` of ids returns the
    new ids of each row, without the one that stopped it.
    """
    if isinstance(prompt, Batch):
        if decoding is not None:
            raise UsageError(
                "decoding is for text; with a Batch of ids, say sampler and processors, or use generate_hypotheses."
            )
        ends = _eos_id(model) if isinstance(stop_ids, str) else stop_ids
        return loop.generate(
            model, prompt, sampler, stop_ids=ends, max_new_tokens=max_new_tokens, processors=processors
        )
    tokenizer = _require_tokenizer(model)
    ways = TextGenerator(decoding or GenerationConfig(), model, tokenizer.target)
    ways.processors += processors
    if sampler is not greedy:
        ways.sampler = sampler
    if not isinstance(stop_ids, str):
        ways.stop_ids = [] if stop_ids is None else [stop_ids] if isinstance(stop_ids, int) else list(stop_ids)
    texts = [prompt] if isinstance(prompt, str) else list(prompt)
    write = _generate_continuations if model.capabilities.is_decoder_only else _generate_targets
    found = write(ways, tokenizer, texts, max_new_tokens)
    return found[0] if isinstance(prompt, str) else found


def _require_tokenizer(model: Any) -> Tokenizer:
    if not (isinstance(model, Model) and model.capabilities.generates_text):
        name = model.family.name if isinstance(model, Model) else type(model).__name__
        raise ModelError(f"Text is written by a language model or an encoder-decoder; {name} does not write.")
    if model.tokenizer is None:
        raise ModelError("This model came without a tokenizer; load it from a directory that has tokenizer files.")
    return model.tokenizer


def _eos_id(model: Any) -> int | None:
    tokenizer = getattr(model, "tokenizer", None)
    return None if tokenizer is None else tokenizer.target.eos_id


def _generate_continuations(
    generator: TextGenerator, tokenizer: Tokenizer, texts: Sequence[str], max_new_tokens: int
) -> list[str]:
    rows = [encode_prompt(text, tokenizer) for text in texts]
    written = zip(texts, rows, generate_many(generator, rows, max_new_tokens=max_new_tokens), strict=True)
    if generator.decoding.outputs_json:
        return [one[0].text or "" for _, _, one in written]
    return [text + leading_space(tokenizer, row, one[0].tokens) + (one[0].text or "") for text, row, one in written]


def _generate_targets(
    generator: TextGenerator, tokenizer: Tokenizer, texts: Sequence[str], max_new_tokens: int
) -> list[str]:
    places, device = generator.model.max_positions, next(generator.model.parameters()).device
    out = []
    for start in range(0, len(texts), MAX_PROMPTS_PER_BATCH):
        found = tokenizer.encode_batch(list(texts[start : start + MAX_PROMPTS_PER_BATCH]))
        rows = [one.ids if places is None else one.truncate(places).ids for one in found]
        batch = Batch(Text.pad(rows)).to(device)
        written = generator.generate(
            batch, max_new_tokens=max_new_tokens if places is None else min(max_new_tokens, places)
        )
        out += [best.text or "" for best, *_ in written]
    return out


def encode_prompt(text: str, tokenizer: Tokenizer) -> list[int]:
    """What a language model goes on from; nothing is a new line."""
    ids = tokenizer.encode(text or "\n", add_special_tokens=False).ids
    if not ids:
        raise UsageError("The model's tokenizer has no token for an empty beginning; give a text to go on with.")
    return ids


def leading_space(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The space in front of what is written, where a tokenizer drops it because it sees the beginning of a text."""
    last, first = list(prompt[-MAX_CONTEXT_TOKENS:]), list(tokens[:1])
    rest = tokenizer.decode(last + first).removeprefix(tokenizer.decode(last))
    return " " if rest.startswith(" ") and not tokenizer.decode(first).startswith(" ") else ""


def stream(
    model: Any, prompt: str, *, decoding: GenerationConfig | None = None, max_new_tokens: int = 100
) -> Iterator[str]:
    """Yield the text of `generate` in pieces, as it is generated; put together, they are the whole text.

    The strategy has to choose token by token, greedily or by sampling: beams and samples are ranked when they are finished.
    """
    tokenizer = _require_tokenizer(model)
    generator = TextGenerator(decoding or GenerationConfig(), model, tokenizer.target)
    if not generator.decoding.can_stream:
        raise UsageError("Text is streamed token by token; beam search, several samples and drafts need stream=False.")
    is_continuation = model.capabilities.is_decoder_only
    ids = encode_prompt(prompt, tokenizer) if is_continuation else tokenizer.encode(prompt).ids
    ids, room = fit_to_context(ids, max_new_tokens, model.max_positions) if is_continuation else (ids, max_new_tokens)
    if not is_continuation and model.max_positions is not None:
        ids, room = ids[: model.max_positions], min(room, model.max_positions)
    continues = is_continuation and not generator.decoding.outputs_json
    if continues:
        yield prompt
    cutters = generator.make_cutters()
    batch = Batch(Text.pad([ids])).to(next(model.parameters()).device)
    criteria = cutters.with_stop_condition(generator.make_criteria(room))
    for number, step in enumerate(loop.token_steps(model, batch, criteria, generator.sampler)):
        front = leading_space(tokenizer, ids, step.tokens.tolist()) if number == 0 and continues else ""
        if piece := front + cutters.feed(step)[0]:
            yield piece
    if rest := cutters.finish()[0]:
        yield rest
