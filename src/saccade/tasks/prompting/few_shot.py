"""Few-shot and zero-shot prediction with a language model: the prompt has a few solved examples, or none, before the question.

No weight changes; the model learns in context (Brown et al. 2020, arXiv 2005.14165). A template formats each example, and the
question is formatted in the same way up to its answer. The score of a label is the log-likelihood of its tokens after the prompt.
If the answers are texts, not labels, the model generates up to the end of the line.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from saccade import metrics
from saccade.data import Batch, Example, Role, Text
from saccade.data.read import read_examples
from saccade.decoding import StoppingCriteria, generate_texts
from saccade.errors import DataError, ModelError, UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks.base import Item, Task, require_tokenizer
from saccade.tasks.infer_task import infer_task
from saccade.tasks.interface.predictions import LabelPrediction, TextPrediction
from saccade.tasks.needs import Needs
from saccade.tasks.prompting.prompts import (
    SLOT_PATTERN,
    PromptTemplate,
    common_prefix_length,
    is_encoder_decoder,
    prefill_prompts,
    score_endings,
)
from saccade.tasks.registry import TASKS, task_class

CONTENT_FREE_TEXT = "N/A"  # input of contextual calibration


@dataclass(frozen=True)
class Config:
    template: str = ""
    """Prompt template of an example, such as "{text} is {label}."; default: the template of the task."""
    length_normalize: bool = False
    """Length normalization: compare labels by the mean over their tokens; the sum penalizes long labels."""
    calibrate: bool = False
    """Contextual calibration: subtract each label's score after a content-free text (Zhao et al. 2021, arXiv 2102.09690)."""
    max_new_tokens: int = 64
    """Maximum number of tokens of a generated answer."""


@dataclass(frozen=True)
class FewShotItem(Item):
    """A prompt, the candidate endings, and the number of shots that did not fit into it."""

    endings: tuple[list[int], ...] = ()
    dropped_shots: int = 0


class FewShot(Task):
    """A task that a language model solves from a prompt; `shots` are solved examples, the newest last."""

    name = "shots"
    description = "few-shot prompting: a label or a text from a language model that is shown a few examples"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.CONTINUATION)

    def __init__(
        self, config: Any = None, labels: Sequence[str] = (), *, shots: Sequence[Example] = (), task: str = "label"
    ):
        super().__init__(config, labels)
        self.shots = tuple(shots)
        prompt = task_class(task).prompt
        assert prompt is not None, f"{task} has no prompt"
        self.prompt_roles = prompt.roles
        self.gold_roles = (self.prompt_roles[-1].name,)
        self.template = PromptTemplate(
            self.config.template or prompt.template, [role.name for role in self.prompt_roles]
        )
        self.is_free_text = self.prompt_roles[-1].kind == "text"
        if not self.is_free_text:
            self.labels = self.labels or tuple(dict.fromkeys(shot["label"] for shot in self.shots))
            if len(set(self.labels)) < 2:
                raise UsageError(
                    f"At least two labels are needed, got {list(self.labels)}. Name them with --labels, or give "
                    "examples of two or more labels with --few-shot."
                )

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return self.prompt_roles

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Each question after as many of the newest shots as fit into the model's context."""
        items = [self._fit_prompt(example, model) for example in examples]
        dropped = [item.dropped_shots for item in items if item.dropped_shots]
        self.notes = ()
        if dropped:
            problem = f"{len(dropped):,} of {len(items):,} prompts exceed the model's {model.max_positions:,} positions"
            self.notes = (f"{problem}: the oldest shots are dropped, up to {max(dropped):,} of {len(self.shots):,}",)
        return list(items)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch(Text.pad([item.source.tolist() for item in items]), items=list(items))

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        if self.is_free_text:
            return [self._generate_answer(item, model) for item in batch.items]
        baseline = torch.zeros(len(self.labels))
        if self.config.calibrate:
            blank = Example(dict.fromkeys((role.name for role in self.prompt_roles), CONTENT_FREE_TEXT))
            (baseline,) = self._score_labels([self._fit_prompt(blank, model)], model)
        return [self._rank_labels(scores - baseline) for scores in self._score_labels(batch.items, model)]

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        if self.is_free_text:
            return [metrics.exact_match([example["target"] for example in examples], answers)]
        gold, predictions = [example["label"] for example in examples], [answer["label"] for answer in answers]
        return [metrics.accuracy(gold, predictions), metrics.macro_f1(gold, predictions)]

    def to_prediction(self, answer: Any, example: Example) -> TextPrediction | LabelPrediction:
        if self.is_free_text:
            return TextPrediction(answer)
        return LabelPrediction.from_scores(answer["label"], answer["scores"])

    def _fit_prompt(self, example: Example, model: Model) -> FewShotItem:
        """The prompt with as many shots as fit; a question that is too long by itself is truncated at its beginning."""
        shot_count = len(self.shots)
        item = self._make_prompt(example, shot_count, model)
        limit = model.max_positions
        if limit is None or _prompt_size(item, model, self.config.max_new_tokens) <= limit:
            return item
        sizes = lambda kept: _prompt_size(self._make_prompt(example, kept, model), model, self.config.max_new_tokens)
        kept = max(0, bisect_right(range(shot_count), limit, key=sizes) - 1)
        item = self._make_prompt(example, kept, model)
        excess = max(0, _prompt_size(item, model, self.config.max_new_tokens) - limit)
        return FewShotItem(example, item.source[excess:], endings=item.endings, dropped_shots=shot_count - kept)

    def _make_prompt(self, example: Example, kept: int, model: Model) -> FewShotItem:
        """The tokens of the newest shots and the question, and the tokens of each label after them."""
        tokenizer = require_tokenizer(model)
        shots = "".join(self.template.format_example(shot.values) for shot in self.shots[len(self.shots) - kept :])
        text = shots + self.template.format_question(example.values)
        if is_encoder_decoder(model):
            source = tokenizer.encode(text).ids
            encodings = tokenizer.target.encode_batch(self.labels, add_special_tokens=False)
            endings = [encoding.ids for encoding in encodings]
        else:
            bos = [tokenizer.bos_id] if tokenizer.encode("a").ids[0] == tokenizer.bos_id else []
            encodings = tokenizer.encode_batch([text, *self._texts_with_endings(text)], add_special_tokens=False)
            rows = [bos + encoding.ids for encoding in encodings]
            # a token may span prompt and label, so labels begin at the first token in which the rows differ
            prefix_length = common_prefix_length(rows)
            source, endings = rows[0][:prefix_length], [row[prefix_length:] for row in rows[1:]]
        if not source or not all(endings):
            raise UsageError(
                f"The template {self.template.text!r} or one of the labels {list(self.labels)} has no tokens; put text "
                "before the answer, and use labels that the tokenizer can encode."
            )
        return FewShotItem(example, np.array(source, np.int32), endings=tuple(endings))

    def _texts_with_endings(self, text: str) -> list[str]:
        return [] if self.is_free_text else [text + self.template.format_answer(label) for label in self.labels]

    def _score_labels(self, items: Sequence[FewShotItem], model: Model) -> list[torch.Tensor]:
        """The log-likelihood of each label after each prompt."""
        out = []
        for item, (state, first) in zip(
            items, prefill_prompts(model, [item.source.tolist() for item in items]), strict=True
        ):
            log_probs = score_endings(model, state, first, item.endings)
            scores = [
                token_scores.mean() if self.config.length_normalize else token_scores.sum()
                for token_scores in log_probs
            ]
            out.append(torch.stack(scores).double().cpu())
        return out

    def _rank_labels(self, scores: torch.Tensor) -> dict[str, Any]:
        ranked = sorted(zip(self.labels, scores.softmax(0).tolist(), strict=True), key=lambda pair: -pair[1])
        return {
            "label": ranked[0][0],
            "scores": dict(ranked),
            "logs": dict(zip(self.labels, scores.tolist(), strict=True)),
        }

    def _generate_answer(self, item: FewShotItem, model: Model) -> str:
        """The generated text up to the end of the line or the separator of examples."""
        tokenizer = require_tokenizer(model).target
        stop_strings = [end for end in ("\n", self.template.suffix.strip()) if end]
        limit = self.config.max_new_tokens
        if model.max_positions is not None:
            limit = min(limit, model.max_positions - (0 if is_encoder_decoder(model) else len(item.source)))
        device = next(model.parameters()).device
        prompt = Batch(Text.pad([item.source.tolist()])).to(device)
        stopping = StoppingCriteria(tokenizer.eos_id, max(1, limit))
        (generated,) = generate_texts(model, prompt, stopping, tokenizer=tokenizer, stop_strings=stop_strings)
        return (generated.text or "").strip()


