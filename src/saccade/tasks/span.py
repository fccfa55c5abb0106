"""Extractive question answering: the span of a text that answers a question, or no answer.

Question and text are encoded together. Each token of the text gets a start score and an end score; the answer is the span with
the highest sum of both, at most `max_answer_tokens` long. A long text is split into overlapping windows, and the best span of all
windows is the answer. The first token of the input stands for "no answer" (Devlin et al., 2019), which is predicted if its score
exceeds that of the best span by more than a threshold. The threshold is tuned for the highest F1 on held-out data.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Role
from saccade.data.counterfactual import Counterfactual
from saccade.data.example import ANSWERS, CONTEXT, QUESTION
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.base import (
    BaselineMethod,
    Defaults,
    ErrorRow,
    Item,
    Task,
    check_text_length,
    pad_sources,
    require_tokenizer,
)
from saccade.tasks.baselines.sequences import span_baselines
from saccade.tasks.interface.predictions import AnswerPrediction
from saccade.tasks.needs import Needs
from saccade.tasks.qa_windows import IGNORE_INDEX, NO_ANSWER_POSITION, Window, best_spans, make_windows, merge_windows

MAX_EXAMPLES_PER_ENCODE = 1000  # examples that are tokenized at one time
MAX_SPANS_PER_QUESTION = 10  # candidate spans that are kept for each question

ALWAYS_ANSWER_THRESHOLD = 1e9  # above any difference of logits; finite, because the settings of a run must be


@dataclass(frozen=True)
class Config:
    max_tokens: int = 384
    """Maximum number of tokens per window, question and text together."""
    stride: int = 128
    """Stride of the sliding window: number of tokens between the starts of two windows."""
    max_question_tokens: int = 64
    """Maximum number of tokens per question; longer questions are truncated."""
    max_answer_tokens: int = 30
    """Maximum number of tokens per answer; longer spans are not predicted."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    threshold: float | None = None
    """No-answer threshold: margin by which no answer must outscore the best answer; default: tuned on the dev set."""
    metric: str = "f1"
    """Metric that selects the best checkpoint: f1 or exact_match."""

    def __post_init__(self) -> None:
        for name in ("max_tokens", "stride", "max_question_tokens", "max_answer_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"task.{name} is {getattr(self, name)}; at least 1 token is needed.")


class Span(Task):
    name = "span"
    aliases = ("qa",)
    verb = "answer"
    gold_roles = ("answers",)
    counterfactual_roles = ("context", "question")
    min_examples = 20_000
    no_augment_reason = "an answer is a span of the text, and may be the very word that is swapped"
    hub_pipeline = "question-answering"
    takes_two_texts = reads_sentences = True
    no_prediction_reason = "the model answers a question about a text, and only one text was given"
    metric_names = ("f1", "exact_match")
    description = "extractive question answering: the span of a text that answers a question, or no answer"
    has_mistakes = True
    Config = Config
    needs = Needs(Modality.TEXT, head="span")
    token_template = "bos_eos"
    sample = "questions"
    truncates = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (CONTEXT, QUESTION, ANSWERS)

    def get_input_texts(self, record: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(record[name] for name in ("question", "context") if isinstance(record.get(name), str))

    def default_family(self) -> str:
        return "transformer_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 3072, "epochs": 3})
        sizes = {"width": 128, "layers": 3, "ffn_width": 256, "dropout": 0.0, "position": "rotary"}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 2048, "epochs": 12, "warmup": 0.05})

    def baselines(self) -> Sequence[BaselineMethod]:
        return span_baselines()

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        last = None
        for example in examples:
            if example["context"] != last:  # questions about the same text are consecutive
                yield example["context"]
            last = example["context"]
            yield example["question"]

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """The windows of each example; a text longer than the maximum number of tokens has several."""
        tokenizer, config = require_tokenizer(model), self.config
        limit = min(config.max_tokens, model.max_positions or config.max_tokens)
        out: list[Item] = []
        for start in range(0, len(examples), MAX_EXAMPLES_PER_ENCODE):
            chunk = examples[start : start + MAX_EXAMPLES_PER_ENCODE]
            for example in chunk:
                check_text_length(example["context"], example, "context")
            encodings = tokenizer.encode_iter([e["question"] for e in chunk], [e["context"] for e in chunk])
            for example, encoded in zip(chunk, encodings, strict=True):
                out += make_windows(
                    example,
                    encoded,
                    max_tokens=limit,
                    stride=config.stride,
                    max_question_tokens=config.max_question_tokens,
                )
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold is not None for item in items):
            gold = torch.tensor([item.gold for item in items])  # (B, 2)
        source = pad_sources(items)
        ends = torch.tensor([[item.question_end] for item in cast(Sequence[Window], items)])
        source.global_mask = torch.arange(source.tokens.size(1)) < ends
        return Batch(source, gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return 0 if batch.gold is None else int((batch.gold[:, 0] != IGNORE_INDEX).sum())

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The mean of the cross-entropy of the start and of the end of the answer, summed over windows."""
        logits = model(batch).float()  # (B, L, 2)
        assert batch.gold is not None
        losses = [
            F.cross_entropy(logits[..., i], batch.gold[:, i], reduction="sum", ignore_index=IGNORE_INDEX)
            for i in (0, 1)
        ]
        return (losses[0] + losses[1]) / 2

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """The best spans and the no-answer score of each window; `merge_answers` joins the windows of a text."""
        logits = model(batch).float()
        window_spans = best_spans(
            logits, batch.items, max_answer_tokens=self.config.max_answer_tokens, count=MAX_SPANS_PER_QUESTION
        )
        no_answer_scores = logits[:, NO_ANSWER_POSITION].sum(-1).tolist()
        return [{"null": null, "best": spans} for null, spans in zip(no_answer_scores, window_spans, strict=True)]

    def merge_answers(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, Any]]:
        return merge_windows(answers, items, MAX_SPANS_PER_QUESTION)

    def tune(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> None:
        """Tune the no-answer threshold for the highest F1; if every question has an answer, "no answer" is never predicted."""
        gold = [_gold_texts(example) for example in examples]
        if self.config.threshold is not None or not gold:
            return
        if all(gold):
            self.tuned_settings = {"threshold": ALWAYS_ANSWER_THRESHOLD}
            return
        pairs = [(answer, references) for answer, references in zip(answers, gold, strict=True) if answer["best"]]
        if pairs:
            span_f1 = [metrics.answer_f1(references, answer["best"][0]["text"]) for answer, references in pairs]
            no_answer_f1 = [metrics.answer_f1(references, "") for _, references in pairs]
            margins = [_no_answer_margin(answer) for answer, _ in pairs]
            self.tuned_settings = {"threshold": metrics.best_threshold(margins, span_f1, no_answer_f1)}

    @property
    def threshold(self) -> float:
        """The no-answer threshold: tuned, or from the settings, or 0."""
        return self.tuned_settings.get("threshold", self.config.threshold or 0.0)

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        gold = [_gold_texts(example) for example in examples]
        scores = metrics.squad(gold, [self._answer_text(answer) for answer in answers])
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def to_prediction(self, answer: dict[str, Any], example: Example) -> AnswerPrediction:
        best, no_answer = self._normalize_scores(answer)
        first = best[0] if self._answer_text(answer) else {"text": None, "start": None, "end": None, "score": no_answer}
        return AnswerPrediction(
            example["question"], first["text"], first["start"], first["end"], first["score"], no_answer, tuple(best)
        )

    def error_row(self, answer: Any, example: Example) -> ErrorRow | None:
        prediction, gold = self.to_prediction(answer, example), [text for _, text in example["answers"]]
        if metrics.answer_match(gold, prediction.answer or ""):
            return None
        row = {"text": example["context"], "question": example["question"]}
        row |= {"gold": ", ".join(dict.fromkeys(gold)) or "no answer", "answer": prediction.answer or "no answer"}
        return ErrorRow.from_probability(row, prediction.score)

    def to_comparable(self, answer: dict[str, Any], example: Example) -> Any:
        prediction = self.to_prediction(answer, example)
        return prediction.start, prediction.end

    def map_to_counterfactual(self, value: Any, counterfactual: Counterfactual) -> Any:
        if value[0] is None:
            return value
        return tuple(counterfactual.swapped_texts["context"].map_offset(offset) for offset in value)

    def _answer_text(self, answer: dict[str, Any]) -> str:
        """The text of the predicted answer, or "" for no answer."""
        if not answer["best"] or _no_answer_margin(answer) > self.threshold:
            return ""
        return answer["best"][0]["text"]

    def _normalize_scores(self, answer: dict[str, Any]) -> tuple[list[dict[str, Any]], float]:
        """The spans with probabilities, and the probability of no answer, shifted by the threshold so that the largest wins."""
        logits = torch.tensor(
            [answer["null"] - self.threshold, *(span["score"] for span in answer["best"])], dtype=torch.float64
        )
        if not answer["best"]:
            return [], 1.0
        no_answer, *probabilities = logits.softmax(0).tolist()
        return [
            {**span, "score": probability} for span, probability in zip(answer["best"], probabilities, strict=True)
        ], no_answer


def _gold_texts(example: Example) -> list[str]:
    return [text for _, text in example["answers"]]


def _no_answer_margin(answer: dict[str, Any]) -> float:
    return answer["null"] - answer["best"][0]["score"]
