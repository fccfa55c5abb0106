"""Trained runs in Python, `saccade.open_run("runs/reviews")`: prediction, evaluation, attention maps, settings and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, overload

from saccade.api.inputs import read_prediction_input
from saccade.data import Example
from saccade.decoding.batch_generate import sorting_windows
from saccade.decoding.config import GenerationConfig
from saccade.decoding.generator import TextGenerator
from saccade.engine import FastModel, fast
from saccade.engine.precision import PRECISIONS
from saccade.errors import ModelError, UsageError
from saccade.explain.look import look
from saccade.explain.maps import AttentionMaps
from saccade.models.capabilities import Generates
from saccade.models.model import Model
from saccade.notebook import html_table
from saccade.progress import ProgressBar, track
from saccade.suggest import suggest
from saccade.tasks.base import require_tokenizer
from saccade.tasks.interface.predictions import Prediction, Predictions, TextPrediction
from saccade.tasks.predict import check_answers
from saccade.tasks.predict import predict as predict_examples
from saccade.tasks.registry import task_class
from saccade.tasks.runs.run import Run as StoredRun
from saccade.training.distributed import single_process_world
from saccade.training.evaluate import ENGINE_OFF, evaluate_run
from saccade.training.evaluation import Evaluation

PREDICTION_ENGINES = ("auto", *PRECISIONS, ENGINE_OFF)


class Run(StoredRun):
    """A run, or any model directory or hub name: its settings, task, model, data and scores.

        run = saccade.open_run("runs/reviews")
        run.predict("What a lovely film.")          # LabelPrediction(label='positive', probability=0.98, ...)
        run.predict(frame["review"]).to_pandas()
        run.evaluate("test.csv").mistakes[:10]

    Everything is loaded on first use.
    """

    @overload
    def predict(  # pyright: ignore[reportOverlappingOverload]
        self, data: str | Mapping[str, Any] | tuple[str, ...], *, columns: Mapping[str, str] | None = None,
        batch_size: int | None = None, device: str = "cpu", engine: str = "auto", progress: bool = True, **generation: Any,
    ) -> Prediction: ...  # fmt: skip
    @overload
    def predict(
        self, data: Iterator[Any], *, columns: Mapping[str, str] | None = None,
        batch_size: int | None = None, device: str = "cpu", engine: str = "auto", progress: bool = True, **generation: Any,
    ) -> Iterator[Prediction]: ...  # fmt: skip
    @overload
    def predict(
        self, data: Any, *, columns: Mapping[str, str] | None = None,
        batch_size: int | None = None, device: str = "cpu", engine: str = "auto", progress: bool = True, **generation: Any,
    ) -> Predictions: ...  # fmt: skip
    def predict(
        self,
        data: Any,
        *,
        columns: Mapping[str, str] | None = None,
        batch_size: int | None = None,
        device: str = "cpu",
        engine: str = "auto",
        progress: bool = True,
        **generation: Any,
    ) -> Prediction | Predictions | Iterator[Prediction]:
        """Predict for one example or many.

        A string, a dictionary, a tuple of texts (for a task with several inputs) or an image is one example and returns one
        prediction. A list, a Series, a DataFrame, an Arrow table or the `pathlib.Path` of a data file returns `Predictions` in
        the order of the examples. An iterator is read lazily, in constant memory, and returns an iterator.

        Args:
            data: One example, or any collection of examples.
            columns: Columns of a table by role, such as {"text": "review"}. Default: the columns that training used.
            batch_size: Batch size in examples. Default: as many examples as fit in 8,192 tokens, sorted by length.
            device: Device of inference: cpu, cuda, mps or auto.
            engine: Optimized inference: "auto" picks the precision by measured loss, "off" runs the plain model.
            progress: Show a progress bar if prediction takes longer than two seconds.
            **generation: Fields of `GenerationConfig` for tasks that generate text, such as beams=4.
        """
        inputs = read_prediction_input(self.task, data, columns)
        predictor = _Predictor(self, self.prepare_model(engine, device), batch_size, _make_config(generation))
        if inputs.is_lazy:
            return predictor.iterate(inputs.examples)
        predictions = list(
            track(predictor.iterate(inputs.examples), progress, getattr(data, "__len__", lambda: None)())
        )
        if inputs.is_single:
            return predictions[0]
        return Predictions(predictions, labels=self.task.labels, index=inputs.index)

    def evaluate(
        self,
        data: Any = (),
        *,
        columns: Mapping[str, str] | None = None,
        engine: str = ENGINE_OFF,
        device: str = "cpu",
        progress: bool = True,
        log: Callable[[str], None] = lambda line: None,
    ) -> Evaluation:
        """Evaluate on labeled data: scores with confidence intervals, the confusion matrix and the mistakes.

        `data` is a file, several files, a DataFrame, an Arrow table or a list of dictionaries; the default is the held-out data
        of the run. The plain model is evaluated unless `engine` names a precision.
        """
        with ProgressBar(enabled=progress) as bar:
            return evaluate_run(
                self, data, columns, model=self.prepare_model(engine, device), log=log, on_progress=bar.update
            )

    def look(self, input: Any, **selection: Any) -> AttentionMaps:
        """Attention maps for one input, exact for any layer and head; see `saccade.look`."""
        return look(str(self.path), input, **selection) if self.settings else look(self.model, input, **selection)

    def prepare_model(self, engine: str = "auto", device: str = "cpu") -> Model:
        """The model on a device, optimized for inference unless the engine is "off"; each optimized model is cached."""
        if engine not in PREDICTION_ENGINES:
            raise UsageError(f"engine is {engine!r}; {suggest(engine, list(PREDICTION_ENGINES))}")
        if isinstance(self.model, FastModel):
            return self.model
        if device != "cpu":
            self.model.to(single_process_world(device).device)
        self.model.eval()
        if engine == ENGINE_OFF:
            return self.model
        if (engine, device) not in self._fast_models:
            self._fast_models[engine, device] = fast(self.model, engine)
        return self._fast_models[engine, device]

    @cached_property
    def _fast_models(self) -> dict[tuple[str, str], Model]:
        return {}

    def __repr__(self) -> str:
        return "\n".join([f"Run({str(self.path)!r})", *(f"  {name:<8} {value}" for name, value in self._facts())])

    def _repr_html_(self) -> str:
        return html_table(("", ""), self._facts(), caption=f"Run {self.path}")

    def _facts(self) -> list[tuple[str, str]]:
        """The facts that the repr shows; they are read without loading the model."""
        stored = self.settings.get("run", {})
        facts = [("task", str(stored.get("task", "none (a model without a run)")))]
        facts += (
            [("model", str(self.result["family"]) + f", {self.result['parameters']:,} parameters")]
            if self.result
            else []
        )
        facts += [("data", ", ".join(map(str, stored["data"])) or "the built-in sample")] if "data" in stored else []
        return facts + [(split, str(scores[0])) for split, scores in self.scores.items() if scores]


class _Predictor:
    """Streaming prediction: examples are read in windows of some thousands, and each window is sorted by length."""

    def __init__(self, run: Run, model: Model, batch_size: int | None, decoding: GenerationConfig | None):
        self.task, self.model, self.batch_size = run.task, model, batch_size
        self.generator: TextGenerator | None = None
        if decoding is not None:
            if self.task.needs.generates is not Generates.TARGET:
                raise UsageError(
                    f"{self.task.name} generates no text, so {_first_change(decoding)} does not apply; leave it out."
                )
            if decoding.n_best > 1:
                raise UsageError(
                    "predict returns one text per example; for n_best use saccade.generate or the command line."
                )
            self.generator = TextGenerator(decoding, model, require_tokenizer(model).target)

    def iterate(self, examples: Iterator[Example]) -> Iterator[Prediction]:
        for window in sorting_windows(examples):
            if self.task.is_text_stream:  # each text by itself, not as part of one concatenated text
                for example in window:
                    yield self._predict_stream(example)
                continue
            yield from self._predict_window(window)

    def _predict_window(self, examples: Sequence[Example]) -> Iterator[Prediction]:
        generator = self.generator
        if generator is None:
            answers, asked = predict_examples(self.task, self.model, examples, batch_size=self.batch_size)
            check_answers(answers)
            yield from (self.task.to_prediction(a, e) for a, e in zip(answers, asked, strict=True))
            return
        rows, asked = predict_examples(
            self.task,
            self.model,
            examples,
            predictor=lambda model, batch: self.task.generate(generator, batch),
            rows_per_item=generator.decoding.beams,
            batch_size=self.batch_size,
        )
        for (best, *_), _example in zip(rows, asked, strict=True):
            yield TextPrediction(best.text or "", best.score)

    def _predict_stream(self, example: Example) -> Prediction:
        answers, _ = predict_examples(self.task, self.model, [example], batch_size=self.batch_size)
        check_answers(answers)
        return self.task.to_prediction(_sum_windows(answers), example)


def _sum_windows(answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the measurements over the windows of one text.

    >>> _sum_windows([{"nats": 1.5, "tokens": 2}, {"nats": 0.5, "tokens": 1}])
    {'nats': 2.0, 'tokens': 3}
    """
    names = answers[0] if answers else ()
    return {name: sum(answer[name] for answer in answers) for name in names}


