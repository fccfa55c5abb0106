"""Records of recipes: what was reached when, where and in how long, with the curve and a few answers; package data."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.errors import UsageError
from saccade.recipes.promise import add_promised_score, minutes_taken
from saccade.recipes.recipe import SETTING_TABLES, Recipe

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.metrics import Score
    from saccade.models.model import Model
    from saccade.tasks.base import Task

MAX_CURVE_POINTS = 60  # of a curve
MAX_SAMPLES = 5
MAX_SAMPLE_CHARS = 400  # characters of an input or an answer
MAX_SAMPLE_TOKENS = 80  # tokens that continue an input of a language model
MACHINE_KEYS = ("cpu", "cores", "system", "python", "torch")
Record = dict[str, Any]


def load_records() -> dict[str, Record]:
    """What the package knows to have been reached, by recipe."""
    where = files("saccade") / "recipes" / "results"
    found = [path for path in where.iterdir() if path.name.endswith(".json")] if where.is_dir() else []
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(found, key=lambda path: path.name)
    }


def recipe_digest(recipe: Recipe) -> str:
    """A hash of all that a recipe trains with; words and promises may change without it."""
    need = {**asdict(recipe.requirements), "columns": dict(recipe.columns)}
    facts = [recipe.task, recipe.model, need, {name: dict(recipe.tables[name]) for name in SETTING_TABLES}]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def find_promised_score(recipe: Recipe, record: Record) -> dict[str, Any] | None:
    """The score of a record that its recipe promises."""
    promise = recipe.promise
    found = record["scores"].get(promise.split, []) if promise is not None else []
    return next((score for score in found if promise is not None and score["name"] == promise.score), None)


def parse_score(score: Mapping[str, Any]) -> "Score":
    from saccade.metrics import Score

    return Score(**score)


def make_record(run: Path, recipe: Recipe) -> Record:
    """The record of a run that has ended, whose settings have to be the recipe's."""
    from saccade.system import describe_machine
    from saccade.tasks.runs.run import Run

    found = Run(run)
    facts, settings, here = found.result, found.settings, describe_machine()
    if not (facts and settings):
        raise UsageError(f"{run}: is no run that has ended; the command that began it goes on with it.")
    _check_same_settings(run, recipe, settings)
    return {
        "recipe": recipe.name,
        "digest": recipe_digest(recipe),
        "scores": {
            split: [vars(score) for score in some]
            for split, some in add_promised_score(recipe, found.scores, run).items()
        },
        "minutes": round(minutes_taken(run), 1),
        "steps": facts["steps"],
        "parameters": facts["parameters"],
        "precision": settings["train"].get("precision", "float32"),
        "examples": facts["examples"],
        "date": str(here["date"])[:10],
        "machine": {name: here[name] for name in MACHINE_KEYS},
        "saccade": facts["version"],
        "curve": _read_curves(run, recipe),
        "samples": _collect_samples(run, recipe),
    }


def _check_same_settings(run: Path, recipe: Recipe, settings: Mapping[str, Any]) -> None:
    """A record is of the recipe, not of a run like it."""
    from saccade.training.config import is_auto

    odd = [] if settings["run"]["task"] == recipe.task else [f"task is {settings['run']['task']}"]
    for table in SETTING_TABLES:
        for name, value in recipe.tables[table].items():
            found = settings.get(table, {}).get(name)
            if found != value and name not in ("max_minutes", "vocab") and not is_auto(table, name, value):
                odd.append(f"{table}.{name} is {found}, not {value}")
    odd += _list_dropout_changes(recipe, settings) if recipe.requirements.weights else []
    if odd:
        cure = "train with the recipe as it is, or change the recipe to what was trained"
        raise UsageError(f"{run}: is not a run of the recipe {recipe.name}: {'; '.join(odd)}. {cure.capitalize()}.")


