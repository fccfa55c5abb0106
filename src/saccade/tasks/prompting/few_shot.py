"""Asking without training: a writer is shown a few solved examples, or none, and says how likely each label is to follow.

Nothing is learnt and no weight changes; the examples are text in front of the question (Brown et al. 2020, arXiv 2005.14165).
A template says how an example is written, and the question is the same up to its answer. A label's score is the log
likelihood of its tokens there. Where the answers are texts, not labels, the writer goes on to the end of the line.
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

CONTENT_FREE_TEXT = "N/A"  # stands for a text without content


@dataclass(frozen=True)
class Config:
    template: str = ""
    """Prompt template of an example, such as "{text} is {label}."; default: a plain one."""
    length_normalize: bool = False
    """Length normalization: compare labels by the mean over their tokens; the sum penalizes long labels."""
    calibrate: bool = False
    """Contextual calibration: subtract each label's score after a content-free text (Zhao et al. 2021, arXiv 2102.09690)."""
    max_new_tokens: int = 64
    """Maximum number of tokens of a generated answer."""


@dataclass(frozen=True)
class FewShotItem(Item):
    """A prompt, the endings to choose from, and how many shots did not fit in front of it."""

    endings: tuple[list[int], ...] = ()
    dropped_shots: int = 0


class FewShot(Task):
    """A task for a writer that was not trained for it; `shots` are solved examples, the newest last."""

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
        assert prompt is not None, f"{task} is no task that a prompt can ask"
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
                    f"There is nothing to choose from: the labels are {list(self.labels)}. Name two or more with "
                    "--labels, or give examples of two or more with --few-shot."
                )

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return self.prompt_roles

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Each question with as many of the newest shots in front as the model can read."""
        found = [self._fit_prompt(example, model) for example in examples]
        short = [item.dropped_shots for item in found if item.dropped_shots]
        self.notes = ()
        if short:
            said = f"{len(short):,} of {len(found):,} prompts are longer than the {model.max_positions:,} tokens that the model reads"
            self.notes = (f"{said}: the oldest shots are left out, up to {max(short):,} of {len(self.shots):,}",)
        return list(found)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch(Text.pad([item.source.tolist() for item in items]), items=list(items))

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        if self.is_free_text:
            return [self._generate_answer(item, model) for item in batch.items]
        less = torch.zeros(len(self.labels))
        if self.config.calibrate:
            blank = Example(dict.fromkeys((role.name for role in self.prompt_roles), CONTENT_FREE_TEXT))
            (less,) = self._score_labels([self._fit_prompt(blank, model)], model)
        return [self._rank_labels(scores - less) for scores in self._score_labels(batch.items, model)]

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        if self.is_free_text:
            return [metrics.exact_match([example["target"] for example in examples], answers)]
        gold, said = [example["label"] for example in examples], [answer["label"] for answer in answers]
        return [metrics.accuracy(gold, said), metrics.macro_f1(gold, said)]

    def to_prediction(self, answer: Any, example: Example) -> TextPrediction | LabelPrediction:
        return (
            TextPrediction(answer)
            if self.is_free_text
            else LabelPrediction.from_scores(answer["label"], answer["scores"])
        )

    def _fit_prompt(self, example: Example, model: Model) -> FewShotItem:
        """The prompt with the most shots that fit; a question too long by itself loses its beginning."""
        every = len(self.shots)
        item = self._make_prompt(example, every, model)
        limit = model.max_positions
        if limit is None or _prompt_size(item, model, self.config.max_new_tokens) <= limit:
            return item
        sizes = lambda kept: _prompt_size(self._make_prompt(example, kept, model), model, self.config.max_new_tokens)
        kept = max(0, bisect_right(range(every), limit, key=sizes) - 1)
        item = self._make_prompt(example, kept, model)
        over = max(0, _prompt_size(item, model, self.config.max_new_tokens) - limit)
        return FewShotItem(example, item.source[over:], endings=item.endings, dropped_shots=every - kept)

    def _make_prompt(self, example: Example, kept: int, model: Model) -> FewShotItem:
        """The newest shots and the question as tokens, and each label as the tokens that would follow."""
        tokenizer = require_tokenizer(model)
        shots = "".join(self.template.format_example(shot.values) for shot in self.shots[len(self.shots) - kept :])
        text = shots + self.template.format_question(example.values)
        if is_encoder_decoder(model):
            source, ends = (
                tokenizer.encode(text).ids,
                tokenizer.target.encode_batch(self.labels, add_special_tokens=False),
            )
            endings = [found.ids for found in ends]
        else:
            front = [tokenizer.bos_id] if tokenizer.encode("a").ids[0] == tokenizer.bos_id else []
            ends = tokenizer.encode_batch([text, *self._texts_with_endings(text)], add_special_tokens=False)
            rows = [front + found.ids for found in ends]
            # the border may lie within a token: every label begins where the first of them leaves the prompt
            border = common_prefix_length(rows)
            source, endings = rows[0][:border], [row[border:] for row in rows[1:]]
        if not source or not all(endings):
            raise UsageError(
                f"The template {self.template.text!r} or one of the labels {list(self.labels)} has no tokens; write text "
                "in front of the answer, and labels that the tokenizer knows."
            )
        return FewShotItem(example, np.array(source, np.int32), endings=tuple(endings))

    def _texts_with_endings(self, text: str) -> list[str]:
        return [] if self.is_free_text else [text + self.template.format_answer(label) for label in self.labels]

    def _score_labels(self, items: Sequence[FewShotItem], model: Model) -> list[torch.Tensor]:
        """The score of each label after each prompt."""
        out = []
        for item, (state, first) in zip(
            items, prefill_prompts(model, [item.source.tolist() for item in items]), strict=True
        ):
            found = score_endings(model, state, first, item.endings)
            parts = [tokens.mean() if self.config.length_normalize else tokens.sum() for tokens in found]
            out.append(torch.stack(parts).double().cpu())
        return out

    def _rank_labels(self, scores: torch.Tensor) -> dict[str, Any]:
        ranked = sorted(zip(self.labels, scores.softmax(0).tolist(), strict=True), key=lambda pair: -pair[1])
        return {
            "label": ranked[0][0],
            "scores": dict(ranked),
            "logs": dict(zip(self.labels, scores.tolist(), strict=True)),
        }

    def _generate_answer(self, item: FewShotItem, model: Model) -> str:
        """What the writer writes up to the end of the line, or to what stands between two examples."""
        tokenizer = require_tokenizer(model).target
        ends = [end for end in ("\n", self.template.suffix.strip()) if end]
        room = self.config.max_new_tokens
        if model.max_positions is not None:
            room = min(room, model.max_positions - (0 if is_encoder_decoder(model) else len(item.source)))
        device = next(model.parameters()).device
        prompt = Batch(Text.pad([item.source.tolist()])).to(device)
        bounds = StoppingCriteria(tokenizer.eos_id, max(1, room))
        (found,) = generate_texts(model, prompt, bounds, tokenizer=tokenizer, stop_strings=ends)
        return (found.text or "").strip()


def make_few_shot_task(
    model: Model,
    files: Sequence[str] = (),
    *,
    labels: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> FewShot:
    """The task that files of solved examples show, or a template alone; refused for a model that writes no text."""
    config = config or Config()
    if not model.capabilities.generates_text or model.tokenizer is None:
        raise ModelError(
            f"Examples are shown to a model that writes text; this {model.family.name} does not. Train a language model, "
            "saccade train language, or load one."
        )
    kind = _infer_task_class(files, columns, config.template)
    prompt = kind.prompt
    shots = read_examples(files, prompt.roles, columns=columns).examples if files and prompt is not None else []
    return FewShot(config, labels, shots=shots, task=kind.name)


def _infer_task_class(files: Sequence[str], columns: Mapping[str, str] | None, template: str) -> type[Task]:
    """What is asked: by the slots of the template, by the names of the columns, or by what the file is good for."""
    slots = {*SLOT_PATTERN.findall(template), *(columns or {})}
    asked = [kind for kind in TASKS if kind.prompt is not None]
    named = [kind for kind in asked if kind.prompt and {role.name for role in kind.prompt.roles[:-1]} & slots]
    if named or not files:
        return named[0] if named else task_class("label")
    found, _ = infer_task(files, columns)
    if found.prompt is None:
        what = f"this is data for {found.name}, and shots are texts with labels, two texts with a label, or sources with targets"
        raise DataError(what, file=files[0], hint="name the columns: --columns text=1,label=2")
    return type(found)


def _prompt_size(item: FewShotItem, model: Model, max_new_tokens: int) -> int:
    """How many tokens have to be read at once: the prompt, and what is written after it but for the last token."""
    if is_encoder_decoder(model):
        return len(item.source)
    longest = max(map(len, item.endings), default=min(max_new_tokens, (model.max_positions or max_new_tokens) // 2))
    return len(item.source) + longest - 1
