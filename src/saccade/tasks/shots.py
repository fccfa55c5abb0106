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

from saccade.data import Batch, Example, Role, Text
from saccade.data.read import read
from saccade.decoding import Bounds, written
from saccade.errors import DataError, ModelError, UsageError
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.infer_task import infer_task
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.prompting import SLOT, Template, after, likelihoods, reads_apart, shared
from saccade.tasks.table import TASKS, task_class
from saccade.tasks.task import Item, Task, need_tokenizer

EMPTY = "N/A"  # stands for a text without content


@dataclass(frozen=True)
class Config:
    template: str = ""  # how an example is written, such as "{text} is {label}."; none: a plain one
    per_token: bool = False  # the mean over a label's tokens, not the sum: a long label is not unlikely for its length
    calibrate: bool = False  # less what a label has after a text without content (Zhao et al. 2021, arXiv 2102.09690)
    length: int = 64  # the most tokens of an answer that is written


@dataclass(frozen=True)
class Asked(Item):
    """A prompt, the endings to choose from, and how many shots did not fit in front of it."""

    endings: tuple[list[int], ...] = ()
    left_out: int = 0


class Shots(Task):
    """A task for a writer that was not trained for it; `shots` are solved examples, the newest last."""

    name = "shots"
    said = "a label or a text, by a writer that is shown a few examples"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.CONTINUATION)

    def __init__(
        self, config: Any = None, labels: Sequence[str] = (), *, shots: Sequence[Example] = (), kind: str = "label"
    ):
        super().__init__(config, labels)
        self.shots = tuple(shots)
        prompt = task_class(kind).prompt
        assert prompt is not None, f"{kind} is no task that a prompt can ask"
        self.asked = prompt.roles
        self.gold_roles = (self.asked[-1].name,)
        self.template = Template(self.config.template or prompt.template, [role.name for role in self.asked])
        self.free = self.asked[-1].kind == "text"
        if not self.free:
            self.labels = self.labels or tuple(dict.fromkeys(shot["label"] for shot in self.shots))
            if len(set(self.labels)) < 2:
                raise UsageError(
                    f"There is nothing to choose from: the labels are {list(self.labels)}. Name two or more with "
                    "--labels, or give examples of two or more with --shots."
                )

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return self.asked

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Each question with as many of the newest shots in front as the model can read."""
        found = [self._fitted(example, model) for example in examples]
        short = [item.left_out for item in found if item.left_out]
        self.noticed = ()
        if short:
            said = f"{len(short):,} of {len(found):,} prompts are longer than the {model.limit:,} tokens that the model reads"
            self.noticed = (f"{said}: the oldest shots are left out, up to {max(short):,} of {len(self.shots):,}",)
        return list(found)

    def batch(self, items: Sequence[Item]) -> Batch:
        return Batch(Text.of([item.source.tolist() for item in items]), rows=list(items))

    def answer(self, model: Model, batch: Batch) -> list[Any]:
        if self.free:
            return [self._written(item, model) for item in batch.rows]
        less = torch.zeros(len(self.labels))
        if self.config.calibrate:
            blank = Example(dict.fromkeys((role.name for role in self.asked), EMPTY))
            (less,) = self._scores([self._fitted(blank, model)], model)
        return [self._ranked(scores - less) for scores in self._scores(batch.rows, model)]

    def score(self, answers: Sequence[Any], examples: Sequence[Example]) -> list[Score]:
        if self.free:
            return [metrics.exact_match([example["target"] for example in examples], answers)]
        gold, said = [example["label"] for example in examples], [answer["label"] for answer in answers]
        return [metrics.accuracy(gold, said), metrics.macro_f1(gold, said)]

    def shown(self, answer: Any, example: Example) -> dict[str, Any]:
        return {"text": answer} if self.free else answer

    def told(self, shown: dict[str, Any]) -> str:
        return shown["text"] if self.free else f"{shown['label']} {shown['scores'][shown['label']]:.0%}"

    def _fitted(self, example: Example, model: Model) -> Asked:
        """The prompt with the most shots that fit; a question too long by itself loses its beginning."""
        every = len(self.shots)
        item = self._prompt(example, every, model)
        limit = model.limit
        if limit is None or _size(item, model, self.config.length) <= limit:
            return item
        sizes = lambda kept: _size(self._prompt(example, kept, model), model, self.config.length)
        kept = max(0, bisect_right(range(every), limit, key=sizes) - 1)
        item = self._prompt(example, kept, model)
        over = max(0, _size(item, model, self.config.length) - limit)
        return Asked(example, item.source[over:], endings=item.endings, left_out=every - kept)

    def _prompt(self, example: Example, kept: int, model: Model) -> Asked:
        """The newest shots and the question as tokens, and each label as the tokens that would follow."""
        tokenizer = need_tokenizer(model)
        shots = "".join(self.template.solved(shot.values) for shot in self.shots[len(self.shots) - kept :])
        text = shots + self.template.question(example.values)
        if reads_apart(model):
            source, ends = tokenizer.encode(text).ids, tokenizer.target.encode_batch(self.labels, special=False)
            endings = [found.ids for found in ends]
        else:
            front = [tokenizer.begin] if tokenizer.encode("a").ids[0] == tokenizer.begin else []
            ends = tokenizer.encode_batch([text, *self._endings(text)], special=False)
            rows = [front + found.ids for found in ends]
            # the border may lie within a token: every label begins where the first of them leaves the prompt
            border = shared(rows)
            source, endings = rows[0][:border], [row[border:] for row in rows[1:]]
        if not source or not all(endings):
            raise UsageError(
                f"The template {self.template.text!r} or one of the labels {list(self.labels)} has no tokens; write text "
                "in front of the answer, and labels that the tokenizer knows."
            )
        return Asked(example, np.array(source, np.int32), endings=tuple(endings))

    def _endings(self, text: str) -> list[str]:
        return [] if self.free else [text + self.template.ending(label) for label in self.labels]

    def _scores(self, items: Sequence[Asked], model: Model) -> list[torch.Tensor]:
        """The score of each label after each prompt."""
        out = []
        for item, (state, first) in zip(items, after(model, [item.source.tolist() for item in items]), strict=True):
            found = likelihoods(model, state, first, item.endings)
            parts = [tokens.mean() if self.config.per_token else tokens.sum() for tokens in found]
            out.append(torch.stack(parts).double().cpu())
        return out

    def _ranked(self, scores: torch.Tensor) -> dict[str, Any]:
        ranked = sorted(zip(self.labels, scores.softmax(0).tolist(), strict=True), key=lambda pair: -pair[1])
        return {
            "label": ranked[0][0],
            "scores": dict(ranked),
            "logs": dict(zip(self.labels, scores.tolist(), strict=True)),
        }

    def _written(self, item: Asked, model: Model) -> str:
        """What the writer writes up to the end of the line, or to what stands between two examples."""
        tokenizer = need_tokenizer(model).target
        ends = [end for end in ("\n", self.template.after.strip()) if end]
        room = self.config.length
        if model.limit is not None:
            room = min(room, model.limit - (0 if reads_apart(model) else len(item.source)))
        device = next(model.parameters()).device
        prompt = Batch(Text.of([item.source.tolist()])).to(device)
        bounds = Bounds(tokenizer.end, max(1, room))
        (found,) = written(model, prompt, bounds, tokenizer=tokenizer, strings=ends)
        return (found.text or "").strip()


def shots_task(
    model: Model,
    files: Sequence[str] = (),
    *,
    labels: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    config: Config | None = None,
) -> Shots:
    """The task that files of solved examples show, or a template alone; refused for a model that writes no text."""
    config = config or Config()
    if not model.capabilities.generates_text or model.tokenizer is None:
        raise ModelError(
            f"Examples are shown to a model that writes text; this {model.family.name} does not. Train a language model, "
            "saccade train language, or load one."
        )
    kind = _kind(files, columns, config.template)
    prompt = kind.prompt
    shots = read(files, prompt.roles, columns=columns).examples if files and prompt is not None else []
    return Shots(config, labels, shots=shots, kind=kind.name)


def _kind(files: Sequence[str], columns: Mapping[str, str] | None, template: str) -> type[Task]:
    """What is asked: by the slots of the template, by the names of the columns, or by what the file is good for."""
    slots = {*SLOT.findall(template), *(columns or {})}
    asked = [kind for kind in TASKS if kind.prompt is not None]
    named = [kind for kind in asked if kind.prompt and {role.name for role in kind.prompt.roles[:-1]} & slots]
    if named or not files:
        return named[0] if named else task_class("label")
    found, _ = infer_task(files, columns)
    if found.prompt is None:
        what = f"this is data for {found.name}, and shots are texts with labels, two texts with a label, or sources with targets"
        raise DataError(what, file=files[0], cure="name the columns: --columns text=1,label=2")
    return type(found)


def _size(item: Asked, model: Model, length: int) -> int:
    """How many tokens have to be read at once: the prompt, and what is written after it but for the last token."""
    if reads_apart(model):
        return len(item.source)
    longest = max(map(len, item.endings), default=min(length, (model.limit or length) // 2))
    return len(item.source) + longest - 1
