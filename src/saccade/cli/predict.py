"""`saccade predict RUN`, and the same call named as a person says it: label, tag, translate."""

import json as json_text
import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

VERBS = ("label", "tag", "translate")


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[tuple[str, ...]] = (),
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Answers of a trained model, one line for each text.

    saccade predict runs/reviews "What a lovely film." "Two hours of my life."

    saccade predict runs/reviews --data new.tsv --json > answers.jsonl

    echo "3 mai 2019" | saccade translate runs/dates

    Args:
        run: A run, or any directory with a model.
        text: Texts; none, and no --data: one text a line from standard input.
        data: Files to read the texts from, in any format that training reads.
        columns: Which column is what: text=review.
        json: One JSON object a line.
    """
    return answer("predict", None, run, text, data, columns, json)


def call(verb: str, argv: Sequence[str]) -> int:
    """One of VERBS: the same, for a run of that task only."""

    def named(
        run: tyro.conf.Positional[str],
        text: tyro.conf.Positional[tuple[str, ...]] = (),
        *,
        data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
        columns: str = "",
        json: tyro.conf.FlagCreatePairsOff[bool] = False,
    ) -> int:
        return answer(verb, verb, run, text, data, columns, json)

    named.__doc__ = (main.__doc__ or "").replace("saccade predict runs/reviews", f"saccade {verb} RUN")
    return tyro.cli(named, prog=f"saccade {verb}", args=list(argv))


def answer(
    name: str, verb: str | None, run: str, texts: Sequence[str], data: Sequence[str], columns: str, as_json: bool
) -> int:
    """Read, ask, print."""
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import examples_of
        from saccade.tasks.answering import answers
        from saccade.tasks.opening import open_run

        task, model = open_run(run, verb)
        examples = examples_of(task, texts, data, columns)
        found, asked = answers(task, model, examples)
        for given, example in zip(found, asked, strict=True):
            shown = task.shown(given, example)
            print(json_text.dumps(shown, ensure_ascii=False) if as_json else task.told(shown), flush=True)
        if not examples:
            print(f"saccade {name}: there was nothing to answer.", file=sys.stderr)
        return 0

    return guarded(name, work)
