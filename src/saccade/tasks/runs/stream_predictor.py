"""Predictions for any number of examples, one after another in constant memory, in the order of the examples."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from saccade.data import Example
from saccade.decoding.batch_generate import sorting_windows
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.errors import UsageError
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.tasks.base import Task, require_tokenizer
from saccade.tasks.interface.predictions import MeasuredPrediction, Prediction, TextPrediction
from saccade.tasks.predict import check_answers, predict


class StreamPredictor:
    """Streaming prediction: examples are read in windows of some hundreds, and each window is sorted by length.

    `decoding` is for tasks that generate text.
    """

    def __init__(
        self, task: Task, model: Model, *, batch_size: int | None = None, decoding: GenerationConfig | None = None
    ):
        self.task, self.model, self.batch_size = task, model, batch_size
        self.generator: TextGenerator | None = None
        if decoding is not None:
            if task.needs.generates is not Generates.TARGET:
                raise UsageError(
                    f"{task.name} generates no text, so {_first_change(decoding)} does not apply; leave it out."
                )
            if decoding.n_best > 1:
                raise UsageError(
                    "predict returns one text per example; for n_best use saccade.generate or the command line."
                )
            self.generator = TextGenerator(decoding, model, require_tokenizer(model).target)

    def iterate(self, examples: Iterable[Example]) -> Iterator[Prediction]:
        """Yield the prediction of each example."""
        return (prediction for prediction, _ in self.iterate_pairs(examples))

    def iterate_pairs(self, examples: Iterable[Example]) -> Iterator[tuple[Prediction, Example]]:
        """Yield the prediction of each example, and the example."""
        for window in sorting_windows(examples):
            predict_window = self._predict_streams if self.task.is_text_stream else self._predict_window
            for prediction, example in zip(predict_window(window), window, strict=True):
                yield prediction.locate(example), example

    def _predict_window(self, examples: Sequence[Example]) -> Iterator[Prediction]:
        generator = self.generator
        if generator is None:
            answers, predicted = predict(self.task, self.model, examples, batch_size=self.batch_size)
            check_answers(answers)
            yield from (self.task.to_prediction(a, e) for a, e in zip(answers, predicted, strict=True))
            return
        rows, predicted = predict(
            self.task,
            self.model,
            examples,
            predictor=lambda model, batch: self.task.generate(generator, batch),
            rows_per_item=generator.decoding.beams,
            batch_size=self.batch_size,
        )
        for (best, *_), example in zip(rows, predicted, strict=True):
            prediction = self.task.to_prediction(best.text or "", example)
            yield replace(prediction, score=best.score) if isinstance(prediction, TextPrediction) else prediction

    def _predict_streams(self, examples: Sequence[Example]) -> Iterator[Prediction]:
        """Each text by itself, not as part of one concatenated text."""
        for example in examples:
            answers, _ = predict(self.task, self.model, [example], batch_size=self.batch_size)
            check_answers(answers)
            if answers:
                yield self.task.to_prediction(_sum_windows(answers), example)
            else:
                yield MeasuredPrediction("no tokens to measure")


def _sum_windows(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the measurements over the windows of one text.

    >>> _sum_windows([{"nats": 1.5, "tokens": 2}, {"nats": 0.5, "tokens": 1}])
    {'nats': 2.0, 'tokens': 3}
    """
    names = answers[0] if answers else ()
    return {name: sum(answer[name] for answer in answers) for name in names}


def _first_change(decoding: GenerationConfig) -> str:
    default = GenerationConfig()
    return next(item.name for item in fields(decoding) if getattr(decoding, item.name) != getattr(default, item.name))
