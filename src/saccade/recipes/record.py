"""Records of recipes, stored as package data: scores, time, date and machine of a run, with learning curves and samples."""

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

MAX_CURVE_POINTS = 60  # points per learning curve
MAX_SAMPLES = 5
MAX_SAMPLE_CHARS = 400  # characters of an input or a prediction
MAX_SAMPLE_TOKENS = 80  # generated tokens per input of a language model
MACHINE_KEYS = ("cpu", "cores", "system", "python", "torch")
Record = dict[str, Any]


def load_records() -> dict[str, Record]:
    """All stored records, by recipe."""
    folder = files("saccade") / "recipes" / "results"
    paths = [path for path in folder.iterdir() if path.name.endswith(".json")] if folder.is_dir() else []
    return {
        path.name.removesuffix(".json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(paths, key=lambda path: path.name)
    }


def recipe_digest(recipe: Recipe) -> str:
    """A hash of everything that affects the training of a recipe; descriptions and promises do not."""
    requirements = {**asdict(recipe.requirements), "columns": dict(recipe.columns)}
    facts = [
        recipe.task,
        recipe.model or recipe.family,
        requirements,
        {name: dict(recipe.tables[name]) for name in SETTING_TABLES},
    ]
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def find_promised_score(recipe: Recipe, record: Record) -> dict[str, Any] | None:
    """The score in a record that its recipe promises."""
    promise = recipe.promise
    scores = record["scores"].get(promise.split, []) if promise is not None else []
    return next((score for score in scores if promise is not None and score["name"] == promise.score), None)


def parse_score(score: Mapping[str, Any]) -> "Score":
    from saccade.metrics import Score

    return Score(**score)


def make_record(run: Path, recipe: Recipe) -> Record:
    """The record of a finished run, whose settings must be those of the recipe."""
    from saccade.system import describe_machine
    from saccade.tasks.runs.run import Run

    finished_run = Run(run)
    result, settings, machine = finished_run.result, finished_run.settings, describe_machine()
    if not (result and settings):
        raise UsageError(f"{run} is not a finished run; run the same `saccade train` command to resume it.")
    _check_same_settings(run, recipe, settings)
    return {
        "recipe": recipe.name,
        "digest": recipe_digest(recipe),
        "scores": {
            split: [vars(score) for score in scores]
            for split, scores in add_promised_score(recipe, finished_run.scores, run).items()
        },
        "minutes": round(minutes_taken(run), 1),
        "steps": result["steps"],
        "parameters": result["parameters"],
        "precision": settings["train"].get("precision", "float32"),
        "examples": result["examples"],
        "date": str(machine["date"])[:10],
        "machine": {name: machine[name] for name in MACHINE_KEYS},
        "saccade": result["version"],
        "curve": _read_curves(run, recipe),
        "samples": _collect_samples(run, recipe),
    }


def _check_same_settings(run: Path, recipe: Recipe, settings: Mapping[str, Any]) -> None:
    """Raise an error for a run whose settings differ from the recipe."""
    from saccade.training.config import is_auto

    differences = [] if settings["run"]["task"] == recipe.task else [f"task is {settings['run']['task']}"]
    for table in SETTING_TABLES:
        for name, value in recipe.tables[table].items():
            value_in_run = settings.get(table, {}).get(name)
            if value_in_run != value and name not in ("max_minutes", "vocab") and not is_auto(table, name, value):
                differences.append(f"{table}.{name} is {value_in_run}, not {value}")
    differences += _list_dropout_changes(recipe, settings) if recipe.requirements.weights else []
    if differences:
        cure = "Train with the unchanged recipe, or change the recipe to the settings of the run."
        raise UsageError(f"{run} is not a run of the recipe {recipe.name}: {'; '.join(differences)}. {cure}")


def _list_dropout_changes(recipe: Recipe, settings: Mapping[str, Any]) -> list[str]:
    """Settings, such as dropout, in which a fine-tuned run differs from its pretrained model though the recipe is silent."""
    from saccade.models.load import read_family_and_config
    from saccade.models.override import overridable_fields

    _, stored = read_family_and_config(settings["run"]["model"])
    names = [name for name in overridable_fields(stored) if name not in recipe.tables["model"]]
    values = {name: settings["model"].get(name) for name in names}
    return [
        f"model.{n} is {value}, not {getattr(stored, n)}" for n, value in values.items() if value != getattr(stored, n)
    ]


def _read_curves(run: Path, recipe: Recipe) -> dict[str, list[tuple[int, float]]]:
    """The learning curves: the loss, averaged over intervals, and the dev score of each evaluation, downsampled."""
    from saccade.render.charts import downsample

    rows = [json.loads(points) for points in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    size = max(1, -(-len(losses) // MAX_CURVE_POINTS))
    groups = [losses[i : i + size] for i in range(0, len(losses), size)]
    curves = {"loss": [(group[-1][0], round(sum(loss for _, loss in group) / len(group), 4)) for group in groups]}
    evaluations = [(row["step"], row["dev"]) for row in rows if "dev" in row]
    for name in list(evaluations[0][1])[:1] if evaluations else ():
        points = downsample([(step, round(float(values[name]), 4)) for step, values in evaluations], MAX_CURVE_POINTS)
        curves[name] = [(int(step), value) for step, value in points]
    return curves


def _collect_samples(run: Path, recipe: Recipe) -> list[dict[str, str]]:
    """Predictions for the inputs of the recipe, or else for held-out examples."""
    from saccade.tasks.runs.run import open_run

    finished_run = open_run(run)
    task, model = finished_run.task, finished_run.model
    if task.verb == "generate":
        return _continue_inputs(run, task, model, recipe.inputs[:MAX_SAMPLES])
    from saccade.data import Example
    from saccade.tasks.predict import predict

    if recipe.inputs:
        examples: Sequence[Example] = [Example(task.make_record(*line.split("\t"))) for line in recipe.inputs]
    else:
        held_out = finished_run.held_out
        examples = held_out[:: max(1, len(held_out) // MAX_SAMPLES)][:MAX_SAMPLES]
    answers, answered = predict(task, model, examples)
    return [
        {
            "input": _format_input(task, example),
            "answer": str(task.to_prediction(answer, example))[:MAX_SAMPLE_CHARS],
        }
        for answer, example in zip(answers, answered, strict=True)
    ]


def _format_input(task: "Task", example: "Example") -> str:
    """The input of an example as text; for an image its file and line. A text that was split into words is not repeated."""
    excluded = {*task.gold_roles, "offsets"} | ({"words"} if "text" in example.values else set())
    values = [value for name, value in example.values.items() if name not in excluded]
    texts = [value if isinstance(value, str) else " ".join(value) for value in values if isinstance(value, str | list)]
    return (" | ".join(texts) if texts else f"{Path(example.file).name}, record {example.line}")[:MAX_SAMPLE_CHARS]


def _continue_inputs(run: Path, task: "Task", model: "Model", inputs: Sequence[str]) -> list[dict[str, str]]:
    """Continuations of some prompts by a language model, sampled as in `saccade generate`."""
    from saccade.decoding.config import GenerationConfig
    from saccade.decoding.generate_text import generate
    from saccade.decoding.generator import TextGenerator
    from saccade.tasks.base import require_tokenizer
    from saccade.tasks.records.generate import generate_records
    from saccade.tasks.records.validity import get_record_format

    decoding = GenerationConfig().with_default_sampling(0.8, 0.95)
    separator = get_record_format(task.config.record_format).separator
    if separator:
        generator = TextGenerator(decoding, model, require_tokenizer(model))
        records = generate_records(
            model,
            MAX_SAMPLES,
            generator.sampler,
            separator=separator,
            max_new_tokens=task.token_limit,
            processors=generator.processors,
        )
        return [{"input": "", "answer": record.text.strip()[:MAX_SAMPLE_CHARS]} for record in records]
    prompts = list(inputs) or ["\n"] * MAX_SAMPLES
    texts = generate(model, prompts, decoding=decoding, max_new_tokens=MAX_SAMPLE_TOKENS)
    return [{"input": prompt, "answer": text[:MAX_SAMPLE_CHARS]} for prompt, text in zip(prompts, texts, strict=True)]
