"""Prompts: templates that format questions and solved examples, and the log-likelihood of endings after a prompt."""

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
    """The format of an example: text with a slot in braces for each role, the answer last.

    >>> template = PromptTemplate("Text: {text}\\nLabel: {label}\\n", ["text", "label"])
    >>> template.format_question({"text": "fine"}), template.format_answer("good")
    ('Text: fine\\nLabel:', ' good')
    >>> template.format_example({"text": "fine", "label": "good"})
    'Text: fine\\nLabel: good\\n'
    """

    def __init__(self, text: str, names: Sequence[str]):
        text = text.replace("\\n", "\n").replace("\\t", "\t")  # escapes typed in a shell
        self.text, answer = text, names[-1]
        slots = SLOT_PATTERN.findall(text)
        unknown = next((slot for slot in slots if slot not in names), None)
        if unknown is not None:
            raise UsageError(f"The template {text!r} has a slot {{{unknown}}}; {suggest(unknown, list(names))}")
        missing = [name for name in names if name not in slots]
        if missing or slots.count(answer) != 1 or slots[-1] != answer:
            required = " and ".join(f"{{{name}}}" for name in names)
            raise UsageError(f"The template {text!r} needs {required}, with {{{answer}}} once and last.")
        before_answer, self.suffix = text.split(f"{{{answer}}}")
        self.prefix = before_answer.rstrip(" ")
        self.answer_prefix = before_answer[len(self.prefix) :]  # tokenizers join a space to the word after it

    def format_question(self, values: Mapping[str, Any]) -> str:
        """An example up to its answer."""
        return SLOT_PATTERN.sub(lambda slot: str(values[slot[1]]), self.prefix)

    def format_answer(self, answer: str) -> str:
        """An answer in the form that follows the question."""
        return self.answer_prefix + answer

    def format_example(self, values: Mapping[str, Any]) -> str:
        """An example with its answer and the separator after it."""
        return SLOT_PATTERN.sub(lambda slot: str(values[slot[1]]), self.text)


def common_prefix_length(rows: Sequence[Sequence[int]]) -> int:
    """The length of the common prefix of all rows.

    >>> common_prefix_length([[1, 2, 3], [1, 2], [1, 2, 4]])
    2
    """
    first = min(rows, key=len)
    return next((i for i, column in enumerate(zip(*rows, strict=False)) if len(set(column)) > 1), len(first))


def is_encoder_decoder(model: Model) -> bool:
    """Whether a model reads the prompt with an encoder and generates only the answer."""
    return not model.capabilities.is_decoder_only


def prefill_prompts(model: Model, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[State, Tensor]]:
    """The decoder state (KV cache) after each prompt, and the log-probabilities (V,) of the next token.

    The common prefix of all prompts is computed once. A state is valid until the next prompt is requested.
    """
    body = model.autoregressive_body
    device = next(model.parameters()).device
    if is_encoder_decoder(model):
        for prompt in prompts:
            state, first = model.start(Batch(Text.pad([prompt])).to(device))
            yield state, body.head(body.hidden_states(first, state)[0, -1]).log_softmax(-1)
        return
    prefix_length = min(common_prefix_length(prompts), min(map(len, prompts)) - 1)  # at least one token remains
    state, _ = model.start(Batch(Text.pad([prompts[0]])).to(device))
    if prefix_length:
        body.hidden_states(Text.pad([prompts[0][:prefix_length]]).to(device), state)
    snapshot = state.snapshot()
    for prompt in prompts:
        state.restore(snapshot)
        x = body.hidden_states(Text.pad([prompt[prefix_length:]]).to(device), state)
        yield state, body.head(x[0, -1]).log_softmax(-1)


def score_endings(model: Model, state: State, first: Tensor, endings: Sequence[Sequence[int]]) -> list[Tensor]:
    """The log-probability of each token of each ending, from one state and the log-probabilities (V,) of its first token."""
    body = model.autoregressive_body
    snapshot, log_probs = state.snapshot(), []
    for ending in endings:
        tokens = torch.tensor([ending], device=first.device)
        step_scores = first[None]
        if len(ending) > 1:
            rest = body.head(body.hidden_states(Text(tokens[:, :-1]), state)[0]).log_softmax(-1)
            step_scores = torch.cat([step_scores, rest])
            state.restore(snapshot)
        log_probs.append(step_scores.gather(1, tokens.T)[:, 0])
    return log_probs
