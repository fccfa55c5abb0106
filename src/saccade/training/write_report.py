"""Collects the content of report.html from a finished run: facts, curves, scores, confusions, worst examples, attention maps."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.explain.look import collect_attention_maps
from saccade.explain.maps import AttentionMap
from saccade.models.model import Model
from saccade.render.charts import Point
from saccade.tasks.base import Item, Task
from saccade.tasks.classification.calibration import Calibration
from saccade.training.report import HeatmapData, write_report

if TYPE_CHECKING:
    from saccade.training.run import RunResult, Trainer

MAX_WORST_EXAMPLES = 20
MIN_BIN_EXAMPLES = 5  # predictions in a bin of the reliability diagram; the accuracy of fewer says nothing
MAX_MAP_EXAMPLES = 3
MAX_WINDOW_TOKENS = 32  # tokens of a window of running text in an attention map


def write_run_report(
    trainer: "Trainer", model: Model, result: "RunResult", answered: dict[str, tuple[list[Any], list[Example]]]
) -> None:
    """Write report.html of a finished run."""
    prepared_run = trainer.prepared_run
    split = "test" if "test" in answered else "dev"
    answers, examples = answered.get(split, ([], []))
    write_report(
        trainer.out / "report.html",
        title=f"{prepared_run.task.name}: {trainer.out.name}",
        facts=_run_facts(trainer, model, result),
        metrics=[*trainer.metrics_log.read(), *_throughput_rows(trainer.speed_log.read())],
        warnings=result.warnings,
        scores=[*result.score_lines(), *(note for note in result.notes if note not in result.warnings)],
        calibration_curves=_calibration_curves(result.calibration),
        confusion=_count_confusions(prepared_run.task, answers, examples),
        examples=_worst_examples(prepared_run.task, answers, examples),
        maps=_attention_heatmaps(prepared_run.task, model, examples),
    )


def _run_facts(trainer: "Trainer", model: Model, result: "RunResult") -> list[tuple[str, str]]:
    prepared_run, job = trainer.prepared_run, trainer.prepared_run.job
    count = sum(p.numel() for p in model.parameters())
    return [
        ("task", prepared_run.task.name),
        ("data", ", ".join(job.data) or f"sample dataset {prepared_run.task.sample}"),
        ("training examples", f"{len(prepared_run.splits.train.examples):,}"),
        (
            "held-out examples",
            ", ".join(
                f"{len(table.examples):,} {name}"
                for name, table in prepared_run.splits.as_dict().items()
                if name != "train"
            ),
        ),
        ("model", f"{model.family.name}, {count:,} parameters"),
        ("initial weights", job.model or "random"),
        ("steps", f"{result.steps:,} of {trainer.learner.total_steps:,}"),
        ("stop reason", result.stop_reason),
        ("minutes", f"{trainer.progress.minutes:.1f}"),
        ("seed", str(prepared_run.config.seed)),
    ]


def _calibration_curves(calibration: Calibration | None) -> dict[str, list[Point]]:
    """The accuracy by confidence before and after calibration."""
    if calibration is None:
        return {}
    curves = {"before calibration": calibration.before, "after calibration": calibration.after}
    return {
        name: [
            (float(x), float(y))
            for x, y, count in zip(one.confidence, one.accuracy, one.counts, strict=True)
            if count >= MIN_BIN_EXAMPLES
        ]
        for name, one in curves.items()
    }


def _throughput_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": row["step"], "tokens_per_second": row["tokens"] / row["seconds"]} for row in rows if row["seconds"]
    ]


def _count_confusions(
    task: Task, answers: Sequence[Any], examples: Sequence[Example]
) -> tuple[list[str], list[list[int]]] | None:
    """Class names and confusion counts; None if the predictions are not classes."""
    confusion = task.confusion_matrix(answers, examples)
    return None if confusion is None else ([str(name) for name in confusion.labels], confusion.counts.tolist())


def _worst_examples(task: Task, answers: Sequence[Any], examples: Sequence[Example]) -> list[dict[str, str]]:
    """Wrong predictions, most confident or of the largest error first; in their original order if the task has no confidence."""
    wrong = (task.error_row(answer, example) for answer, example in zip(answers, examples, strict=True))
    rows = sorted((row for row in wrong if row is not None), key=lambda row: -row.sort_key)
    return [row.cells for row in rows[:MAX_WORST_EXAMPLES]]


def _attention_heatmaps(task: Task, model: Model, examples: Sequence[Example]) -> list[HeatmapData]:
    """Attention maps of the last layer, cross-attention if there is any, for a few short examples."""
    if task.is_text_stream:  # an example is a window of the text; its first tokens are enough for a map
        windows = [example["ids"] for example in examples[:MAX_MAP_EXAMPLES] if "ids" in example]
        items = [Item(Example({}), ids[:MAX_WINDOW_TOKENS], gold=ids[1 : MAX_WINDOW_TOKENS + 1]) for ids in windows]
    else:
        items = task.encode(examples[:50], model)[:50]
    items = sorted((item for item in items if item.source.ndim == 1), key=lambda item: len(item.source))
    items = [item for item in items if 5 <= len(item.source) <= 40][:MAX_MAP_EXAMPLES]
    out: list[HeatmapData] = []
    for item in items:
        looks = collect_attention_maps(task, model, item)
        cross = [look for look in looks if "across" in look.name]
        for look in (cross or looks)[-1:]:
            out.append(_heatmap_data(look))
    return out


def _heatmap_data(look: AttentionMap) -> HeatmapData:
    heads = look.weights.size(0)
    title = look.name if heads == 1 else f"{look.name}, mean of {heads} heads"
    return title, look.mean.tolist(), look.query_names, look.key_names
