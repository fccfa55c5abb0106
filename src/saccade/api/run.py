"""Trained runs in Python, `saccade.open_run("runs/reviews")`: prediction, evaluation, attention maps, settings and scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import Any, cast, overload

from saccade.api.inputs import as_paths, read_prediction_input
from saccade.api.prediction_file import PredictionFile, check_output_file, default_decoding, write_predictions
from saccade.audit.audit_data import AuditInputs
from saccade.audit.audit_report import AuditReport
from saccade.audit.card import Card, make_card
from saccade.audit.export import ExportFormat, export_model
from saccade.audit.gate import GateHints
from saccade.audit.run_audit import run_audit
from saccade.decoding.config import GenerationConfig
from saccade.engine import FastModel, fast
from saccade.engine.precision import PRECISIONS
from saccade.errors import DataError, ModelError, UsageError
from saccade.explain.look import look
from saccade.explain.maps import AttentionMaps
from saccade.keywords import check_keywords, raise_for_unknown_keywords
from saccade.models.model import Model
from saccade.notebook import html_table
from saccade.progress import ProgressBar, track
from saccade.setting_synonyms import GENERATION_SYNONYMS
from saccade.suggest import suggest
from saccade.tasks.interface.predictions import Prediction, Predictions
from saccade.tasks.registry import task_class
from saccade.tasks.runs.read_data import stream_task_examples, without_gold
from saccade.tasks.runs.run import Run as StoredRun
from saccade.tasks.runs.stream_predictor import StreamPredictor
from saccade.training.distributed import single_process_world
from saccade.training.evaluate import ENGINE_OFF, evaluate_run
from saccade.training.evaluation import Evaluation

PREDICT_KEYWORDS = ("columns", "batch_size", "device", "engine", "progress")
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
            engine: Optimized inference: "auto" takes the fastest precision with little loss of quality; "off" runs plain PyTorch.
            progress: Show a progress bar if prediction takes longer than two seconds.
            **generation: Fields of `GenerationConfig` for tasks that generate text, such as beams=4.
        """
        inputs = read_prediction_input(self.task, data, columns)
        predictor = StreamPredictor(
            self.task, self.prepare_model(engine, device), batch_size=batch_size, decoding=_make_config(generation)
        )
        if inputs.is_lazy:
            return predictor.iterate(inputs.examples)
        predictions = list(
            track(predictor.iterate(inputs.examples), progress, getattr(data, "__len__", lambda: None)())
        )
        if inputs.is_single:
            return predictions[0]
        return Predictions(predictions, labels=self.task.labels, index=inputs.index)

    def predict_file(
        self,
        data: str | Path | Sequence[str | Path],
        out: str | Path,
        *,
        columns: Mapping[str, str] | None = None,
        batch_size: int | None = None,
        device: str = "cpu",
        engine: str = "auto",
        on_bad_record: str = "error",
        max_bad_fraction: float = 0.01,
        progress: bool = True,
        **generation: Any,
    ) -> PredictionFile:
        """Predict for every record of a data file, and write all its columns and the prediction, in order, in constant memory.

            run.predict_file("new.csv", "predictions.csv")     # adds predicted_label and predicted_probability

        Args:
            data: A data file, or several.
            out: Output file: .csv, .tsv, .jsonl or .parquet. It is written under another name and renamed when it is complete.
            columns: Columns of the data by role, such as {"text": "review"}. Default: the columns that training used.
            batch_size: Batch size in examples. Default: as many examples as fit in 8,192 tokens, sorted by length.
            device: Device of inference: cpu, cuda, mps or auto.
            engine: Optimized inference: "auto" takes the fastest precision with little loss of quality; "off" runs plain PyTorch.
            on_bad_record: "error" stops at the first bad record, "skip" leaves bad records out.
            max_bad_fraction: Maximum fraction of bad records that may be skipped.
            progress: Show a progress bar if prediction takes longer than two seconds.
            **generation: Fields of `GenerationConfig` for tasks that generate text, such as beams=4.
        """
        paths = [str(path) for path in ([data] if isinstance(data, str | Path) else data)]
        check_output_file(out, paths)
        decoding = _make_config(generation) or default_decoding(self.task)
        model = self.prepare_model(engine, device)
        rejects: list[DataError] = []
        examples = stream_task_examples(
            self.task,
            paths,
            self.task.input_roles(paths),
            without_gold(self.task, columns),
            on_bad_record=on_bad_record,
            max_bad_fraction=max_bad_fraction,
            rejects=rejects,
        )
        predictor = StreamPredictor(self.task, model, batch_size=batch_size, decoding=decoding)
        return write_predictions(out, predictor, examples, data=paths, rejects=rejects, progress=progress)

    @check_keywords
    def evaluate(
        self,
        data: Any = (),
        *,
        columns: Mapping[str, str] | None = None,
        other: str | Path | Run | None = None,
        engine: str = ENGINE_OFF,
        device: str = "cpu",
        progress: bool = True,
        log: Callable[[str], None] = lambda line: None,
    ) -> Evaluation:
        """Evaluate on labeled data: scores with confidence intervals, the confusion matrix and the mistakes.

            evaluation = run.evaluate("test.csv")
            print(evaluation.report())
            evaluation.mistakes.save("mistakes.csv")

        Args:
            data: A file, several files, a DataFrame, an Arrow table or a list of dictionaries. Default: the held-out data of the
                run.
            columns: Columns of a table by role, such as {"text": "review"}. Default: the columns that training used.
            other: Another run for the same task, which is evaluated on the same examples: `comparisons` of the result say by a
                paired bootstrap which of the two is better, and by how much.
            engine: "off" evaluates the plain model; "auto", "int8", "float16" or "float32" the optimized one.
            device: Device of inference: cpu, cuda, mps or auto.
            progress: Show a progress bar if evaluation takes longer than two seconds.
            log: Called with notes about recognized columns, unlabeled examples and unknown labels.
        """
        against = open_run(other) if isinstance(other, str | Path) else other
        with ProgressBar(enabled=progress) as bar:
            return evaluate_run(
                self,
                data,
                columns,
                other=against,
                prepare=lambda run: cast(Run, run).prepare_model(engine, device),
                log=log,
                on_progress=bar.update,
            )

    def look(self, input: Any, **selection: Any) -> AttentionMaps:
        """Attention maps for one input, exact for any layer and head; see `saccade.look`."""
        return look(str(self.path), input, **selection) if self.settings else look(self.model, input, **selection)

    @check_keywords
    def card(self, *, init: bool = False, check: bool = False, force: bool = False) -> Card:
        """Write the model card of the run, with all that the run knows, and return it.

        Args:
            init: Also write statements.toml, with the questions that only a person can answer.
            check: Write nothing; `missing` of the card says what it still lacks for an export.
            force: Overwrite a card or statements that a person has edited.
        """
        return make_card(self.path, init=init, check=check, force=force)

    @check_keywords
    def audit(
        self,
        suite: str | Sequence[str] = (),
        *,
        data: str | Path | Sequence[str | Path] = (),
        columns: Mapping[str, str] | None = None,
        group_by: str = "",
        test_sentences: str | Path | Sequence[str | Path] = (),
        bad_words: str | Path = "",
        regard_classifier: str | Path = "",
        compare_to: str | Path = "",
        progress: bool = True,
    ) -> AuditReport:
        """Run the bias and fairness audits that apply to the task, and write the results to audit.json of the run.

        Args:
            suite: Suites to run, such as "data" or "counterfactual"; default: all that apply.
            data: Your own labeled data; default: the data of the run.
            columns: Columns of the data by role, such as {"text": "review"}; default: those that training used.
            group_by: Column for a disaggregated evaluation.
            test_sentences: Your own test sentences, in the format of the suite, such as CrowS-Pairs or StereoSet.
            bad_words: File of words that are never generated, in suites of generated text.
            regard_classifier: A run with the labels negative, neutral and positive; default: the built-in classifier.
            compare_to: An earlier audit to compare with: an audited run or its audit.json.
            progress: Show a progress bar if a suite takes longer than two seconds.
        """
        inputs = AuditInputs(
            as_paths(data),
            columns or {},
            group_by,
            as_paths(test_sentences),
            str(bad_words),
            str(regard_classifier),
            str(compare_to),
        )
        return run_audit(self.path, (suite,) if isinstance(suite, str) else suite, inputs, progress=progress)

    @check_keywords
    def export(
        self,
        directory: str | Path,
        *,
        format: ExportFormat = "auto",
        head: str | None = None,
        unaudited: str | None = None,
    ) -> Path:
        """Export the model with its card as a directory that other programs load, and return the directory.

        Without statements and current audits, `ExportRefused` says what is missing and which calls satisfy it.

        Args:
            directory: Output directory, which must not exist yet.
            format: "hf" requires the published format, which transformers loads; "auto" takes saccade's own where there is none.
            head: Head to export with the body: lm, label, tag or span; body exports none. Default: the head of the model.
            unaudited: Reason to export without audit or statements; the model card states it.
        """
        hints = GateHints.for_python(directory)
        return export_model(self.path, directory, format=format, head=head, unaudited=unaudited, hints=hints).directory

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


def _make_config(settings: Mapping[str, Any]) -> GenerationConfig | None:
    """Make a generation config from keywords, None without keywords; an unknown keyword raises an error with the nearest name."""
    known = [item.name for item in fields(GenerationConfig)]
    raise_for_unknown_keywords("predict", settings, [*PREDICT_KEYWORDS, *known], GENERATION_SYNONYMS)
    return GenerationConfig(**settings).check() if settings else None


@check_keywords
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


@check_keywords
def evaluate(
    run: str | Path | Run,
    data: Any = (),
    *,
    columns: Mapping[str, str] | None = None,
    other: str | Path | Run | None = None,
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
    return opened.evaluate(data, columns=columns, other=other, engine=engine, device=device, progress=progress, log=log)


def predict(where: str | Path | Run, data: Any, **settings: Any) -> Prediction | Predictions | Iterator[Prediction]:
    """Predict with a run or a published model in one call: `saccade.predict("runs/reviews", texts)`; see `Run.predict`."""
    run = where if isinstance(where, Run) else open_run(where)
    return cast(Prediction | Predictions | Iterator[Prediction], run.predict(data, **settings))