def _list_dropout_changes(recipe: Recipe, settings: Mapping[str, Any]) -> list[str]:
    """What a run of stored weights dropped otherwise than they do, where its recipe says nothing of it."""
    from saccade.models.load import read_family_and_config
    from saccade.models.override import overridable_fields

    _, stored = read_family_and_config(settings["run"]["model"])
    names = [name for name in overridable_fields(stored) if name not in recipe.tables["model"]]
    found = {name: settings["model"].get(name) for name in names}
    return [
        f"model.{n} is {value}, not {getattr(stored, n)}" for n, value in found.items() if value != getattr(stored, n)
    ]


def _read_curves(run: Path, recipe: Recipe) -> dict[str, list[tuple[int, float]]]:
    """Of the loss the mean of each of POINTS stretches, of the watched score every look, or as many."""
    from saccade.render.charts import downsample

    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    size = max(1, -(-len(losses) // MAX_CURVE_POINTS))
    groups = [losses[i : i + size] for i in range(0, len(losses), size)]
    found = {"loss": [(some[-1][0], round(sum(loss for _, loss in some) / len(some), 4)) for some in groups]}
    looks = [(row["step"], row["dev"]) for row in rows if "dev" in row]
    for name in list(looks[0][1])[:1] if looks else ():
        line = downsample([(step, round(float(values[name]), 4)) for step, values in looks], MAX_CURVE_POINTS)
        found[name] = [(int(step), value) for step, value in line]
    return found


def _collect_samples(run: Path, recipe: Recipe) -> list[dict[str, str]]:
    """Five inputs and answers: those that the recipe names, or else of the held-out data."""
    from saccade.tasks.runs.run import open_run

    found = open_run(run)
    task, model = found.task, found.model
    if task.verb == "generate":
        return _continue_inputs(run, task, model, recipe.inputs[:MAX_SAMPLES])
    from saccade.data import Example
    from saccade.tasks.predict import predict

    if recipe.inputs:
        examples: Sequence[Example] = [Example(task.make_record(*line.split("\t"))) for line in recipe.inputs]
    else:
        whole = found.held_out
        examples = whole[:: max(1, len(whole) // MAX_SAMPLES)][:MAX_SAMPLES]
    said, asked = predict(task, model, examples)
    return [
        {
            "input": _format_input(task, example),
            "answer": str(task.to_prediction(answer, example))[:MAX_SAMPLE_CHARS],
        }
        for answer, example in zip(said, asked, strict=True)
    ]


def _format_input(task: "Task", example: "Example") -> str:
    """What was asked, in words; of a picture, where it stands. A text that was cut into words is told once."""
    known = {*task.gold_roles, "offsets"} | ({"words"} if "text" in example.values else set())
    asked = [value for name, value in example.values.items() if name not in known]
    texts = [value if isinstance(value, str) else " ".join(value) for value in asked if isinstance(value, str | list)]
    return (" | ".join(texts) if texts else f"{Path(example.file).name}, record {example.line}")[:MAX_SAMPLE_CHARS]


def _continue_inputs(run: Path, task: "Task", model: "Model", inputs: Sequence[str]) -> list[dict[str, str]]:
    """How a language model goes on with some beginnings, drawn as `saccade generate` draws."""
    from saccade.decoding.config import GenerationConfig
    from saccade.decoding.generator import TextGenerator
    from saccade.decoding.texts import generate
    from saccade.tasks.base import require_tokenizer
    from saccade.tasks.records.generate import generate_records
    from saccade.tasks.records.validity import get_record_format

    decoding = GenerationConfig().with_default_sampling(0.8, 0.95)
    separator = get_record_format(task.config.record_format).separator
    if separator:
        generator = TextGenerator(decoding, model, require_tokenizer(model))
        found = generate_records(
            model,
            MAX_SAMPLES,
            generator.sampler,
            separator=separator,
            max_new_tokens=task.token_limit,
            processors=generator.processors,
        )
        return [{"input": "", "answer": one.text.strip()[:MAX_SAMPLE_CHARS]} for one in found]
    prompts = list(inputs) or ["\n"] * MAX_SAMPLES
    texts = generate(model, prompts, decoding=decoding, max_new_tokens=MAX_SAMPLE_TOKENS)
    return [{"input": prompt, "answer": text[:MAX_SAMPLE_CHARS]} for prompt, text in zip(prompts, texts, strict=True)]
