"""Did a run keep what its recipe promises? A score and minutes, each beside the promised one, or why they cannot be compared."""

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

ScoresBySplit = Mapping[str, Sequence["Score"]]  # by split
RECORD_METRICS = ("validity", "uniqueness", "novelty")  # of records that the model writes
DEFAULT_RECORD_COUNT = 1000  # of those
SETTINGS_WITHOUT_EFFECT = (
    "device",
    "save_minutes",
    "save_every",
    "on_nan",
    "fsdp",
)  # settings that change neither score nor schedule
TIMING_FILE = "timing.json"


@dataclass(frozen=True)
class PromiseResult:
    """Whether a promise was kept, None where that cannot be said, and a line for a person."""

    is_kept: bool | None
    message: str


def find_changed_flags(recipe: Recipe, job: "Job", overrides: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The flags of a training that make it a different run than its recipe; `overrides` are the dotted flags, by table."""
    found = []
    for table, settings in overrides.items():
        for name, value in settings.items():
            quiet = table == "train" and name in SETTINGS_WITHOUT_EFFECT
            if not quiet and recipe.tables[table].get(name) != value:
                found.append(f"--{table}.{name.replace('_', '-')} {value}")
    if recipe.model and job.model != recipe.model:
        found.append(f"--model {job.model}")
    if not recipe.requirements.dataset and job.data != recipe.data:
        found.append("--data")
    return found


def check_promise(
    recipe: Recipe, scores: ScoresBySplit, minutes: float, flags: Sequence[str] = ()
) -> PromiseResult | None:
    """What to say of a finished run; None where its recipe promises nothing."""
    promise = recipe.promise
    if promise is None:
        return None
    wanted = f"promised   {promise.bound} on {promise.split}, within {promise.minutes:g} minutes"
    if flags:
        return PromiseResult(None, f"{wanted}; not compared: {', '.join(flags)} is not as in the recipe {recipe.name}")
    score = next((score for score in scores.get(promise.split, ()) if score.name == promise.score), None)
    if score is None:
        return PromiseResult(None, f"{wanted}; not compared: there is no {promise.score} on {promise.split}")
    missed = _describe_misses(promise, score.value, minutes)
    reached = f"reached {score.value:.4g} in {minutes:.1f} minutes"
    verdict = f"NOT KEPT: {' and '.join(missed)}" if missed else "kept"
    return PromiseResult(not missed, f"{wanted}; {reached}: {verdict}")


def _describe_misses(promise: Promise, value: float, minutes: float) -> list[str]:
    """
    >>> _describe_misses(Promise("bleu", 40, at_least=45), 44.0, 41.0)
    ['the score falls short', 'it took longer']
    """
    found = [] if promise.holds_for(value) else ["the score falls short"]
    return found + (["it took longer"] if minutes > promise.minutes else [])


def add_promised_score(recipe: Recipe, scores: ScoresBySplit, out: Path) -> dict[str, list["Score"]]:
    """The scores of a finished run, and the promised one where the task has it not: of words, or of records it writes."""
    found = {split: list(some) for split, some in scores.items()}
    promise = recipe.promise
    some = found.get(promise.split) if promise is not None else None
    if promise is None or some is None or any(score.name == promise.score for score in some):
        return found
    if promise.score in RECORD_METRICS:
        some += score_generated_records(out)
    if promise.score == "word_perplexity":
        from saccade.tasks.runs.run import Run

        splits = Run(out).data
        table = splits.as_dict().get(promise.split) if splits is not None else None
        if table is not None:
            some += compute_word_perplexity(some, table.examples)
    return found


def compute_word_perplexity(scores: Sequence["Score"], examples: "Sequence[Example]") -> list["Score"]:
    """Perplexity per word between spaces, whatever the tokens are: from the bits per byte of the same text.

    It can be compared with other models of the text, which perplexity per token cannot.
    """
    size = sum(len(example["text"].encode()) for example in examples)
    words = sum(len(example["text"].split()) for example in examples)
    bits = next((score for score in scores if score.name == "bits_per_byte"), None)
    if bits is None or not words:
        return []
    value, low, high = (math.exp(x * math.log(2) * size / words) for x in (bits.value, bits.low, bits.high))
    return [replace(bits, name="word_perplexity", value=value, low=low, high=high)]


def score_generated_records(out: Path, count: int = DEFAULT_RECORD_COUNT) -> list["Score"]:
    """How many of the records that a run writes are valid, different and new."""
    import numpy as np

    from saccade.metrics import Score, measure
    from saccade.metrics.score import ratio

    verdict = _generate_and_check(out, count)
    rows = np.array([[1.0, 1.0]] * verdict.valid + [[0.0, 1.0]] * (verdict.count - verdict.valid))
    found = [measure("validity", ratio, rows, signature=verdict.format_description)]
    shares = {"uniqueness": (verdict.uniqueness, verdict.valid), "novelty": (verdict.novelty, verdict.unique)}
    return found + [
        Score(name, x, x, x, n, verdict.format_description) for name, (x, n) in shares.items() if x is not None
    ]


def _generate_and_check(out: Path, count: int) -> "ValidityReport":
    from saccade.decoding.config import GenerationConfig
    from saccade.decoding.generator import TextGenerator
    from saccade.engine import fast
    from saccade.tasks.base import require_tokenizer
    from saccade.tasks.records.generate import generate_records
    from saccade.tasks.records.validity import check_validity as judged
    from saccade.tasks.records.validity import get_record_format
    from saccade.tasks.runs.run import open_run

    run = open_run(out, "language")
    task, model = run.task, fast(run.model, "float32")  # writes the same, several times as fast
    kind, data = get_record_format(task.record_format or "none"), run.data
    ways = TextGenerator(GenerationConfig().with_default_sampling(0.8, 0.95), model, require_tokenizer(model))
    found = generate_records(
        model,
        count,
        ways.sampler,
        separator=kind.separator or "\n",
        max_new_tokens=task.scoring_settings(model)["window"],
        processors=ways.processors,
    )
    learnt = None if data is None else (example["text"] for example in data.train.examples)
    return judged(
        [one.text for one in found], kind, learnt, unfinished={one.text for one in found if not one.is_complete}
    )


def read_elapsed_minutes(out: Path) -> float:
    """What earlier calls have spent on a run, as its newest checkpoint tells."""
    from saccade.training.checkpoint.store import CheckpointStore

    found = CheckpointStore(out).read_newest(warn=lambda text: None) if (out / "checkpoints").is_dir() else None
    return 0.0 if found is None else float(found.facts["progress"]["minutes"])


def write_timing(out: Path, minutes: float, result: PromiseResult | None) -> None:
    """Beside result.json, which is the same for the same run, what is not: how long it took."""
    facts = {"minutes": round(minutes, 2), "promise": None if result is None else asdict(result)}
    (out / TIMING_FILE).write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")


def minutes_taken(out: Path) -> float:
    """The minutes of a finished run, from its first call to its report."""
    path = out / TIMING_FILE
    return json.loads(path.read_text(encoding="utf-8"))["minutes"] if path.is_file() else read_elapsed_minutes(out)
