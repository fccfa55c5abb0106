"""`saccade demo`: two translators learn before your eyes, and show where they look, or what they can hold."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from saccade.training.prepare import Job

DEMO_DATES = (
    "mardi 14 juillet 2026",
    "3. Oktober 1990",
    "FEBRUARY 29, 2024",
    "12 de marzo de 1999",
    "31 dicembre 2031",
)
DEMO_RECIPES = {"dates-bahdanau": "a GRU with Bahdanau's attention (2014)", "dates": "a transformer (2017)"}
TIME_FRACTIONS = {"dates-bahdanau": 0.45, "dates": 0.55}  # of the time
DEFAULT_MINUTES = {"dates": 3.5, "lengths": 0.0}  # 0: to a score, however long that takes
ROW_LENGTHS = (1, 2, 4, 8, 12, 16)  # numbers in a row


def main(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="dates|lengths|tour")] = "dates",
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo"),
    minutes: float = 0.0,
) -> int:
    """Train two date translators, a recurrent one and a transformer, and plot their attention.

    Needs no data and no network. `saccade demo lengths` trains two models on sequences of numbers, one with attention and one
    with a fixed vector, and shows which of them keeps its accuracy as the sequences grow. `saccade demo tour` is a tour of attention:
    ten short experiments with a plot each, in a minute.

    Args:
        name: Demo to run: dates, lengths or tour.
        out: Output directory of runs and plots.
        minutes: Training time of both models in minutes; 0 takes 3.5 for dates, and trains lengths to a target score.
    """
    if name == "tour":
        return _run_tour(out)
    if name not in DEFAULT_MINUTES:
        print(
            f"saccade demo: there is no demo {name!r}; known are {', '.join(DEFAULT_MINUTES)} and tour.",
            file=sys.stderr,
        )
        return 2
    from saccade.cli.exit_codes import run_command

    demo = _run_dates if name == "dates" else _run_lengths
    return run_command("demo", lambda: _run_locked(demo, out, minutes or DEFAULT_MINUTES[name]))


def _run_locked(demo: Callable[[Path, float], int], out: Path, minutes: float) -> int:
    """A demo whose models nobody else takes away: it begins anew, and so would another."""
    from saccade.training.checkpoint.run_lock import lock_run

    with lock_run(out) as warning:
        if warning:
            print(f"saccade demo: {warning}", file=sys.stderr)
        return demo(out, minutes)


def _run_dates(out: Path, minutes: float) -> int:
    from saccade.cli.train_flags import load_recipe
    from saccade.training.prepare import Job

    print("Dates as people write them in 26 languages, into ISO dates; nobody tells the models what a month is.")
    for name, said in DEMO_RECIPES.items():
        asked = load_recipe(name)
        train = {**asked.tables["train"], "max_minutes": minutes * TIME_FRACTIONS[name], "fit_schedule": True}
        job = Job("translate", (), asked.model, {}, "error", asked.tables["model"], asked.tables["task"], train)
        signal = _train_anew(out / name, job, said)
        if signal is not None:
            return 128 + signal
        for line in translate_and_plot(out / name, out / f"{name}.png", said):
            print(f"  {line}")
    print(f"\npictures   {', '.join(str(out / f'{name}.png') for name in DEMO_RECIPES)}")
    print(f"reports    {', '.join(str(out / name / 'report.html') for name in DEMO_RECIPES)}")
    print(f'Next: saccade translate {out / "dates"} "5 juin 2030"   ·   saccade train label --data your.tsv')
    return 0


def _train_anew(out: Path, job: "Job", description: str) -> int | None:
    """Train one model anew; the signal that ended it, if one did."""
    import shutil

    from saccade.cli.train_progress import TrainProgress
    from saccade.training.checkpoint.run_lock import check_unlocked
    from saccade.training.prepare import prepare
    from saccade.training.run import RunResult, run_training

    print(f"\n{description}", flush=True)
    check_unlocked(out)
    shutil.rmtree(out, ignore_errors=True)  # a demo begins anew
    signal = None
    with TrainProgress(out, sys.stdout) as progress:
        for event in run_training(prepare(job), out):
            progress.show(event)
            if isinstance(event, RunResult):
                signal = event.signal
    return signal


def _run_lengths(out: Path, minutes: float) -> int:
    from saccade.lessons.number_translators import DECODER_CONFIGS, DEFAULT_EPOCHS, format_undertrained

    print(
        "Rows of one to sixteen numbers in words, into figures: one reader hands over all it saw, the other one vector."
    )
    shares, epochs, last = {}, DEFAULT_EPOCHS, ROW_LENGTHS[-1]
    for name in DECODER_CONFIGS:
        signal, epochs, shares[name] = _train_to_target_score(out, name, minutes, epochs)
        if signal is not None:
            return 128 + signal
    print("\nnumbers that are right and in their place, by the numbers in the row")
    print(f"{'':20}" + "".join(f"{length:>6}" for length in ROW_LENGTHS))
    for name, found in shares.items():
        print(f"{name:20}" + "".join(f"{share:>6.0%}" for share in found.values()))
    attentive = next(iter(DECODER_CONFIGS))
    if under := format_undertrained(shares[attentive][last]):
        print(f"These two are {under}{'; give no --minutes, and they train to the end' if minutes else ''}.")
    print(f"Next: saccade serve {out / attentive}, and there Learn: Bahdanau against the fixed vector")
    return 0


def _train_to_target_score(
    out: Path, name: str, minutes: float, epochs: int
) -> "tuple[int | None, int, dict[int, float]]":
    """Train a reader of rows; one that has attention and no limit of time gets twice the passes until it has its score.

    Returns the signal that stopped it, the passes that were needed, which the next reader gets too, and what it gets right.
    """
    from saccade.lessons.number_translators import (
        DECODER_CONFIGS,
        MAX_EPOCHS,
        RUN_DESCRIPTIONS,
        format_undertrained,
        make_jobs,
        measure_accuracy,
    )
    from saccade.tasks.runs.run import open_run

    while True:
        signal = _train_anew(out / name, make_jobs(out, minutes, epochs)[name], RUN_DESCRIPTIONS[name])
        if signal is not None:
            return signal, epochs, {}
        run = open_run(out / name)
        shares = {length: measure_accuracy(run.task, run.model, length) for length in ROW_LENGTHS}
        under = format_undertrained(shares[ROW_LENGTHS[-1]]) if name == next(iter(DECODER_CONFIGS)) else ""
        if not under or minutes or 2 * epochs > MAX_EPOCHS:
            return None, epochs, shares
        epochs *= 2
        print(f"It is {under}; once more, with {epochs} passes through the rows.", flush=True)


def check_date(source: str, answer: str) -> str:
    """Whether an answer is the date that was asked for, and which that is if it is not.

    >>> check_date("3. Oktober 1990", "1990-10-03"), check_date("3. Oktober 1990", "1990-10-30")
    ('right', 'wrong: 1990-10-03')
    """
    from saccade.data.samples import dates

    day = dates.parse_date(source)
    assert day is not None, source
    return "right" if answer == day.isoformat() else f"wrong: {day.isoformat()}"


def translate_and_plot(run_path: Path, image_path: Path, title: str) -> list[str]:
    """Translate a few dates and draw where it looked; every line and title says whether the answer is right."""
    from saccade.data import Example
    from saccade.explain.look import collect_attention_maps
    from saccade.render.plot import Heatmap, save_panels
    from saccade.render.svg import format_token
    from saccade.tasks.predict import predict
    from saccade.tasks.runs.run import open_run

    run = open_run(run_path)
    task, model = run.task, run.model
    examples = [Example({"source": text}) for text in DEMO_DATES]
    found, _ = predict(task, model, examples)
    panels, lines = [], []
    for example, answer in zip(examples, found, strict=True):
        judged = check_date(example["source"], answer)
        lines.append(f"{example['source']:<26} -> {answer:<12} {judged}")
        item = task.encode([example], model)[0]
        ids = model.tokenizer.encode(answer).ids
        look = next(look for look in reversed(collect_attention_maps(task, model, item, ids)) if "across" in look.name)
        head = look.find_sharpest_head()
        called = f"{example['source']} → {answer}\n{judged}"
        names = ([format_token(name, 8) for name in side] for side in (look.query_names, look.key_names))
        panels.append(
            Heatmap(called, look.weights[head], "written", "read", vmax=1.0, tick_labels=(next(names), next(names)))
        )
    save_panels(image_path, panels, title=f"Where it looked while it wrote: {title}", columns=3)
    return lines


def _run_tour(out: Path) -> int:
    from saccade.lessons.tour import CHAPTERS, run_tour

    print(f"A tour of attention in {len(CHAPTERS)} stops; pictures go to {out}{'/' if out.name else ''}", flush=True)
    for number, (chapter, path) in enumerate(run_tour(out), start=1):
        print(f"\n{number}. {chapter.title}")
        for line in chapter.lines:
            print(f"   {line}")
        print(f"   picture: {path}", flush=True)
    print(
        "\nNext: saccade demo   ·   saccade mechanisms bigbird   ·   saccade check --help   ·   saccade bench attention --help"
    )
    return 0
