"""Did a run keep what its recipe promises? A score and minutes, each beside the promised one, or why they cannot be compared."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from saccade.cli.recipe import Promise, Recipe

if TYPE_CHECKING:
    from saccade.cli.settings import Request
    from saccade.data import Example
    from saccade.tasks.metrics import Score
    from saccade.tasks.validity import Verdict

Scores = Mapping[str, Sequence["Score"]]  # by split
DRAWN = ("validity", "uniqueness", "novelty")  # of records that the model writes
COUNT = 1000  # of those
QUIET = ("device", "save_minutes", "save_every", "on_nan", "shard")  # settings that change neither score nor schedule
TOOK = "took.json"


@dataclass(frozen=True)
class Kept:
    """Whether a promise was kept, None where that cannot be said, and a line for a person."""

    kept: bool | None
    said: str


def changed(request: "Request") -> list[str]:
    """The flags with which a run is another than its recipe's."""
    recipe, found = request.recipe, []
    for table, settings in request.given.items():
        for name, value in settings.items():
            quiet = table == "train" and name in QUIET
            if not quiet and recipe.tables[table].get(name) != value:
                found.append(f"--{table}.{name.replace('_', '-')} {value}")
    if recipe.model and request.job.model != recipe.model:
        found.append(f"--model {request.job.model}")
    if not recipe.need.set and request.job.data != recipe.data:
        found.append("--data")
    return found


def judge(recipe: Recipe, scores: Scores, minutes: float, flags: Sequence[str] = ()) -> Kept | None:
    """What to say of a finished run; None where its recipe promises nothing."""
    promise = recipe.promise
    if promise is None:
        return None
    wanted = f"promised   {promise.bound} on {promise.split}, within {promise.minutes:g} minutes"
    if flags:
        return Kept(None, f"{wanted}; not compared: {', '.join(flags)} is not as in the recipe {recipe.name}")
    score = next((score for score in scores.get(promise.split, ()) if score.name == promise.score), None)
    if score is None:
        return Kept(None, f"{wanted}; not compared: there is no {promise.score} on {promise.split}")
    missed = _missed(promise, score.value, minutes)
    reached = f"reached {score.value:.4g} in {minutes:.1f} minutes"
    verdict = f"NOT KEPT: {' and '.join(missed)}" if missed else "kept"
    return Kept(not missed, f"{wanted}; {reached}: {verdict}")


def _missed(promise: Promise, value: float, minutes: float) -> list[str]:
    """
    >>> _missed(Promise("bleu", 40, at_least=45), 44.0, 41.0)
    ['the score falls short', 'it took longer']
    """
    found = [] if promise.kept_by(value) else ["the score falls short"]
    return found + (["it took longer"] if minutes > promise.minutes else [])


def with_promised(recipe: Recipe, scores: Scores, out: Path) -> dict[str, list["Score"]]:
    """The scores of a finished run, and the promised one where the task has it not: of words, or of records it writes."""
    found = {split: list(some) for split, some in scores.items()}
    promise = recipe.promise
    some = found.get(promise.split) if promise is not None else None
    if promise is None or some is None or any(score.name == promise.score for score in some):
        return found
    if promise.score in DRAWN:
        some += drawn(out)
    if promise.score == "word_perplexity":
        from saccade.training.job import data_of

        splits = data_of(out)
        table = splits.tables().get(promise.split) if splits is not None else None
        if table is not None:
            some += of_words(some, table.examples)
    return found


def of_words(scores: Sequence["Score"], examples: "Sequence[Example]") -> list["Score"]:
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


def drawn(out: Path, count: int = COUNT) -> list["Score"]:
    """How many of the records that a run writes are valid, different and new."""
    import numpy as np

    from saccade.tasks.metrics import Score, measure
    from saccade.tasks.metrics.score import ratio

    verdict = _verdict(out, count)
    rows = np.array([[1.0, 1.0]] * verdict.valid + [[0.0, 1.0]] * (verdict.count - verdict.valid))
    found = [measure("validity", ratio, rows, signature=verdict.check)]
    shares = {"uniqueness": (verdict.uniqueness, verdict.valid), "novelty": (verdict.novelty, verdict.different)}
    return found + [Score(name, x, x, x, n, verdict.check) for name, (x, n) in shares.items() if x is not None]


def _verdict(out: Path, count: int) -> "Verdict":
    from saccade.decoding.settings import Decoding
    from saccade.decoding.ways import Ways
    from saccade.engine import fast
    from saccade.tasks.opening import open_run
    from saccade.tasks.records import write_records
    from saccade.tasks.task import need_tokenizer
    from saccade.tasks.validity import judge as judged
    from saccade.tasks.validity import kind_of
    from saccade.training.job import data_of

    task, plain = open_run(out, "language")
    model = fast(plain, "float32")  # writes the same, several times as fast
    kind, data = kind_of(task.writes_records or "none"), data_of(out)
    ways = Ways(Decoding().or_draw(0.8, 0.95), model, need_tokenizer(model))
    found = write_records(
        model,
        count,
        ways.choose,
        border=kind.border or "\n",
        length=task.scoring_settings(model)["window"],
        rules=ways.rules,
    )
    learnt = None if data is None else (example["text"] for example in data.train.examples)
    return judged([one.text for one in found], kind, learnt, unended={one.text for one in found if not one.ended})


def minutes_before(out: Path) -> float:
    """What earlier calls have spent on a run, as its newest checkpoint tells."""
    from saccade.training.checkpoint import Store

    found = Store(out).newest(warn=lambda text: None) if (out / "checkpoints").is_dir() else None
    return 0.0 if found is None else float(found.facts["progress"]["minutes"])


def write_took(out: Path, minutes: float, kept: Kept | None) -> None:
    """Beside result.json, which is the same for the same run, what is not: how long it took."""
    facts = {"minutes": round(minutes, 2), "promise": None if kept is None else asdict(kept)}
    (out / TOOK).write_text(json.dumps(facts, ensure_ascii=False) + "\n", encoding="utf-8")


def took(out: Path) -> float:
    """The minutes of a finished run, from its first call to its report."""
    path = out / TOOK
    return json.loads(path.read_text(encoding="utf-8"))["minutes"] if path.is_file() else minutes_before(out)
