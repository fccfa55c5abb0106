"""`saccade predict RUN`, and the same call named as a person says it: label, tag, translate, summarise."""

import json as json_text
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.engine import Engine
from saccade.cli.writing import Asked, write
from saccade.decoding.settings import Decoding
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.models.model import Model
    from saccade.tasks.task import Task

ALIGN = "After each translation and a tab, which word became which: 0-0 1-2, source - target."
BEST = "With --align: a file of sentences (source, target, alignment); the head that errs least on them aligns."


@dataclass(frozen=True)
class Prompt:
    """How a writer is asked that was not trained for the question; no weight changes."""

    shots: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A file of solved examples that a writer is shown before each question."""
    labels: str = ""
    """What it chooses from, with or without examples: good,bad."""
    template: str = ""
    """How an example is written: "{text} is {label}.\\n"."""
    per_token: tyro.conf.FlagCreatePairsOff[bool] = False
    """Compare labels by their mean over tokens, not by their sum."""
    calibrate: tyro.conf.FlagCreatePairsOff[bool] = False
    """Take off what each label has after a question without content."""


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
    prompt: Annotated[Prompt, tyro.conf.arg(name="")] = Prompt(),
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
) -> int:
    """Answers of a trained model, one line for each text.

    saccade predict runs/reviews "What a lovely film." "Two hours of my life."

    saccade predict runs/reviews --data new.tsv --json > answers.jsonl

    echo "3 mai 2019" | saccade translate runs/dates

    Args:
        run: A run, or any directory with a model.
        text: Texts; none, and no --data: one text a line from standard input.
        data: Files to read the texts from, in any format that training reads.
        columns: Which column is what: text=review. Columns that training named need not be named again.
        json: One JSON object a line.
        prompt: Examples for a writer that was not trained for the question.
        engine: How the model computes.
    """
    return answer("predict", prompt, run, Asked(text, data, columns), as_json=json, engine=engine)


def call(verb: str, argv: Sequence[str]) -> int:
    """The verb of a task: the same, for a run of that task only; those that write also take how to."""

    def named(
        run: tyro.conf.Positional[str],
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        *,
        data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
        columns: str = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
    ) -> int:
        return answer(verb, verb, run, Asked(text, data, columns), as_json=json, engine=engine)

    def writing(
        run: tyro.conf.Positional[str],
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        *,
        data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
        columns: str = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        decoding: tyro.conf.OmitArgPrefixes[Decoding] = Decoding(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
    ) -> int:
        return write(verb, run, Asked(text, data, columns), as_json=json, decoding=decoding, engine=engine)

    def translating(
        run: tyro.conf.Positional[str],
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        *,
        data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
        columns: str = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
        align: Annotated[tyro.conf.FlagCreatePairsOff[bool], tyro.conf.arg(help=ALIGN)] = False,
        best_head: Annotated[str, tyro.conf.arg(metavar="FILE", help=BEST)] = "",
        decoding: tyro.conf.OmitArgPrefixes[Decoding] = Decoding(),  # noqa: B008 - frozen
        engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
    ) -> int:
        asked = Asked(text, data, columns)
        if align or best_head:
            from saccade.cli.aligning import write_aligned

            return write_aligned(run, asked, as_json=json, decoding=decoding, engine=engine, best_head=best_head)
        return write(verb, run, asked, as_json=json, decoding=decoding, engine=engine)

    does = translating if verb == "translate" else writing if _writes(verb) else named
    does.__doc__ = (main.__doc__ or "").replace("saccade predict runs/reviews", f"saccade {verb} RUN")
    return tyro.cli(does, prog=f"saccade {verb}", args=list(argv))


def _writes(verb: str) -> bool:
    """Whether the task of a verb writes a text, so that there are ways to write; of those in the help it is known at once."""
    from saccade.cli import COMMANDS

    if verb in COMMANDS:
        return verb in ("translate", "summarise", "caption")
    from saccade.models.capabilities import Generates
    from saccade.tasks.table import TASKS

    return any(kind.verb == verb and kind().needs.generates is Generates.TARGET for kind in TASKS)


def _opened(run: str, how: str | Prompt, columns: str, engine: Engine) -> "tuple[Task, Model]":
    """The model in the form that is asked for, and its task: the one that the verb names, or what it is shown."""
    from saccade.cli.asking import opened

    task, model = opened(run, how if isinstance(how, str) else None)
    model = engine.ready(model)  # under the same name, so that a plain model does not stay beside its fast form
    if isinstance(how, str) or how == Prompt():
        return task, model
    if any(role.kind == "image" for role in task.roles(())):
        raise UsageError(f"{run} was made to {task.name}; examples are shown to a model that reads and writes text.")
    from saccade.data.read import parse_columns
    from saccade.tasks.shots import Config, shots_task

    config = Config(how.template, how.per_token, how.calibrate)
    labels = [label.strip() for label in how.labels.split(",") if label.strip()]
    files = [how.shots] if how.shots else []
    return shots_task(model, files, labels=labels, columns=parse_columns(columns), config=config), model


def answer(name: str, how: str | Prompt, run: str, asked: Asked, *, as_json: bool, engine: Engine) -> int:
    """Read, ask, print; `how` is the task that the run must be of, or what a writer is shown."""
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import examples_of
        from saccade.tasks.answering import answers, check_answers

        task, model = _opened(run, how, asked.columns, engine)
        examples = examples_of(task, asked.texts, asked.data, asked.columns)
        found, answered = answers(task, model, examples)
        check_answers(found)
        for line in task.noticed:
            print(f"saccade {name}: {line}", file=sys.stderr)
        for given, example in zip(found, answered, strict=True):
            shown = task.shown(given, example)
            print(json_text.dumps(shown, ensure_ascii=False) if as_json else task.told(shown), flush=True)
        if not examples:
            print(f"saccade {name}: there was nothing to answer.", file=sys.stderr)
        return 0

    return guarded(name, work)
