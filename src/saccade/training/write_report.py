"""The report of a run, made of what it left: curves, scores, what was mistaken for what, the worst answers, a few pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.explain.look import collect_attention_maps
from saccade.explain.maps import AttentionMap
from saccade.metrics import confusion_matrix
from saccade.models.model import Model
from saccade.tasks.base import Item, Task
from saccade.training.report import HeatmapData, write_report

if TYPE_CHECKING:
    from saccade.training.run import RunResult, Trainer

MAX_WORST_EXAMPLES = 20
MAX_MAP_EXAMPLES = 3
MAX_WINDOW_TOKENS = 32  # tokens of a running text in a picture


def write_run_report(
    trainer: "Trainer", model: Model, result: "RunResult", answered: dict[str, tuple[list[Any], list[Example]]]
) -> None:
    """Write report.html of a run that has ended."""
    ready = trainer.prepared_run
    split = "test" if "test" in answered else "dev"
    found, examples = answered.get(split, ([], []))
    write_report(
        trainer.out / "report.html",
        title=f"{ready.task.name}: {trainer.out.name}",
        facts=_run_facts(trainer, model, result),
        metrics=[*trainer.metrics_log.read(), *_throughput_rows(trainer.speed_log.read())],
        scores=[*(f"{name}: {score}" for name, scores in result.scores.items() for score in scores), *result.notes],
        confusion=_count_confusions(ready.task, found, examples),
        examples=_worst_examples(ready.task, found, examples),
        maps=_attention_heatmaps(ready.task, model, examples),
    )


def _run_facts(trainer: "Trainer", model: Model, result: "RunResult") -> list[tuple[str, str]]:
    ready = trainer.prepared_run
    count = sum(p.numel() for p in model.parameters())
    return [
        ("task", ready.task.name),
        ("data", ", ".join(ready.job.data) or f"the sample {ready.task.sample}"),
        ("training examples", f"{len(ready.splits.train.examples):,}"),
        ("held-out examples", f"{len(ready.splits.dev.examples):,}"),
        ("model", f"{model.family.name}, {count:,} parameters"),
        ("begun from", ready.job.model if ready.job.model and "/" in ready.job.model else "new weights"),
        ("steps", f"{result.steps:,} of {trainer.learner.total_steps:,}"),
        ("ended by", result.stop_reason),
        ("minutes", f"{trainer.progress.minutes:.1f}"),
        ("seed", str(ready.config.seed)),
    ]


def _throughput_rows(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": row["step"], "tokens_per_second": row["tokens"] / row["seconds"]} for row in rows if row["seconds"]
    ]


def _count_confusions(
    task: Task, found: Sequence[Any], examples: Sequence[Example]
) -> tuple[list[str], list[list[int]]] | None:
    """What was mistaken for what, where answers are classes."""
    pairs = [task.confusion_pair(answer, example) for answer, example in zip(found, examples, strict=True)]
    told = [pair for pair in pairs if pair is not None]
    if not told:
        return None
    counts = confusion_matrix([gold for gold, _ in told], [said for _, said in told])
    return [str(name) for name in counts.labels], [list(map(int, row)) for row in counts.counts]


def _worst_examples(task: Task, found: Sequence[Any], examples: Sequence[Example]) -> list[dict[str, str]]:
    """Wrong answers, the surest first; for what has no sureness, in their order."""
    wrong = (task.error_row(answer, example) for answer, example in zip(found, examples, strict=True))
    rows = sorted((one for one in wrong if one is not None), key=lambda one: -one.confidence)
    return [one.cells for one in rows[:MAX_WORST_EXAMPLES]]


def _attention_heatmaps(task: Task, model: Model, examples: Sequence[Example]) -> list[HeatmapData]:
    """The last attention that tells something, over the first few short examples."""
    if task.is_text_stream:  # an example is a window, and a few of its tokens are enough to be read
        windows = [example["ids"] for example in examples[:MAX_MAP_EXAMPLES] if "ids" in example]
        items = [Item(Example({}), ids[:MAX_WINDOW_TOKENS], gold=ids[1 : MAX_WINDOW_TOKENS + 1]) for ids in windows]
    else:
        items = task.encode(examples[:50], model)[:50]
    items = sorted((item for item in items if item.source.ndim == 1), key=lambda item: len(item.source))
    items = [item for item in items if 5 <= len(item.source) <= 40][:MAX_MAP_EXAMPLES]
    out: list[HeatmapData] = []
    for item in items:
        looks = collect_attention_maps(task, model, item)
        across = [look for look in looks if "across" in look.name]
        for look in (across or looks)[-1:]:
            out.append(_heatmap_data(look))
    return out


def _heatmap_data(look: AttentionMap) -> HeatmapData:
    heads = look.weights.size(0)
    title = look.name if heads == 1 else f"{look.name}, mean of {heads} heads"
    return title, look.mean.tolist(), look.query_names, look.key_names
