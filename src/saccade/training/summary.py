"""The report of a run, made of what it left: curves, scores, what was mistaken for what, the worst answers, a few pictures."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from saccade.data import Example
from saccade.explain.looking import Seen, seen
from saccade.models.model import Model
from saccade.tasks.metrics import confusion
from saccade.tasks.task import Item, Task
from saccade.training.report import Drawn, write_report

if TYPE_CHECKING:
    from saccade.training.run import Result, Run

WORST = 20
PICTURES = 3
WINDOW = 32  # tokens of a running text in a picture


def summarise(
    work: "Run", model: Model, result: "Result", answered: dict[str, tuple[list[Any], list[Example]]]
) -> None:
    """Write report.html of a run that has ended."""
    ready = work.ready
    split = "test" if "test" in answered else "dev"
    found, examples = answered.get(split, ([], []))
    write_report(
        work.out / "report.html",
        title=f"{ready.task.name}: {work.out.name}",
        facts=_facts(work, model, result),
        metrics=[*work.lines.read(), *_speed(work.speed.read())],
        scores=[*(f"{name}: {score}" for name, scores in result.scores.items() for score in scores), *result.notes],
        confusion=_confused(ready.task, found, examples),
        examples=_worst(ready.task, found, examples),
        maps=_pictures(ready.task, model, examples),
    )


def _facts(work: "Run", model: Model, result: "Result") -> list[tuple[str, str]]:
    ready = work.ready
    count = sum(p.numel() for p in model.parameters())
    return [
        ("task", ready.task.name),
        ("data", ", ".join(ready.job.data) or f"the sample {ready.task.sample}"),
        ("training examples", f"{len(ready.splits.train.examples):,}"),
        ("held-out examples", f"{len(ready.splits.dev.examples):,}"),
        ("model", f"{model.family.name}, {count:,} parameters"),
        ("begun from", ready.job.model if ready.job.model and "/" in ready.job.model else "new weights"),
        ("steps", f"{result.steps:,} of {work.learner.horizon:,}"),
        ("ended by", result.why),
        ("minutes", f"{work.progress.minutes:.1f}"),
        ("seed", str(ready.config.seed)),
    ]


def _speed(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"step": row["step"], "tokens_per_second": row["tokens"] / row["seconds"]} for row in rows if row["seconds"]
    ]


def _confused(
    task: Task, found: Sequence[Any], examples: Sequence[Example]
) -> tuple[list[str], list[list[int]]] | None:
    """What was mistaken for what, where answers are classes."""
    pairs = [task.confused(answer, example) for answer, example in zip(found, examples, strict=True)]
    told = [pair for pair in pairs if pair is not None]
    if not told:
        return None
    counts = confusion([gold for gold, _ in told], [said for _, said in told])
    return [str(name) for name in counts.labels], [list(map(int, row)) for row in counts.counts]


def _worst(task: Task, found: Sequence[Any], examples: Sequence[Example]) -> list[dict[str, str]]:
    """Wrong answers, the surest first; for what has no sureness, in their order."""
    wrong = (task.wrong(answer, example) for answer, example in zip(found, examples, strict=True))
    rows = sorted((one for one in wrong if one is not None), key=lambda one: -one.sure)
    return [one.row for one in rows[:WORST]]


def _pictures(task: Task, model: Model, examples: Sequence[Example]) -> list[Drawn]:
    """The last attention that tells something, over the first few short examples."""
    if task.running:  # an example is a window, and a few of its tokens are enough to be read
        windows = [example["ids"] for example in examples[:PICTURES] if "ids" in example]
        items = [Item(Example({}), ids[:WINDOW], gold=ids[1 : WINDOW + 1]) for ids in windows]
    else:
        items = task.items(examples[:50], model)[:50]
    items = sorted((item for item in items if item.source.ndim == 1), key=lambda item: len(item.source))
    items = [item for item in items if 5 <= len(item.source) <= 40][:PICTURES]
    out: list[Drawn] = []
    for item in items:
        looks = seen(task, model, item)
        across = [look for look in looks if "across" in look.name]
        for look in (across or looks)[-1:]:
            out.append(_drawn(look))
    return out


def _drawn(look: Seen) -> Drawn:
    heads = look.weights.size(0)
    title = look.name if heads == 1 else f"{look.name}, mean of {heads} heads"
    return title, look.mean.tolist(), look.rows, look.columns
