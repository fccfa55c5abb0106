"""From a beginning to a text: one as it is written, or many when they are whole."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator

from saccade.data import Batch, Text
from saccade.decoding.batch_generate import fit_to_context, generate_many
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator
from saccade.decoding.loop import token_steps
from saccade.decoding.texts import MAX_CONTEXT_TOKENS, encode_prompt, leading_space
from saccade.progress import ProgressBar


def stream_to_stdout(text: str, generator: TextGenerator, max_new_tokens: int) -> None:
    """One text, printed as it is written."""
    whole = encode_prompt(text, generator.tokenizer)
    ids, room = fit_to_context(whole, max_new_tokens, generator.model.max_positions)
    alone = generator.decoding.outputs_json
    sys.stdout.write("" if alone else text)
    cutters = generator.make_cutters()
    batch = Batch(Text.pad([ids])).to(next(generator.model.parameters()).device)
    for number, step in enumerate(
        token_steps(
            generator.model, batch, cutters.with_stop_condition(generator.make_criteria(room)), generator.sampler
        )
    ):
        front = leading_space(generator.tokenizer, ids, step.tokens.tolist()) if number == 0 and not alone else ""
        sys.stdout.write(front + cutters.feed(step)[0])
        sys.stdout.flush()
    print(*cutters.finish())
    _warn_truncated(len(ids) < len(whole), generator)


def continue_texts(
    texts: Iterable[str], generator: TextGenerator, max_new_tokens: int
) -> Iterator[tuple[str, list[str], list[Hypothesis]]]:
    """Each beginning, the texts that it became, the best first, and what was written for them, in the order of the beginnings."""
    open_ones: deque[tuple[str, list[int]]] = deque()
    cut = 0

    def prompts() -> Iterator[list[int]]:
        nonlocal cut
        for line in texts:
            ids = encode_prompt(line, generator.tokenizer)
            cut += len(fit_to_context(ids, max_new_tokens, generator.model.max_positions)[0]) < len(ids)
            open_ones.append((line, ids[-MAX_CONTEXT_TOKENS:]))
            yield ids

    with ProgressBar() as waiting:
        for found in generate_many(generator, prompts(), max_new_tokens=max_new_tokens, on_progress=waiting.update):
            line, ids = open_ones.popleft()
            yield line, [_join_continuation(line, ids, one, generator) for one in found], found
    _warn_truncated(cut, generator)


def _join_continuation(line: str, ids: list[int], hypothesis: Hypothesis, generator: TextGenerator) -> str:
    """A beginning and what follows it; JSON stands alone."""
    if generator.decoding.outputs_json:
        return hypothesis.text or ""
    return line + leading_space(generator.tokenizer, ids, hypothesis.tokens) + (hypothesis.text or "")


def _warn_truncated(count: int, generator: TextGenerator) -> None:
    if count:
        what = "1 beginning fills" if count == 1 else f"{count:,} beginnings fill"
        told = f"{what} the {generator.model.max_positions} tokens that the model reads; only the end was read."
        print(f"saccade generate: {told}", file=sys.stderr)
