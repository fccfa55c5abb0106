"""Text generation: `saccade.generate` takes prompts and returns texts, or takes and returns token ids.

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

MAX_CONTEXT_TOKENS = 8  # last tokens of the prompt, which decide whether a space precedes the new text
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
    """Generate text from one or more prompts. Decoding is greedy unless `sampler` or `decoding` is given.

    A language model returns the prompt and its continuation, an encoder-decoder the target text; with a JSON schema
    (`GenerationConfig(schema=...)`) both return the JSON alone. Generation ends after `max_new_tokens` new tokens, at the
    end token of the tokenizer, or at one of the `stop_ids`. For a `Batch` of ids it returns the new ids of each row,
    without the stop token.
    """
    if isinstance(prompt, Batch):
        if decoding is not None:
            raise UsageError(
                "decoding is for text; with a Batch of ids, use sampler and processors, or generate_hypotheses."
            )
        ids = _eos_id(model) if isinstance(stop_ids, str) else stop_ids
        return loop.generate(model, prompt, sampler, stop_ids=ids, max_new_tokens=max_new_tokens, processors=processors)
    tokenizer = _require_tokenizer(model)
    generator = TextGenerator(decoding or GenerationConfig(), model, tokenizer.target)
    generator.processors += processors
    if sampler is not greedy:
        generator.sampler = sampler
    if not isinstance(stop_ids, str):
        generator.stop_ids = [] if stop_ids is None else [stop_ids] if isinstance(stop_ids, int) else list(stop_ids)
    prompts = [prompt] if isinstance(prompt, str) else list(prompt)
    generate_all = _generate_continuations if model.capabilities.is_decoder_only else _generate_targets
    texts = generate_all(generator, tokenizer, prompts, max_new_tokens)
    return texts[0] if isinstance(prompt, str) else texts


def _require_tokenizer(model: Any) -> Tokenizer:
    if not (isinstance(model, Model) and model.capabilities.generates_text):
        name = model.family.name if isinstance(model, Model) else type(model).__name__
        raise ModelError(f"Generating text needs a language model or an encoder-decoder; {name} generates no text.")
    if model.tokenizer is None:
        raise ModelError("This model has no tokenizer; load it from a directory that has tokenizer files.")
    return model.tokenizer


def _eos_id(model: Any) -> int | None:
    tokenizer = getattr(model, "tokenizer", None)
    return None if tokenizer is None else tokenizer.target.eos_id


def _generate_continuations(
    generator: TextGenerator, tokenizer: Tokenizer, texts: Sequence[str], max_new_tokens: int
) -> list[str]:
    rows = [encode_prompt(text, tokenizer) for text in texts]
    best = [hypotheses[0] for hypotheses in generate_many(generator, rows, max_new_tokens=max_new_tokens)]
    if generator.decoding.outputs_json:
        return [hypothesis.text or "" for hypothesis in best]
    return [
        text + leading_space(tokenizer, row, hypothesis.tokens) + (hypothesis.text or "")
        for text, row, hypothesis in zip(texts, rows, best, strict=True)
    ]


def _generate_targets(
    generator: TextGenerator, tokenizer: Tokenizer, texts: Sequence[str], max_new_tokens: int
) -> list[str]:
    limit, device = generator.model.max_positions, next(generator.model.parameters()).device
    out = []
    for start in range(0, len(texts), MAX_PROMPTS_PER_BATCH):
        encodings = tokenizer.encode_batch(list(texts[start : start + MAX_PROMPTS_PER_BATCH]))
        rows = [encoding.ids if limit is None else encoding.truncate(limit).ids for encoding in encodings]
        batch = Batch(Text.pad(rows)).to(device)
        hypotheses = generator.generate(
            batch, max_new_tokens=max_new_tokens if limit is None else min(max_new_tokens, limit)
        )
        out += [best.text or "" for best, *_ in hypotheses]
    return out


def encode_prompt(text: str, tokenizer: Tokenizer) -> list[int]:
    """Encode a prompt for a language model; an empty prompt becomes a line break."""
    ids = tokenizer.encode(text or "\n", add_special_tokens=False).ids
    if not ids:
        raise UsageError("The model's tokenizer cannot encode an empty prompt; give a text to continue.")
    return ids


def leading_space(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Sequence[int]) -> str:
    """The space between prompt and new text, which some tokenizers drop when the new text is decoded by itself."""
    context, first = list(prompt[-MAX_CONTEXT_TOKENS:]), list(tokens[:1])
    continuation = tokenizer.decode(context + first).removeprefix(tokenizer.decode(context))
    return " " if continuation.startswith(" ") and not tokenizer.decode(first).startswith(" ") else ""


def stream(
    model: Any, prompt: str, *, decoding: GenerationConfig | None = None, max_new_tokens: int = 100
) -> Iterator[str]:
    """Yield the text of `generate` in pieces, as it is generated; joined, the pieces are the whole text.

    The strategy has to choose token by token, greedily or by sampling: beams and samples are ranked only when they are finished.
    """
    tokenizer = _require_tokenizer(model)
    generator = TextGenerator(decoding or GenerationConfig(), model, tokenizer.target)
    if not generator.decoding.can_stream:
        raise UsageError("Text is streamed token by token; beam search, several samples and drafts need stream=False.")
    is_continuation = model.capabilities.is_decoder_only
    ids = encode_prompt(prompt, tokenizer) if is_continuation else tokenizer.encode(prompt).ids
    ids, limit = fit_to_context(ids, max_new_tokens, model.max_positions) if is_continuation else (ids, max_new_tokens)
    if not is_continuation and model.max_positions is not None:
        ids, limit = ids[: model.max_positions], min(limit, model.max_positions)
    continues = is_continuation and not generator.decoding.outputs_json
    if continues:
        yield prompt
    cutters = generator.make_cutters()
    batch = Batch(Text.pad([ids])).to(next(model.parameters()).device)
    criteria = cutters.with_stop_condition(generator.make_criteria(limit))
    for number, step in enumerate(loop.token_steps(model, batch, criteria, generator.sampler)):
        space = leading_space(tokenizer, ids, step.tokens.tolist()) if number == 0 and continues else ""
        if piece := space + cutters.feed(step)[0]:
            yield piece
    if rest := cutters.finish()[0]:
        yield rest
