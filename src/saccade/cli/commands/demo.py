"""`saccade demo`: train two small models side by side, and plot their attention or their accuracy by length."""

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
TIME_FRACTIONS = {"dates-bahdanau": 0.45, "dates": 0.55}  # shares of the training time
DEFAULT_MINUTES = {"dates": 3.5, "lengths": 0.0}  # 0 trains to a target score, without a time limit
ROW_LENGTHS = (1, 2, 4, 8, 12, 16)  # numbers per sequence


def main(
    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="dates|lengths|tour")] = "dates",
    *,
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")] = Path("demo"),
    minutes: float = 0.0,
) -> int:
    """Train two date translators, a recurrent one and a transformer, and plot their attention.

    Needs no data and no network. `saccade demo lengths` trains two models on sequences of numbers, one with attention and one
    with a fixed vector, and shows which of them keeps its accuracy as the sequences grow. `saccade demo tour` is a tour of
    attention: ten short experiments with a plot each, in a minute.

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
    """Run a demo under a lock on its output directory, because each demo deletes the earlier runs."""
    from saccade.training.checkpoint.run_lock import lock_run

    with lock_run(out) as warning:
        if warning:
            print(f"saccade demo: {warning}", file=sys.stderr)
        return demo(out, minutes)


def _run_dates(out: Path, minutes: float) -> int:
    from saccade.cli.train_flags import load_recipe
    from saccade.training.prepare import Job

    print(
        "Translating dates in 26 languages into ISO dates; the models learn the names of the months from examples alone."
    )
    for name, description in DEMO_RECIPES.items():
        recipe = load_recipe(name)
        train = {**recipe.tables["train"], "max_minutes": minutes * TIME_FRACTIONS[name], "fit_schedule": True}
        job = Job("translate", (), recipe.family, {}, "error", recipe.tables["model"], recipe.tables["task"], train)
        signal = _train_anew(out / name, job, description)
        if signal is not None:
            return 128 + signal
        for line in translate_and_plot(out / name, out / f"{name}.png", description):
            print(f"  {line}")
    print(f"\nplots      {', '.join(str(out / f'{name}.png') for name in DEMO_RECIPES)}")
    print(f"reports    {', '.join(str(out / name / 'report.html') for name in DEMO_RECIPES)}")
    print(f'Next: saccade translate {out / "dates"} "5 juin 2030"   ·   saccade train label --data your.tsv')
    return 0


def _train_anew(out: Path, job: "Job", description: str) -> int | None:
    """Delete the earlier run and train a model; returns the signal that ended training, if any."""
    import shutil

    from saccade.cli.train_progress import TrainProgress
    from saccade.training.checkpoint.run_lock import check_unlocked
    from saccade.training.prepare import prepare
    from saccade.training.run import RunResult, run_training

    print(f"\n{description}", flush=True)
    check_unlocked(out)
    shutil.rmtree(out, ignore_errors=True)
    signal = None
    with TrainProgress(out, sys.stdout) as progress:
        for event in run_training(prepare(job), out):
            progress.show(event)
            if isinstance(event, RunResult):
                signal = event.signal
    return signal


def _run_lengths(out: Path, minutes: float) -> int:
    from saccade.lessons.number_translators import DECODER_CONFIGS, DEFAULT_EPOCHS, format_undertrained

    print("Translating one to sixteen numbers from words to digits: one decoder attends to all encoder states,")
    print("the other gets a single vector.")
    accuracies, epochs = {}, DEFAULT_EPOCHS
    for name in DECODER_CONFIGS:
        signal, epochs, accuracies[name] = _train_to_target_score(out, name, minutes, epochs)
        if signal is not None:
            return 128 + signal
    print("\naccuracy per number and position, by the length of the sequence")
    print(f"{'':20}" + "".join(f"{length:>6}" for length in ROW_LENGTHS))
    for name, by_length in accuracies.items():
        print(f"{name:20}" + "".join(f"{accuracy:>6.0%}" for accuracy in by_length.values()))
    with_attention = next(iter(DECODER_CONFIGS))
    if undertrained := format_undertrained(accuracies[with_attention][ROW_LENGTHS[-1]]):
        hint = "; leave --minutes out to train them to the target score" if minutes else ""
        print(f"Both models are {undertrained}{hint}.")
    print(f"Next: saccade serve {out / with_attention}, then Learn: Bahdanau against the fixed vector")
    return 0


def _train_to_target_score(
    out: Path, name: str, minutes: float, epochs: int
) -> "tuple[int | None, int, dict[int, float]]":
    """Train a translator of numbers; with attention and without a time limit, double the epochs until it has its target score.

    Returns the signal that ended training, if any, the number of epochs, for the next model too, and the accuracy by length.
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
        accuracy = {length: measure_accuracy(run.task, run.model, length) for length in ROW_LENGTHS}
        undertrained = format_undertrained(accuracy[ROW_LENGTHS[-1]]) if name == next(iter(DECODER_CONFIGS)) else ""
        if not undertrained or minutes or 2 * epochs > MAX_EPOCHS:
            return None, epochs, accuracy
        epochs *= 2
        print(f"The model is {undertrained}; training again with {epochs} epochs.", flush=True)


