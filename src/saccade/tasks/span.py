"""Extractive question answering: the words of a text that answer a question, where they stand, or that there are none.

Question and text are read together. Each token of the text gets a score for being the first of the answer and one for being the
last; the best pair whose tokens stand in order and not too far apart is the answer, an exact piece of the text. A long text is
read in windows that overlap, and the best answer of all of them counts. The first token of the input stands for "no answer"
(Devlin et al., 2019): it is given when its score exceeds the best answer's by more than a threshold, which is chosen on the
held-out data so that F1 is the highest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade.data import Batch, Example, Role
from saccade.data.item import ANSWERS, CONTEXT, QUESTION
from saccade.data.twins import Twin
from saccade.errors import UsageError
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.task import Choices, Item, Task, Wrong, check_length, need_tokenizer, sources
from saccade.tasks.windows import NONE, NULL, Window, best_spans, joined, windows

SOME = 1000  # examples that are tokenised at once
BEST = 10  # answers that are kept of each question

ALWAYS_ANSWER = 1e9  # a threshold that no difference of logits reaches; finite, as the settings of a run have to be


@dataclass(frozen=True)
class Config:
    length: int = 384  # the most tokens that are read at once, question and text together
    stride: int = 128  # how many tokens after the one before it a window of a longer text begins
    question: int = 64  # the most tokens of a question
    answer: int = 30  # the most tokens of an answer
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    threshold: float | None = None  # how much surer of no answer it has to be to give none; not set: as dev has it
    metric: str = "f1"  # what training watches: f1 or exact_match

    def __post_init__(self) -> None:
        for name in ("length", "stride", "question", "answer"):
            if getattr(self, name) < 1:
                raise UsageError(f"task.{name} is {getattr(self, name)}; at least 1 token is needed.")


class Span(Task):
    name = "span"
    aliases = ("qa",)
    verb = "answer"
    gold_roles = ("answers",)
    counterfactual_roles = ("context", "question")
    min_examples = 20_000
    no_swap = "an answer is a place in a text, and may be the very word that is exchanged"
    hub_pipeline = "question-answering"
    takes_two_texts = reads_sentences = True
    no_look_answer = "the model answers a question about a text, and only one text was given"
    watched = ("f1", "exact_match")
    said = "the words of a text that answer a question, or that it has no answer"
    Config = Config
    needs = Needs(Modality.TEXT, head="span")
    frame = "both"
    sample = "questions"
    cuts = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (CONTEXT, QUESTION, ANSWERS)

    def read_texts(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(values[name] for name in ("question", "context") if isinstance(values.get(name), str))

    def usual(self) -> str:
        return "transformer_reader"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 3072, "epochs": 3})
        sizes = {"width": 128, "layers": 3, "inner": 256, "dropout": 0.0, "position": "rotary"}
        return Choices(self.usual(), sizes, {"rate": 1e-3, "tokens": 2048, "epochs": 12, "warmup": 0.05})

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        last = None
        for example in examples:
            if example["context"] != last:  # the questions about one text stand together
                yield example["context"]
            last = example["context"]
            yield example["question"]

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Each example in one window or, if its text is longer than what is read at once, in several."""
        tokenizer, config = need_tokenizer(model), self.config
        limit = min(config.length, model.limit or config.length)
        out: list[Item] = []
        for start in range(0, len(examples), SOME):
            some = examples[start : start + SOME]
            for example in some:
                check_length(example["context"], example, "context")
            found = tokenizer.encode_each([e["question"] for e in some], [e["context"] for e in some])
            for example, encoded in zip(some, found, strict=True):
                out += windows(example, encoded, limit=limit, stride=config.stride, question=config.question)
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])  # (B, 2)
        source = sources(items)
        ends = torch.tensor([[item.question_end] for item in cast(Sequence[Window], items)])
        source.marked = torch.arange(source.tokens.size(1)) < ends
        return Batch(source, gold=gold, rows=list(items))

    def count(self, batch: Batch) -> int:
        return 0 if batch.gold is None else int((batch.gold[:, 0] != NONE).sum())

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The mean of what the first and the last token of each window's answer cost."""
        scores = model(batch).float()  # (B, L, 2)
        assert batch.gold is not None
        costs = [F.cross_entropy(scores[..., i], batch.gold[:, i], reduction="sum", ignore_index=NONE) for i in (0, 1)]
        return (costs[0] + costs[1]) / 2

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """The best spans of each window and its score for no answer; `gathered` joins the windows of one text."""
        scores = model(batch).float()
        found = best_spans(scores, batch.rows, longest=self.config.answer, count=BEST)
        silent = scores[:, NULL].sum(-1).tolist()
        return [{"null": null, "best": spans} for null, spans in zip(silent, found, strict=True)]

    def gathered(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, Any]]:
        return joined(answers, items, BEST)

    def tune(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> None:
        """Find the threshold of the highest F1; where every question has an answer, no answer is never given."""
        gold = [_texts(example) for example in examples]
        if self.config.threshold is not None or not gold:
            return
        if all(gold):
            self.tuned = {"threshold": ALWAYS_ANSWER}
            return
        pairs = [(answer, right) for answer, right in zip(answers, gold, strict=True) if answer["best"]]
        if pairs:
            said = [metrics.answer_f1(right, answer["best"][0]["text"]) for answer, right in pairs]
            silent = [metrics.answer_f1(right, "") for _, right in pairs]
            margins = [_margin(answer) for answer, _ in pairs]
            self.tuned = {"threshold": metrics.best_threshold(margins, said, silent)}

    @property
    def threshold(self) -> float:
        """As it was tuned, as it was set, or 0."""
        return self.tuned.get("threshold", self.config.threshold or 0.0)

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        gold = [_texts(example) for example in examples]
        found = metrics.squad(gold, [self._said(answer) for answer in answers])
        return sorted(found, key=lambda score: score.name != self.config.metric)

    def shown(self, answer: dict[str, Any], example: Example) -> dict[str, Any]:
        """The answer, or None, and how likely it is among the best ones and no answer."""
        best, none = self._shares(answer)
        first = best[0] if self._said(answer) else {"text": None, "start": None, "end": None, "score": none}
        where = {"answer": first["text"], "start": first["start"], "end": first["end"], "score": first["score"]}
        return {"question": example["question"], **where, "no_answer": none, "best": best}

    def wrong(self, answer: Any, example: Example) -> Wrong | None:
        shown, gold = self.shown(answer, example), [text for _, text in example["answers"]]
        if metrics.answer_match(gold, shown["answer"] or ""):
            return None
        told = [", ".join(dict.fromkeys(gold)) or "no answer", shown["answer"] or "no answer"]
        row = {"text": example["context"], "question": example["question"], "gold": told[0], "answer": told[1]}
        return Wrong(row | {"sure": f"{shown['score']:.0%}"}, shown["score"])

    def comparable(self, answer: dict[str, Any], example: Example) -> Any:
        return tuple(self.shown(answer, example)[key] for key in ("start", "end"))

    def carried(self, value: Any, twin: Twin) -> Any:
        return value if value[0] is None else tuple(twin.swaps["context"].moved(place) for place in value)

    def told(self, shown: dict[str, Any]) -> str:
        return f"{shown['answer'] or 'no answer'}  {shown['score']:.0%}"

    def _said(self, answer: dict[str, Any]) -> str:
        """The best answer's text, or "" for none."""
        if not answer["best"] or _margin(answer) > self.threshold:
            return ""
        return answer["best"][0]["text"]

    def _shares(self, answer: dict[str, Any]) -> tuple[list[dict[str, Any]], float]:
        """Scores as shares of one, the threshold counted, so that the largest share is what is said."""
        scores = torch.tensor(
            [answer["null"] - self.threshold, *(span["score"] for span in answer["best"])], dtype=torch.float64
        )
        if not answer["best"]:
            return [], 1.0
        none, *shares = scores.softmax(0).tolist()
        return [{**span, "score": share} for span, share in zip(answer["best"], shares, strict=True)], none


def _texts(example: Example) -> list[str]:
    return [text for _, text in example["answers"]]


def _margin(answer: dict[str, Any]) -> float:
    return answer["null"] - answer["best"][0]["score"]
