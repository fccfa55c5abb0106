"""Text continuation of `saccade generate`: stream one text token by token, or generate many in batches."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator

from saccade.data import Batch, Text
from saccade.decoding.batch_generate import fit_to_context, generate_many
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generate_text import MAX_CONTEXT_TOKENS, encode_prompt, leading_space
from saccade.decoding.generator import TextGenerator
from saccade.decoding.loop import token_steps
from saccade.progress import ProgressBar


def stream_to_stdout(text: str, generator: TextGenerator, max_new_tokens: int) -> None:
    """Print the prompt and its continuation, token by token."""
    prompt_ids = encode_prompt(text, generator.tokenizer)
    ids, max_steps = fit_to_context(prompt_ids, max_new_tokens, generator.model.max_positions)
    omits_prompt = generator.decoding.outputs_json
    sys.stdout.write("" if omits_prompt else text)
    cutters = generator.make_cutters()
    batch = Batch(Text.pad([ids])).to(next(generator.model.parameters()).device)
    criteria = cutters.with_stop_condition(generator.make_criteria(max_steps))
    for number, step in enumerate(token_steps(generator.model, batch, criteria, generator.sampler)):
        first = number == 0 and not omits_prompt
        space = leading_space(generator.tokenizer, ids, step.tokens.tolist()) if first else ""
        sys.stdout.write(space + cutters.feed(step)[0])
        sys.stdout.flush()
    print(*cutters.finish())
    _warn_truncated(len(ids) < len(prompt_ids), generator)


def continue_texts(
    texts: Iterable[str], generator: TextGenerator, max_new_tokens: int
) -> Iterator[tuple[str, list[str], list[Hypothesis]]]:
    """Yield each prompt in order, with its texts, best first, and their hypotheses."""
    pending: deque[tuple[str, list[int]]] = deque()
    truncated = 0

    def prompts() -> Iterator[list[int]]:
        nonlocal truncated
        for line in texts:
            ids = encode_prompt(line, generator.tokenizer)
            truncated += len(fit_to_context(ids, max_new_tokens, generator.model.max_positions)[0]) < len(ids)
            pending.append((line, ids[-MAX_CONTEXT_TOKENS:]))
            yield ids

    with ProgressBar() as bar:
        for hypotheses in generate_many(generator, prompts(), max_new_tokens=max_new_tokens, on_progress=bar.update):
            line, ids = pending.popleft()
            yield line, [_join_continuation(line, ids, item, generator) for item in hypotheses], hypotheses
    _warn_truncated(truncated, generator)


def _join_continuation(line: str, ids: list[int], hypothesis: Hypothesis, generator: TextGenerator) -> str:
    """The prompt and its continuation; JSON output omits the prompt."""
    if generator.decoding.outputs_json:
        return hypothesis.text or ""
    return line + leading_space(generator.tokenizer, ids, hypothesis.tokens) + (hypothesis.text or "")


def _warn_truncated(count: int, generator: TextGenerator) -> None:
    if count:
        subject = "1 prompt was" if count == 1 else f"{count:,} prompts were"
        limit = f"the context length of the model is {generator.model.max_positions} tokens"
        print(f"saccade generate: {subject} truncated at the start; {limit}.", file=sys.stderr)
