"""What a writer writes before it is watched: what it was told to, or what it finds best in the way that is asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from saccade.data import Text
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.decoding.loop import generate
from saccade.errors import UsageError
from saccade.explain.axis import Axis, Token, make_cell_axis, make_output_axis
from saccade.explain.inputs import LookInput
from saccade.models.families.dalle import DallE
from saccade.tasks.base import require_tokenizer
from saccade.tasks.paint_pictures import require_dalle

MAX_PREFIX_TOKENS = 8  # tokens that tell whether a space stands between what was read and what is written
DEFAULT_MAX_NEW_TOKENS = 24  # tokens that a text is continued by, where nobody says


@dataclass(frozen=True)
class DecoderTarget:
    """Ids with their names, what stands before the first of them and was not read, and the text that they make."""

    ids: list[int]
    axis: Axis
    start_axis: Axis
    text: str
    image: np.ndarray | None = None  # what was painted, (rows, columns, channels)
    truncated_at: int | None = None  # the number of tokens after which it was stopped, if it did not end by itself


def make_target(look_input: LookInput, decoding: GenerationConfig) -> DecoderTarget:
    """Write, if nothing was given to be written, and name what was written."""
    ids, ended = (list(look_input.target), True) if look_input.target is not None else _generate(look_input, decoding)
    if not look_input.model.capabilities.generates_text:
        body = require_dalle(look_input.model)
        whole = len(ids) == body.codes_per_image
        axis = (
            make_cell_axis(body.grid_size, body.grid_size)
            if whole
            else Axis("cells", tuple(Token(f"{i}") for i in range(len(ids))))
        )
        return DecoderTarget(
            ids, axis, Axis("decoder_input", (Token("[image]"),)), "", _decode_image(body, ids) if whole else None
        )
    if look_input.model.tokenizer is None:
        axis, text = Axis("output", tuple(Token(f"{id}") for id in ids)), ""
    else:
        target = look_input.model.tokenizer.target
        axis, text = make_output_axis(target, ids, *_find_prefix(look_input))
    begin = Axis("decoder_input", () if look_input.continues_input else (_find_start_token(look_input),))
    return DecoderTarget(ids, axis, begin, text, truncated_at=None if ended else len(ids))


def max_output_tokens(look_input: LookInput) -> int | None:
    """The most tokens that can be written after what was read; None where the model has no limit."""
    source = look_input.batch.source
    read = source.tokens.size(1) if isinstance(source, Text) and look_input.continues_input else 0
    return None if look_input.model.max_positions is None else look_input.model.max_positions - read


def _decode_image(body: DallE, ids: list[int]) -> np.ndarray:
    return body.decode_images([ids])[0].clamp(0, 1).mul(255).byte().permute(1, 2, 0).cpu().numpy()


def _find_prefix(look_input: LookInput) -> tuple[int, tuple[Sequence[int], int]]:
    """The number of the text that is written, and what of it stands there already."""
    source = look_input.batch.source
    if not (look_input.continues_input and look_input.texts and isinstance(source, Text)):
        return len(look_input.texts), ((), 0)
    return 0, (source.tokens[0, -MAX_PREFIX_TOKENS:].tolist(), len(look_input.texts[0]))


def _find_start_token(look_input: LookInput) -> Token:
    """The token that a target begins with, which nobody wrote."""
    batch = look_input.batch.to(next(look_input.model.parameters()).device)
    first = int(look_input.model.start(batch)[1].tokens[0, 0])
    tokenizer = None if look_input.model.tokenizer is None else look_input.model.tokenizer.target
    return Token("[begin]" if tokenizer is None or first >= tokenizer.vocab else tokenizer.id_to_token(first))


def _generate(look_input: LookInput, decoding: GenerationConfig) -> tuple[list[int], bool]:
    """The best that the model writes, with the token that ended it, and whether it ended by itself."""
    model, batch = look_input.model, look_input.batch.to(next(look_input.model.parameters()).device)
    if not model.capabilities.generates_text:
        return generate(model, batch, stop_ids=None, max_new_tokens=require_dalle(model).codes_per_image)[0], True
    tokenizer = require_tokenizer(model).target
    ways = TextGenerator(decoding, model, tokenizer)
    if look_input.continues_input or look_input.task is None or not batch.items:
        most = max_output_tokens(look_input)
        limit = min(
            decoding.max_new_tokens or DEFAULT_MAX_NEW_TOKENS,
            decoding.max_new_tokens or DEFAULT_MAX_NEW_TOKENS if most is None else most,
        )
        if limit < 1:
            raise UsageError(
                f"The text fills the {model.max_positions} tokens that the model reads; shorten it to see it go on."
            )
        best = ways.generate(batch, max_new_tokens=limit)[0][0]
    else:
        best = look_input.task.generate(ways, batch)[0][0]
    ended = [] if tokenizer.eos_id is None or not best.hit_stop or look_input.continues_input else [tokenizer.eos_id]
    return [*best.tokens, *ended] or [tokenizer.eos_id or 0], best.hit_stop
