"""The check of a finished run against the promise of its recipe: score and minutes, or why they cannot be compared."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saccade.recipes.recipe import Promise, Recipe

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.metrics import Score
    from saccade.tasks.records.validity import ValidityReport
    from saccade.training.prepare import Job

ScoresBySplit = Mapping[str, Sequence["Score"]]
RECORD_METRICS = ("validity", "uniqueness", "novelty")  # metrics of generated records
DEFAULT_RECORD_COUNT = 1000  # records that are generated for them
# settings of [train] that change neither the scores nor the schedule
SETTINGS_WITHOUT_EFFECT = ("device", "save_minutes", "save_every", "on_nan", "fsdp")
TIMING_FILE = "timing.json"


@dataclass(frozen=True)
class PromiseResult:
    """Whether a promise was kept (None if it cannot be compared), with a message for the user."""

    is_kept: bool | None
    message: str


def find_changed_flags(recipe: Recipe, job: "Job", overrides: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The flags that make a run differ from its recipe; `overrides` are the dotted flags, by table."""
    flags = []
    for table, settings in overrides.items():
        for name, value in settings.items():
            has_no_effect = table == "train" and name in SETTINGS_WITHOUT_EFFECT
            if not has_no_effect and recipe.tables[table].get(name) != value:
                flags.append(f"--{table}.{name.replace('_', '-')} {value}")
    if job.model != recipe.model and not recipe.requirements.weights:
        flags.append(f"--model {job.model}")
    if job.family != recipe.family:
        flags.append(f"--family {job.family}")
    if not recipe.requirements.dataset and job.data != recipe.data:
        flags.append("--data")
    return flags


def check_promise(
    recipe: Recipe, scores: ScoresBySplit, minutes: float, flags: Sequence[str] = ()
) -> PromiseResult | None:
    """The result for a finished run; None if its recipe has no promise."""
    promise = recipe.promise
    if promise is None:
        return None
    promised = f"promised   {promise.bound} on {promise.split}, within {promise.minutes:g} minutes"
    if flags:
        return PromiseResult(None, f"{promised}; not compared: the recipe was changed by {', '.join(flags)}")
    score = next((score for score in scores.get(promise.split, ()) if score.name == promise.score), None)
    if score is None:
        return PromiseResult(None, f"{promised}; not compared: there is no {promise.score} on {promise.split}")
    missed = _describe_misses(promise, score.value, minutes)
    reached = f"reached {score.value:.4g} in {minutes:.1f} minutes"
    verdict = f"NOT KEPT: {' and '.join(missed)}" if missed else "kept"
    return PromiseResult(not missed, f"{promised}; {reached}: {verdict}")


def _describe_misses(promise: Promise, value: float, minutes: float) -> list[str]:
    """
    >>> _describe_misses(Promise("bleu", 40, at_least=45), 44.0, 41.0)
    ['the score was missed', 'it took longer']
    """
    misses = [] if promise.holds_for(value) else ["the score was missed"]
    return misses + (["it took longer"] if minutes > promise.minutes else [])


def add_promised_score(recipe: Recipe, scores: ScoresBySplit, out: Path) -> dict[str, list["Score"]]:
    """The scores of a finished run with the promised one, if the task does not compute it: per word, or of generated records."""
    scores_by_split = {split: list(split_scores) for split, split_scores in scores.items()}
    promise = recipe.promise
    split_scores = scores_by_split.get(promise.split) if promise is not None else None
    if promise is None or split_scores is None or any(score.name == promise.score for score in split_scores):
        return scores_by_split
    if promise.score in RECORD_METRICS:
        split_scores += score_generated_records(out)
    if promise.score == "word_perplexity":
        from saccade.tasks.runs.run import Run

        splits = Run(out).data
        records = splits.as_dict().get(promise.split) if splits is not None else None
        if records is not None:
            split_scores += compute_word_perplexity(split_scores, records.examples)
    return scores_by_split


def compute_word_perplexity(scores: Sequence["Score"], examples: "Sequence[Example]") -> list["Score"]:
    """Perplexity per word separated by spaces, computed from the bits per byte, so that it does not depend on the tokenizer.

    It is comparable with other models of the text, unlike perplexity per token.
    """
    byte_count = sum(len(example["text"].encode()) for example in examples)
    word_count = sum(len(example["text"].split()) for example in examples)
    bits = next((score for score in scores if score.name == "bits_per_byte"), None)
    if bits is None or not word_count:
        return []
    value, low, high = (math.exp(x * math.log(2) * byte_count / word_count) for x in (bits.value, bits.low, bits.high))
    return [replace(bits, name="word_perplexity", value=value, low=low, high=high)]


def score_generated_records(out: Path, count: int = DEFAULT_RECORD_COUNT) -> list["Score"]:
    """Validity, uniqueness and novelty of records generated by a run."""
    import numpy as np

    from saccade.metrics import Score, measure
    from saccade.metrics.score import ratio

    report = _generate_and_check(out, count)
    rows = np.array([[1.0, 1.0]] * report.valid + [[0.0, 1.0]] * (report.count - report.valid))
    scores = [measure("validity", ratio, rows, signature=report.format_description)]
    fractions = {"uniqueness": (report.uniqueness, report.valid), "novelty": (report.novelty, report.unique)}
    return scores + [
        Score(name, x, x, x, n, report.format_description) for name, (x, n) in fractions.items() if x is not None
    ]


def _generate_and_check(out: Path, count: int) -> "ValidityReport":
    from saccade.decoding.config import GenerationConfig
    from saccade.decoding.generator import TextGenerator
    from saccade.engine import fast
    from saccade.tasks.base import require_tokenizer
    from saccade.tasks.records.generate import generate_records
    from saccade.tasks.records.validity import check_validity, get_record_format
    from saccade.tasks.runs.run import open_run

    run = open_run(out, "language")
    task, model = run.task, fast(run.model, "float32")  # the same output, several times as fast
    record_format, data = get_record_format(task.record_format or "none"), run.data
    generator = TextGenerator(GenerationConfig().with_default_sampling(0.8, 0.95), model, require_tokenizer(model))
    records = generate_records(
        model,
        count,
        generator.sampler,
        separator=record_format.separator or "\n",
        max_new_tokens=task.scoring_settings(model)["window"],
        processors=generator.processors,
    )
    training_texts = None if data is None else (example["text"] for example in data.train.examples)
    unfinished = {record.text for record in records if not record.is_complete}
    return check_validity([record.text for record in records], record_format, training_texts, unfinished=unfinished)


def read_elapsed_minutes(out: Path) -> float:
    """The minutes that earlier calls have spent on a run, from its newest checkpoint."""
    from saccade.training.checkpoint.store import CheckpointStore

    checkpoint = CheckpointStore(out).read_newest(warn=lambda text: None) if (out / "checkpoints").is_dir() else None
    return 0.0 if checkpoint is None else float(checkpoint.facts["progress"]["minutes"])


def write_timing(out: Path, minutes: float, result: PromiseResult | None) -> None:
    """Write the minutes and the promise result to timing.json; result.json is deterministic and has no times."""
    facts = {"minutes": round(minutes, 2), "promise": None if result is None else asdict(result)}
    (out / TIMING_FILE).write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")


def minutes_taken(out: Path) -> float:
    """The minutes of a finished run, from its first call to its report."""
    path = out / TIMING_FILE
    return json.loads(path.read_text(encoding="utf-8"))["minutes"] if path.is_file() else read_elapsed_minutes(out)