def make_few_shot_task(
    model: Model,
    files: Sequence[str] = (),
    *,
    labels: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> FewShot:
    """The few-shot task for files of solved examples, or for a template alone; a model that generates no text raises an error."""
    config = config or Config()
    if not model.capabilities.generates_text or model.tokenizer is None:
        raise ModelError(
            f"Few-shot prediction needs a model that generates text; {model.family.name} does not. Load a language "
            "model, or train one with saccade train language."
        )
    task_type = _infer_task_class(files, columns, config.template)
    prompt = task_type.prompt
    shots = read_examples(files, prompt.roles, columns=columns).examples if files and prompt is not None else []
    return FewShot(config, labels, shots=shots, task=task_type.name)


def _infer_task_class(files: Sequence[str], columns: Mapping[str, str] | None, template: str) -> type[Task]:
    """The task of the prompt, inferred from the slots of the template, the column names or the file."""
    slots = {*SLOT_PATTERN.findall(template), *(columns or {})}
    prompted = [task_type for task_type in TASKS if task_type.prompt is not None]
    named = [
        task_type
        for task_type in prompted
        if task_type.prompt and {role.name for role in task_type.prompt.roles[:-1]} & slots
    ]
    if named or not files:
        return named[0] if named else task_class("label")
    task, _ = infer_task(files, columns)
    if task.prompt is None:
        problem = f"this is data for {task.name}; shots need texts with labels, text pairs with labels, or sources with targets"
        raise DataError(problem, file=files[0], hint="name the columns: --columns text=1,label=2")
    return type(task)


def _prompt_size(item: FewShotItem, model: Model, max_new_tokens: int) -> int:
    """The number of positions that a prompt needs: its tokens and those of the answer except the last."""
    if is_encoder_decoder(model):
        return len(item.source)
    longest = max(map(len, item.endings), default=min(max_new_tokens, (model.max_positions or max_new_tokens) // 2))
    return len(item.source) + longest - 1
