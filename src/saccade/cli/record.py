"""Records of recipes: what was reached when, where and in how long, with the curve and a few answers; package data."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.cli.promise import took, with_promised
from saccade.cli.recipe import TABLES, Recipe, Wrong

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.models.model import Model
    from saccade.tasks.metrics import Score
    from saccade.tasks.task import Task

POINTS = 60  # of a curve
SAMPLES = 5
SHOWN = 400  # characters of an input or an answer
MACHINE = ("cpu", "cores", "system", "python", "torch")
Record = dict[str, Any]


def records() -> dict[str, Record]:
    """What the package knows to have been reached, by recipe."""
    where = files("saccade") / "recipes" / "results"
    found = [path for path in where.iterdir() if path.name.endswith(".json")] if where.is_dir() else []
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(found, key=lambda path: path.name)
    }


def mark(recipe: Recipe) -> str:
    """A hash of all that a recipe trains with; words and promises may change without it."""
    need = {**asdict(recipe.need), "columns": dict(recipe.columns)}
    facts = [recipe.task, recipe.model, need, {name: dict(recipe.tables[name]) for name in TABLES}]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def promised(recipe: Recipe, record: Record) -> dict[str, Any] | None:
    """The score of a record that its recipe promises."""
    promise = recipe.promise
    found = record["scores"].get(promise.split, []) if promise is not None else []
    return next((score for score in found if promise is not None and score["name"] == promise.score), None)


def score_of(score: Mapping[str, Any]) -> "Score":
    from saccade.tasks.metrics import Score

    return Score(**score)


def make(run: Path, recipe: Recipe) -> Record:
    """The record of a run that has ended, whose settings have to be the recipe's."""
    from saccade.studies.measure import machine
    from saccade.tasks.run_settings import read_run_settings

    result, config = run / "result.json", run / "config.toml"
    if not (result.is_file() and config.is_file()):
        raise Wrong(f"{run}: is no run that has ended; the command that began it goes on with it.")
    settings = read_run_settings(run)
    _same(run, recipe, settings)
    facts, here = json.loads(result.read_text(encoding="utf-8")), machine()
    scores = {split: [score_of(score) for score in some] for split, some in facts["scores"].items()}
    return {
        "recipe": recipe.name,
        "mark": mark(recipe),
        "scores": {
            split: [vars(score) for score in some] for split, some in with_promised(recipe, scores, run).items()
        },
        "minutes": round(took(run), 1),
        "steps": facts["steps"],
        "parameters": facts["parameters"],
        "precision": settings["train"].get("precision", "float32"),
        "examples": facts["examples"],
        "date": str(here["date"])[:10],
        "machine": {name: here[name] for name in MACHINE},
        "saccade": facts["version"],
        "curve": _curve(run, recipe),
        "samples": _samples(run, recipe),
    }


def _same(run: Path, recipe: Recipe, settings: Mapping[str, Any]) -> None:
    """A record is of the recipe, not of a run like it."""
    from saccade.training.config import left_open

    odd = [] if settings["run"]["task"] == recipe.task else [f"task is {settings['run']['task']}"]
    for table in TABLES:
        for name, value in recipe.tables[table].items():
            found = settings.get(table, {}).get(name)
            if found != value and name not in ("max_time", "vocab") and not left_open(table, name, value):
                odd.append(f"{table}.{name} is {found}, not {value}")
    odd += _dropped(recipe, settings) if recipe.need.weights else []
    if odd:
        cure = "train with the recipe as it is, or change the recipe to what was trained"
        raise Wrong(f"{run}: is not a run of the recipe {recipe.name}: {'; '.join(odd)}. {cure.capitalize()}.")


def _dropped(recipe: Recipe, settings: Mapping[str, Any]) -> list[str]:
    """What a run of stored weights dropped otherwise than they do, where its recipe says nothing of it."""
    from saccade.models.load import family_and_config
    from saccade.models.reset import loose

    _, stored = family_and_config(settings["run"]["model"])
    names = [name for name in loose(stored) if name not in recipe.tables["model"]]
    found = {name: settings["model"].get(name) for name in names}
    return [
        f"model.{n} is {value}, not {getattr(stored, n)}" for n, value in found.items() if value != getattr(stored, n)
    ]


def _curve(run: Path, recipe: Recipe) -> dict[str, list[tuple[int, float]]]:
    """Of the loss the mean of each of POINTS stretches, of the watched score every look, or as many."""
    from saccade.explain.curve import thin

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    size = max(1, -(-len(losses) // POINTS))
    groups = [losses[i : i + size] for i in range(0, len(losses), size)]
    found = {"loss": [(some[-1][0], round(sum(loss for _, loss in some) / len(some), 4)) for some in groups]}
    looks = [(row["step"], row["dev"]) for row in rows if "dev" in row]
    for name in list(looks[0][1])[:1] if looks else ():
        line = thin([(step, round(float(values[name]), 4)) for step, values in looks], POINTS)
        found[name] = [(int(step), value) for step, value in line]
    return found


def _samples(run: Path, recipe: Recipe) -> list[dict[str, str]]:
    """Five inputs and answers: those that the recipe names, or else of the held-out data."""
    from saccade.tasks.opening import open_run

    task, model = open_run(run)
    if task.verb == "generate":
        return _continued(run, task, model, recipe.inputs[:SAMPLES])
    from saccade.cli.asking import examples_of
    from saccade.tasks.answering import answers

    if recipe.inputs:
        texts = [part for line in recipe.inputs for part in line.split("\t")]
        examples: Sequence[Example] = examples_of(task, texts, (), "")
    else:
        from saccade.training.job import held_out

        whole = held_out(run)
        examples = whole[:: max(1, len(whole) // SAMPLES)][:SAMPLES]
    found, asked = answers(task, model, examples)
    return [
        {"input": _told(task, example), "answer": task.told(task.shown(answer, example))[:SHOWN]}
        for answer, example in zip(found, asked, strict=True)
    ]


def _told(task: "Task", example: "Example") -> str:
    """What was asked, in words; of a picture, where it stands. A text that was cut into words is told once."""
    known = {*task.gold_roles, "offsets"} | ({"words"} if "text" in example.values else set())
    asked = [value for name, value in example.values.items() if name not in known]
    texts = [value if isinstance(value, str) else " ".join(value) for value in asked if isinstance(value, str | list)]
    return (" | ".join(texts) if texts else f"{Path(example.file).name}, record {example.line}")[:SHOWN]


def _continued(run: Path, task: "Task", model: "Model", inputs: Sequence[str]) -> list[dict[str, str]]:
    """How a language model goes on with some beginnings, drawn as `saccade generate` draws."""
    from saccade.cli.beginning import gone_on
    from saccade.decoding.settings import Decoding
    from saccade.decoding.ways import Ways
    from saccade.tasks.records import write_records
    from saccade.tasks.task import need_tokenizer
    from saccade.tasks.validity import kind_of

    ways = Ways(Decoding().or_draw(0.8, 0.95), model, need_tokenizer(model))
    border = kind_of(task.config.check).border
    if border:
        found = write_records(model, SAMPLES, ways.choose, border=border, length=task.config.length, rules=ways.rules)
        return [{"input": "", "answer": one.text.strip()[:SHOWN]} for one in found]
    found = gone_on(inputs or ["\n"] * SAMPLES, ways, 80)
    return [{"input": line, "answer": texts[0][:SHOWN]} for line, texts, _ in found]
