"""What a user would otherwise pick, at equal time on the same two cores: scores after 10, 20 and 40 minutes of training.

    python -m benchmarks.vs_eole_trainer label --data DIR --models DIR      # or tag: the Trainer of transformers, then our recipe
    python -m benchmarks.vs_eole_trainer translate --data DIR --eole .venv-eole/bin/eole
    python -m benchmarks.vs_eole_trainer page                               # writes docs/vs-other-libraries.md from the record

Eole has an environment of its own, made by: python -m venv .venv-eole, then .venv-eole/bin/pip install "torch>=2.10,<2.14" eole
aiohttp (which Eole 0.6 imports and does not ask for).

One after the other (`--who NAME` takes one) on a machine that does nothing else. A rival has its usual settings where our sizes
allow, which the record states; one that ends before the time is over keeps its score. Training alone is on the clock: not the
start, not the scoring. Everybody is scored by the same functions on the same test data. Whoever is in the record is not trained
again.
"""

import argparse
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.recipes import ROOT, given, prepared
from saccade.data.splits import Splits, open_data
from saccade.recipes.recipe import Recipe, load_recipes
from saccade.studies.study import total_minutes
from saccade.system import describe_machine
from saccade.tasks.registry import task_class
from saccade.training.config import is_auto

RECORD = ROOT / "docs" / "results" / "otherwise.json"
PAGE = ROOT / "docs" / "vs-other-libraries.md"
MINUTES = (10.0, 20.0, 40.0)
NEARLY = 0.95  # of a time: as good as it
HEAD = """# Beside what you would otherwise pick

Scores after 10, 20 and 40 minutes of training on two cores, one after the other on the same machine, each with a 95 % interval
over the test examples. Training alone is on the clock. A rival has its usual settings, where our sizes and time allow; they
stand below each table. Whoever ends before the time is over keeps the score, and the minutes it took stand beside it. Where our
recipe fits its schedule to the time (`train.fit_schedule`), each of our times is a run of its own; where the recipe's own time
is nearly that, it is the recipe as it stands.

This page is written by `python -m benchmarks.vs_eole_trainer page` from `docs/results/otherwise.json`; the same script with
`label`, `tag` or `translate` measures again.
"""
TRANSLATED = """Sizes and pieces are the same; much else is not, and what each of it is worth was not measured. Eole's schedule
goes on for ever, so its rate is high when the clock stops it, where ours comes down to nothing with the time; it is made for many
hours. Its optimiser is Adam and ours Muon, its positions are added waves and ours turn, and on a processor it takes products in
float32 only, where ours are in bfloat16.
"""
LABELLED = """Nobody is told apart from anybody: the intervals are three points wide, and all of them overlap. Our recipe is
there sooner than the guide's two epochs. More time is worth nothing to it, as its three passes are soon over, and little to the
Trainer, which was as good after 10 minutes as after 35. (How many steps fill 40 minutes was foreseen from 20, which were slower
than the others and timed together with reading the data: they were too few.)
"""
TAGGED = """The guide's two epochs are too few for three thousand sentences: they are told apart from all others. The Trainer
with all of the time was as good after 10 minutes as after 40, and ours is two points ahead of it, which intervals of seven
points do not tell from chance. More time is worth nothing to either: what is learnt after the first few passes is learnt by
heart. Ours was best on the development set when it was looked at first, after two minutes, and that is what it kept. (How
many steps fill 40 minutes was foreseen from a faster minute: the clock stopped the Trainer when a tenth of its schedule was
left.)
"""
Record = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a rival is given: our recipe, the data as read, where they are, where it may write, and when it is scored."""

    recipe: Recipe
    splits: Splits
    weights: Path | None
    out: Path
    minutes: tuple[float, ...]
    eole: Path | None = None


@dataclass(frozen=True)
class Rival:
    """One who is compared with us: a name, and what trains it and yields (minutes on the clock, its answers to the test).

    `settings` says how it is trained, and why so.
    """

    name: str
    settings: dict[str, Any]
    train: Callable[[Asked], Iterator[tuple[float, list[Any]]]]


@dataclass(frozen=True)
class Match:
    """One task: the recipe of ours, what counts, the rivals, and what a reader of the table should know."""

    recipe: str
    metric: str
    said: str
    rivals: Callable[[Recipe], list[Rival]]
    read: str = ""


def _trainer(task: str) -> Callable[[Recipe], list[Rival]]:
    def found(recipe: Recipe) -> list[Rival]:
        from benchmarks.rival_trainer import rivals

        return [Rival(name, settings, train) for name, settings, train in rivals(task)]

    return found


def _eole(recipe: Recipe) -> list[Rival]:
    from benchmarks.rival_eole import settings, train

    return [Rival("Eole", settings(recipe), train)]


MATCHES = {
    "label": Match("sst2", "accuracy", "Sentiment, SST-2, from all-MiniLM-L6-v2", _trainer("label"), LABELLED),
    "tag": Match("wnut17", "span_f1", "Names, WNUT-17, from all-MiniLM-L6-v2", _trainer("tag"), TAGGED),
    "translate": Match("tatoeba-en-fr", "bleu", "English into French, Tatoeba, from nothing", _eole, TRANSLATED),
}


def main() -> int:
    asked = _arguments()
    if asked.what == "page":
        PAGE.write_text(page(_read(asked.record)), encoding="utf-8")
        return 0
    match, known = MATCHES[asked.what], load_recipes()
    recipe = known[match.recipe]
    data = prepared(recipe, asked.data, asked.runs) if recipe.requirements.split_flags else given(recipe, asked.data)
    weights = asked.models / recipe.requirements.weights if recipe.requirements.weights else None
    rivals = match.rivals(recipe)
    names = [*(rival.name for rival in rivals), "saccade"]
    if asked.who not in ("", *names):
        raise SystemExit(f"otherwise: there is no {asked.who!r} in {asked.what}; known are {'; '.join(names)}.")
    splits = open_data([str(path) for path in data], _roles(recipe, data), columns=recipe.columns)
    for rival in rivals:
        if _wanted(asked, rival.name):
            out = asked.runs / f"{asked.what}-{rival.name.split(',')[0].lower()}"
            task = Asked(recipe, splits, weights, out, tuple(asked.minutes), asked.eole)
            keep(asked, rival.name, rival.settings, timed(rival, task, match.metric))
    if _wanted(asked, "saccade"):
        scores = ours(recipe, data, weights, asked)
        keep(asked, "saccade", used(recipe, asked), scores)
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=[*MATCHES, "page"])
    parser.add_argument("--data", type=Path, default=Path("data"), help="a directory with a directory for each set")
    parser.add_argument("--models", type=Path, default=Path("models"), help="a directory with weights by name")
    parser.add_argument("--runs", type=Path, default=Path("runs") / "otherwise")
    parser.add_argument("--who", default="", help="only this one, such as Eole or saccade: all of them take hours")
    parser.add_argument("--eole", type=Path, default=Path(".venv-eole/bin/eole"), help="Eole's command")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--minutes", type=float, nargs="+", default=list(MINUTES))
    return parser.parse_args()


def _roles(recipe: Recipe, data: list[Path]) -> Any:
    return task_class(recipe.task)().roles([str(path) for path in data])


def timed(rival: Rival, asked: Asked, metric: str) -> dict[str, Record | None]:
    """The score of a rival at each time: none where it had nothing to show yet, and where it ended earlier, its last."""
    examples = asked.splits.test.examples if asked.splits.test else asked.splits.dev.examples
    found: dict[float, Record | None] = dict.fromkeys(asked.minutes)
    last, ended = None, 0.0
    for ended, answers in rival.train(asked):
        last = {**scored(metric, examples, answers), "minutes": round(ended, 2)}
        print(f"{rival.name}: {last['value']:.4f} after {ended:.1f} minutes", flush=True)
        come = [time for time in asked.minutes if time <= ended + 1e-6]
        if come and found[come[-1]] is None:
            found[come[-1]] = last
    return {f"{time:g}": last if time > ended else score for time, score in found.items()}


def scored(metric: str, examples: Any, answers: list[Any]) -> Record:
    """Answers by the functions that score our own."""
    from saccade import metrics

    gold = {"accuracy": "label", "span_f1": "tags", "bleu": "target"}[metric]
    return vars(getattr(metrics, metric)([example[gold] for example in examples], answers))


def ours(recipe: Recipe, data: list[Path], weights: Path | None, asked: argparse.Namespace) -> dict[str, Record]:
    """The recipe as it is, which goes on from one time to the next as any run does; one that has ended is left alone.

    Where the recipe fits its schedule to the time, each time has a run of its own, as a user with so many minutes would have.
    """
    found, match, ended = {}, MATCHES[asked.what], False
    call = [sys.executable, "-m", "saccade", "train", recipe.name, "--data", *map(str, data)]
    call += ["--model", str(weights)] if weights else []
    out = asked.runs / f"{asked.what}-saccade"
    for minutes in asked.minutes:
        limit = _time(recipe, minutes)
        if not ended:
            if recipe.tables["train"].get("fit_schedule"):
                out = asked.runs / f"{asked.what}-saccade-{minutes:g}"
            told = [] if limit != minutes else ["--train.max-minutes", str(minutes)]
            subprocess.run([*call, "--out", str(out), *told], check=True)
        facts = json.loads((out / "result.json").read_text(encoding="utf-8"))
        ended = "max_minutes" not in facts["stop_reason"]
        score = next(one for one in facts["scores"]["test"] if one["name"] == match.metric)
        found[f"{minutes:g}"] = {**score, "minutes": round(total_minutes(out) if ended else limit, 2)}
    return found


def used(recipe: Recipe, asked: argparse.Namespace) -> dict[str, Any]:
    """The settings of the recipe, with those that it leaves to the machine as the machine settled them."""
    found = {name: dict(table) for name, table in recipe.tables.items()}
    runs = sorted(asked.runs.glob(f"{asked.what}-saccade*/config.toml"))
    train = tomllib.loads(runs[-1].read_text(encoding="utf-8"))["train"]
    found["train"] |= {name: train[name] for name, value in found["train"].items() if is_auto("train", name, value)}
    return found


def _time(recipe: Recipe, minutes: float) -> float:
    """So many minutes, or the recipe's own where they are nearly as many: then one run is its record too."""
    own = recipe.tables["train"].get("max_minutes", 0.0)
    return own if NEARLY * minutes <= own <= minutes else minutes


