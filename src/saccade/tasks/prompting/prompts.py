"""Prompts and what follows them: a template writes questions and solved examples, a writer says how likely an ending is."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from saccade.data import Batch, Text
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.parts.state import State
from saccade.suggest import suggest

SLOT_PATTERN = re.compile(r"\{(\w+)\}")


class PromptTemplate:
    """How an example is written: text with a slot in braces for each role, the answer's last.

    >>> template = PromptTemplate("Text: {text}\\nLabel: {label}\\n", ["text", "label"])
    >>> template.format_question({"text": "fine"}), template.format_answer("good")
    ('Text: fine\\nLabel:', ' good')
    >>> template.format_example({"text": "fine", "label": "good"})
    'Text: fine\\nLabel: good\\n'
    """

    def __init__(self, text: str, names: Sequence[str]):
        text = text.replace("\\n", "\n").replace("\\t", "\t")  # as a shell hands them over
        self.text, answer = text, names[-1]
        slots = SLOT_PATTERN.findall(text)
        odd = next((slot for slot in slots if slot not in names), None)
        if odd is not None:
            raise UsageError(f"The template {text!r} has a slot {{{odd}}}; {suggest(odd, list(names))}")
        missing = [name for name in names if name not in slots]
        if missing or slots.count(answer) != 1 or slots[-1] != answer:
            wanted = " and ".join(f"{{{name}}}" for name in names)
            raise UsageError(f"The template {text!r} needs {wanted}, {{{answer}}} once and last of them.")
        front, self.suffix = text.split(f"{{{answer}}}")
        self.prefix = front.rstrip(" ")
        self.answer_prefix = front[len(self.prefix) :]  # tokenizers write a space into the word after it

    def format_question(self, values: Mapping[str, Any]) -> str:
        """All that stands before the answer."""
        return SLOT_PATTERN.sub(lambda slot: str(values[slot[1]]), self.prefix)

    def format_answer(self, answer: str) -> str:
        """The answer as it follows the question."""
        return self.answer_prefix + answer

    def format_example(self, values: Mapping[str, Any]) -> str:
        """A question with its answer and what stands between two examples."""
        return SLOT_PATTERN.sub(lambda slot: str(values[slot[1]]), self.text)


def common_prefix_length(rows: Sequence[Sequence[int]]) -> int:
    """How many tokens all rows begin with in common.

    >>> common_prefix_length([[1, 2, 3], [1, 2], [1, 2, 4]])
    2
    """
    first = min(rows, key=len)
    return next((i for i, column in enumerate(zip(*rows, strict=False)) if len(set(column)) > 1), len(first))


def is_encoder_decoder(model: Model) -> bool:
    """Whether a writer reads its prompt with an encoder, so that what it writes begins anew."""
    return not model.capabilities.is_decoder_only


def prefill_prompts(model: Model, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[State, Tensor]]:
    """What is remembered after each prompt, and the log likelihoods (V,) of what comes next.

    What all prompts begin with is read once. The state is good until the next prompt is asked for.
    """
    body = model.autoregressive_body
    device = next(model.parameters()).device
    if is_encoder_decoder(model):
        for prompt in prompts:
            state, first = model.start(Batch(Text.pad([prompt])).to(device))
            yield state, body.head(body.hidden_states(first, state)[0, -1]).log_softmax(-1)
        return
    common = min(common_prefix_length(prompts), min(map(len, prompts)) - 1)  # a token is left, for what follows it
    state, _ = model.start(Batch(Text.pad([prompts[0]])).to(device))
    if common:
        body.hidden_states(Text.pad([prompts[0][:common]]).to(device), state)
    mark = state.snapshot()
    for prompt in prompts:
        state.restore(mark)
        x = body.hidden_states(Text.pad([prompt[common:]]).to(device), state)
        yield state, body.head(x[0, -1]).log_softmax(-1)


def score_endings(model: Model, state: State, first: Tensor, endings: Sequence[Sequence[int]]) -> list[Tensor]:
    """The log likelihood of each token of each ending, from one state and the scores (V,) of the first token."""
    body = model.autoregressive_body
    mark, found = state.snapshot(), []
    for ending in endings:
        tokens = torch.tensor([ending], device=first.device)
        scores = first[None]
        if len(ending) > 1:
            rest = body.head(body.hidden_states(Text(tokens[:, :-1]), state)[0]).log_softmax(-1)
            scores = torch.cat([scores, rest])
            state.restore(mark)
        found.append(scores.gather(1, tokens.T)[:, 0])
    return found
