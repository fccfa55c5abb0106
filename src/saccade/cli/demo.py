"""`saccade demo`: two translators learn before your eyes, and show where they look, or what they can hold."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from saccade.training.job import Job

ASKED = ("mardi 14 juillet 2026", "3. Oktober 1990", "FEBRUARY 29, 2024", "12 de marzo de 1999", "31 dicembre 2031")
RECIPES = {"dates-bahdanau": "a GRU with Bahdanau's attention (2014)", "dates": "a transformer (2017)"}
SHARE = {"dates-bahdanau": 0.45, "dates": 0.55}  # of the time
MINUTES = {"dates": 3.5, "lengths": 0.0}  # 0: to a score, however long that takes
SHOWN = (1, 2, 4, 8, 12, 16)  # numbers in a row


def main(
    what: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="dates|lengths|tour")] = "dates",
    *,
    out: Path = Path("demo"),
    minutes: float = 0.0,
) -> int:
    """Train two translators of dates, one recurrent and one a transformer, and see where they look.

    It needs no data and no network. `saccade demo lengths` trains two that read rows of numbers, one with attention and one
    with a single vector, and shows which of them holds as rows grow. `saccade demo tour` is a tour of attention instead: ten
    short experiments with a picture each, in a minute.

    Args:
        what: dates, lengths, or tour.
        out: The directory for runs and pictures.
        minutes: How long the two train together; 0: 3.5 for dates, and for lengths until the reader with attention has reached
            its score, which takes two to three minutes on two free cores.
    """
    if what == "tour":
        return _tour(out)
    if what not in MINUTES:
        print(f"saccade demo: there is no demo {what!r}; known are {', '.join(MINUTES)} and tour.", file=sys.stderr)
        return 2
    from saccade.cli.running import guarded

    demo = _dates if what == "dates" else _lengths
    return guarded("demo", lambda: _alone(demo, out, minutes or MINUTES[what]))


def _alone(demo: Callable[[Path, float], int], out: Path, minutes: float) -> int:
    """A demo whose models nobody else takes away: it begins anew, and so would another."""
    from saccade.training.run_lock import lock_run

    with lock_run(out) as warning:
        if warning:
            print(f"saccade demo: {warning}", file=sys.stderr)
        return demo(out, minutes)


def _dates(out: Path, minutes: float) -> int:
    from saccade.cli.settings import recipe
    from saccade.training.job import Job

    print("Dates as people write them in 26 languages, into ISO dates; nobody tells the models what a month is.")
    for name, said in RECIPES.items():
        asked = recipe(name)
        train = {**asked.tables["train"], "max_time": minutes * SHARE[name], "fit": True}
        job = Job("translate", (), asked.model, {}, "error", asked.tables["model"], asked.tables["task"], train)
        signal = _learnt(out / name, job, said)
        if signal is not None:
            return 128 + signal
        for line in shown(out / name, out / f"{name}.png", said):
            print(f"  {line}")
    print(f"\npictures   {', '.join(str(out / f'{name}.png') for name in RECIPES)}")
    print(f"reports    {', '.join(str(out / name / 'report.html') for name in RECIPES)}")
    print(f'Next: saccade translate {out / "dates"} "5 juin 2030"   ·   saccade train label --data your.tsv')
    return 0


def _learnt(where: Path, job: "Job", said: str) -> int | None:
    """Train one model anew; the signal that ended it, if one did."""
    import shutil

    from saccade.cli.progress import Progress
    from saccade.training.job import prepare
    from saccade.training.run import Result, run
    from saccade.training.run_lock import check_unlocked

    print(f"\n{said}", flush=True)
    check_unlocked(where)
    shutil.rmtree(where, ignore_errors=True)  # a demo begins anew
    signal = None
    with Progress(where, sys.stdout) as progress:
        for event in run(prepare(job), where):
            progress.show(event)
            if isinstance(event, Result):
                signal = event.signal
    return signal


def _lengths(out: Path, minutes: float) -> int:
    from saccade.studies.counting import DECODERS, EPOCHS, undertrained

    print(
        "Rows of one to sixteen numbers in words, into figures: one reader hands over all it saw, the other one vector."
    )
    shares, epochs, last = {}, EPOCHS, SHOWN[-1]
    for name in DECODERS:
        signal, epochs, shares[name] = _to_its_score(out, name, minutes, epochs)
        if signal is not None:
            return 128 + signal
    print("\nnumbers that are right and in their place, by the numbers in the row")
    print(f"{'':20}" + "".join(f"{length:>6}" for length in SHOWN))
    for name, found in shares.items():
        print(f"{name:20}" + "".join(f"{share:>6.0%}" for share in found.values()))
    attentive = next(iter(DECODERS))
    if under := undertrained(shares[attentive][last]):
        print(f"These two are {under}{'; give no --minutes, and they train to the end' if minutes else ''}.")
    print(f"Next: saccade serve {out / attentive}, and there Learn: Bahdanau against the fixed vector")
    return 0


def _to_its_score(out: Path, name: str, minutes: float, epochs: int) -> "tuple[int | None, int, dict[int, float]]":
    """Train a reader of rows; one that has attention and no limit of time gets twice the passes until it has its score.

    Returns the signal that stopped it, the passes that were needed, which the next reader gets too, and what it gets right.
    """
    from saccade.studies.counting import DECODERS, MAX_EPOCHS, SAID, jobs, right, undertrained
    from saccade.tasks.opening import open_run

    while True:
        signal = _learnt(out / name, jobs(out, minutes, epochs)[name], SAID[name])
        if signal is not None:
            return signal, epochs, {}
        task, model = open_run(out / name)
        shares = {length: right(task, model, length) for length in SHOWN}
        under = undertrained(shares[SHOWN[-1]]) if name == next(iter(DECODERS)) else ""
        if not under or minutes or 2 * epochs > MAX_EPOCHS:
            return None, epochs, shares
        epochs *= 2
        print(f"It is {under}; once more, with {epochs} passes through the rows.", flush=True)


def verdict(source: str, answer: str) -> str:
    """Whether an answer is the date that was asked for, and which that is if it is not.

    >>> verdict("3. Oktober 1990", "1990-10-03"), verdict("3. Oktober 1990", "1990-10-30")
    ('right', 'wrong: 1990-10-03')
    """
    from saccade.data.samples import dates

    day = dates.parse(source)
    assert day is not None, source
    return "right" if answer == day.isoformat() else f"wrong: {day.isoformat()}"


def shown(where: Path, picture: Path, title: str) -> list[str]:
    """Translate a few dates and draw where it looked; every line and title says whether the answer is right."""
    from saccade.data import Example
    from saccade.explain.looking import seen
    from saccade.explain.picture import Map, save
    from saccade.explain.svg import readable
    from saccade.tasks.answering import answers
    from saccade.tasks.opening import open_run

    task, model = open_run(where)
    examples = [Example({"source": text}) for text in ASKED]
    found, _ = answers(task, model, examples)
    panels, lines = [], []
    for example, answer in zip(examples, found, strict=True):
        judged = verdict(example["source"], answer)
        lines.append(f"{example['source']:<26} -> {answer:<12} {judged}")
        item = task.items([example], model)[0]
        ids = model.tokenizer.encode(answer).ids
        look = next(look for look in reversed(seen(task, model, item, ids)) if "across" in look.name)
        head = look.sharpest()
        called = f"{example['source']} → {answer}\n{judged}"
        names = ([readable(name, 8) for name in side] for side in (look.rows, look.columns))
        panels.append(Map(called, look.weights[head], "written", "read", most=1.0, names=(next(names), next(names))))
    save(picture, panels, title=f"Where it looked while it wrote: {title}", columns=3)
    return lines


def _tour(out: Path) -> int:
    from saccade.studies.tour import CHAPTERS, tour

    print(f"A tour of attention in {len(CHAPTERS)} stops; pictures go to {out}{'/' if out.name else ''}", flush=True)
    for number, (chapter, path) in enumerate(tour(out), start=1):
        print(f"\n{number}. {chapter.title}")
        for line in chapter.said:
            print(f"   {line}")
        print(f"   picture: {path}", flush=True)
    print(
        "\nNext: saccade demo   ·   saccade mechanisms bigbird   ·   saccade check --help   ·   saccade bench attention --help"
    )
    return 0