def _read(path: Path) -> Record:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _wanted(asked: argparse.Namespace, name: str) -> bool:
    """Whether somebody is to be trained: asked for, and not in the record yet."""
    scores = _read(asked.record).get(asked.what, {}).get(name, {}).get("scores", {})
    return asked.who in ("", name) and not all(f"{one:g}" in scores for one in asked.minutes)


def keep(asked: argparse.Namespace, name: str, settings: dict[str, Any], scores: Mapping[str, Record | None]) -> None:
    """Add one to the record.

    Where each time is a run of its own (`train.fit_schedule`), those that were measured before with the same settings on such a
    machine stay.
    """
    record, here = _read(asked.record), describe_machine()
    where = {key: here[key] for key in ("cpu", "cores", "system", "python", "torch")}
    lines, date = record.setdefault(asked.what, {}), str(here["date"])[:10]
    before = lines.get(name, {})
    alike = (
        before
        and before["settings"] == settings
        and all(before["machine"][k] == where[k] for k in ("cpu", "cores", "torch"))
    )
    if alike and settings.get("train", {}).get("fit_schedule"):
        scores = dict(sorted({**before["scores"], **scores}.items(), key=lambda item: float(item[0])))
        date = " to ".join(sorted({before["date"][:10], date}))
    lines[name] = {"settings": settings, "scores": scores, "date": date, "machine": where}
    asked.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def page(record: Record) -> str:
    """docs/vs-other-libraries.md: a table for each task."""
    return "\n".join([HEAD, *(section(name, match, record.get(name, {})) for name, match in MATCHES.items())])