def _make_config(settings: Mapping[str, Any]) -> GenerationConfig | None:
    """Make a generation config from keywords, None without keywords; an unknown keyword raises an error with the nearest name."""
    known = [item.name for item in fields(GenerationConfig)]
    for name in settings:
        if name not in known:
            raise UsageError(
                f"predict() has no keyword {name!r}; {suggest(name, [*known, 'columns', 'batch_size', 'engine'])}"
            )
    return GenerationConfig(**settings).check() if settings else None


def _first_change(decoding: GenerationConfig) -> str:
    default = GenerationConfig()
    return next(item.name for item in fields(decoding) if getattr(decoding, item.name) != getattr(default, item.name))


def open_run(path: str | Path, task: str | None = None) -> Run:
    """Open a run, or any model directory or hub name.

    With `task`, a model that was trained for another task raises an error.
    """
    run = Run(path)
    expected = None if task is None else task_class(task)
    if expected is not None and run.task.name != expected.name:
        raise ModelError(
            f"{path} was trained for the task {run.task.name}, not {expected.name}; train a model with saccade train {task}."
        )
    return run


def evaluate(
    run: str | Path | Run,
    data: Any = (),
    *,
    columns: Mapping[str, str] | None = None,
    settings: Mapping[str, Any] | None = None,
    engine: str = ENGINE_OFF,
    device: str = "cpu",
    progress: bool = True,
    log: Callable[[str], None] = lambda line: None,
) -> Evaluation:
    """Evaluate a run, or any model directory, on labeled data; see `Run.evaluate`.

    `settings` overrides settings of the task for the evaluation, such as {"max_tokens": 1024}.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    if settings:
        opened.change_settings(settings)
    return opened.evaluate(data, columns=columns, engine=engine, device=device, progress=progress, log=log)


def predict(where: str | Path | Run, data: Any, **settings: Any) -> Prediction | Predictions | Iterator[Prediction]:
    """Predict with a run or a published model in one call: `saccade.predict("runs/reviews", texts)`; see `Run.predict`."""
    run = where if isinstance(where, Run) else open_run(where)
    return run.predict(data, **settings)