def check_date(source: str, answer: str) -> str:
    """Whether a translation is the date of the source, with the correct date if it is not.

    >>> check_date("3. Oktober 1990", "1990-10-03"), check_date("3. Oktober 1990", "1990-10-30")
    ('correct', 'wrong: 1990-10-03')
    """
    from saccade.data.samples import dates

    day = dates.parse_date(source)
    assert day is not None, source
    return "correct" if answer == day.isoformat() else f"wrong: {day.isoformat()}"


def translate_and_plot(run_path: Path, image_path: Path, title: str) -> list[str]:
    """Translate some dates and plot the cross-attention; returns a line per date, which says whether it is correct."""
    from saccade.data import Example
    from saccade.explain.look import collect_attention_maps
    from saccade.render.plot import Heatmap, save_panels
    from saccade.render.svg import format_token
    from saccade.tasks.predict import predict
    from saccade.tasks.runs.run import open_run

    run = open_run(run_path)
    task, model = run.task, run.model
    examples = [Example({"source": text}) for text in DEMO_DATES]
    answers, _ = predict(task, model, examples)
    panels, lines = [], []
    for example, answer in zip(examples, answers, strict=True):
        verdict = check_date(example["source"], answer)
        lines.append(f"{example['source']:<26} -> {answer:<12} {verdict}")
        item = task.encode([example], model)[0]
        ids = model.tokenizer.encode(answer).ids
        look = next(look for look in reversed(collect_attention_maps(task, model, item, ids)) if "across" in look.name)
        head = look.find_sharpest_head()
        label = f"{example['source']} → {answer}\n{verdict}"
        queries, keys = ([format_token(name, 8) for name in side] for side in (look.query_names, look.key_names))
        panels.append(Heatmap(label, look.weights[head], "target", "source", vmax=1.0, tick_labels=(queries, keys)))
    save_panels(image_path, panels, title=f"Cross-attention: {title}", columns=3)
    return lines


def _run_tour(out: Path) -> int:
    from saccade.lessons.tour import CHAPTERS, run_tour

    print(
        f"A tour of attention in {len(CHAPTERS)} stops; plots are written to {out}{'/' if out.name else ''}", flush=True
    )
    for number, (chapter, path) in enumerate(run_tour(out), start=1):
        print(f"\n{number}. {chapter.title}")
        for line in chapter.lines:
            print(f"   {line}")
        print(f"   plot: {path}", flush=True)
    print(
        "\nNext: saccade demo   ·   saccade mechanisms bigbird   ·   saccade check --help   ·   saccade bench attention --help"
    )
    return 0