def section(name: str, match: Match, lines: Record) -> str:
    """Who reached what when, and with which settings."""
    found = [f"## {name}\n", f"{match.said}: {match.metric}.\n"]
    if not lines:
        return "\n".join([*found, "Not measured yet.\n"])
    times = sorted({float(time) for line in lines.values() for time in line["scores"]})
    found += ["| who | " + " | ".join(f"{time:g} min" for time in times) + " |", "|---" * (len(times) + 1) + "|"]
    for who, line in lines.items():
        found.append(f"| {who} | " + " | ".join(_cell(line["scores"].get(f"{time:g}"), time) for time in times) + " |")
    found.append("")
    missing = [rival.name for rival in match.rivals(load_recipes()[match.recipe]) if rival.name not in lines]
    if missing:
        found.append(f"Not measured yet: {'; '.join(missing)}.\n")
    elif match.read:
        found.append(match.read)
    for who, line in lines.items():
        where = line["machine"]
        said = ", ".join(f"{key} {_told(value)}" for key, value in line["settings"].items() if value)
        found.append(
            f"- {who}, {line['date']}, {where['cpu']}, {where['cores']} cores, torch {where['torch']}: {said}."
        )
    return "\n".join([*found, ""])


def _cell(score: Record | None, time: float) -> str:
    if score is None:
        return "-"
    times, digits = (1, 1) if score["value"] > 1 else (100, 1)
    value, low, high = (f"{times * score[key]:.{digits}f}" for key in ("value", "low", "high"))
    early = f", after {score['minutes']:.1f} min" if score["minutes"] < NEARLY * time else ""
    return f"{value} ({low} to {high}){early}"


def _told(value: Any) -> str:
    return " ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)


if __name__ == "__main__":
    sys.exit(main())
