"""`saccade generate RUN [TEXT]`: go on with a text; or write many, and say how many of them are what they should be."""

import json as encoder
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.engine import Engine
from saccade.decoding.settings import Decoding
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.decoding.ways import Ways
    from saccade.tasks.records import Written
    from saccade.tasks.task import Task
    from saccade.tasks.validity import Kind, Verdict

Kinds = Literal["none", "smiles", "abc", "protein", "midi"]
LENGTH = 200  # tokens, where nobody says and records have no end


@dataclass(frozen=True)
class Asked:
    """What is written and how it is shown."""

    data: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A file with a beginning in each line, and each is gone on with; - is standard input, as is a pipe without a text."""
    count: int = 1
    """How many texts to write."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say how many are valid, different and new; on standard error, or in the object of --json."""
    kind: Kinds | None = None
    """What the records are; if not given, what task.check of the run says."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """One JSON object a beginning, with scores and log-probabilities; one of all texts for --count, --check and records."""


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[str] = "",
    *,
    asked: tyro.conf.OmitArgPrefixes[Asked] = Asked(),
    decoding: tyro.conf.OmitArgPrefixes[Decoding] = Decoding(),  # noqa: B008 - frozen
    engine: tyro.conf.OmitArgPrefixes[Engine] = Engine(),  # noqa: B008 - frozen
) -> int:
    """Go on with a text, token by token, as a language model would; drawn at temperature 0.8 among 95 % if nothing is said.

    saccade generate runs/shakespeare "ROMEO:" --length 400

    saccade generate runs/shakespeare "ROMEO:" --beams 4 --n-best 4

    saccade generate runs/molecules --count 1000 --check > new.smi

    Args:
        run: A run, or any directory with a writer.
        text: How the text begins.
        asked: What is written.
        decoding: How it is written.
        engine: How the model computes.
    """
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import opened
        from saccade.cli.settings import Wrong
        from saccade.decoding.ways import Ways
        from saccade.models.capabilities import Generates
        from saccade.tasks.task import need_tokenizer
        from saccade.tasks.validity import kind_of

        chosen = decoding.or_draw(0.8, 0.95)
        try:
            _refused(text, asked, chosen.check())
        except UsageError as error:
            raise Wrong(str(error)) from None
        task, model = opened(run)
        if task.needs.generates is not Generates.CONTINUATION:
            raise UsageError(
                f"{run} was made to {task.name}; a language model is needed. Say saccade predict {run} TEXT."
            )
        tokenizer = need_tokenizer(model)
        model = engine.ready(model)  # under the same name, so that a plain model does not stay beside its fast form
        ways = Ways(chosen, model, tokenizer)
        kind = kind_of(asked.kind or task.writes_records or "none")
        code = _written(run, text, asked, ways, task, kind)
        if ways.tally.steps:
            engine.say(f"proposed {ways.tally.proposed:,} tokens, of which {ways.tally.share:.0%} were right")
        return code

    return guarded("generate", work)


def _refused(text: str, asked: Asked, decoding: Decoding) -> None:
    """What cannot be asked together."""
    if text and asked.data:
        raise UsageError("A text and --data are two ways to begin; use one of them.")
    if asked.count < 1:
        raise UsageError(f"At least one text has to be asked for; got --count {asked.count}.")
    if asked.data and (asked.count > 1 or asked.check):
        raise UsageError("--count and --check are about one beginning, and --data gives many; leave one of them out.")
    if asked.count > 1 and not (decoding.temperature or decoding.samples):
        raise UsageError(
            f"--count {asked.count} texts would be the same one; give --temperature, or --beams and --n-best."
        )
    if (asked.count > 1 or asked.check) and not decoding.streams:
        what = "--check" if asked.check else "--count"
        raise UsageError(
            f"{what} is about texts that are drawn one by one; beams, samples, contrast, drafts and --n-best choose one of "
            "several. Leave one of the two out."
        )


def _written(run: str, text: str, asked: Asked, ways: "Ways", task: "Task", kind: "Kind") -> int:
    """One of four: many beginnings, records with an end, one text as it comes, or texts when they are whole."""
    from saccade.cli.asking import lines_of
    from saccade.cli.beginning import show

    length = ways.decoding.length
    several = asked.count > 1 or asked.check
    piped = _piped() if not (text or asked.data or several) else ()
    if asked.data or piped:
        return _many(piped or lines_of(asked.data), asked, ways, length or LENGTH)
    if kind.border:
        return _tell(
            run, _records(text, asked, ways, kind, length or task.scoring_settings(ways.model)["window"]), kind, asked
        )
    if several:
        return _tell(run, _drawn(text, asked, ways, length or LENGTH), kind, asked)
    if asked.json or not ways.decoding.streams:
        return _many([text], asked, ways, length or LENGTH)
    show(text, ways, length or LENGTH)
    return 0


def _piped() -> Iterable[str]:
    """The lines of standard input where it is no terminal and has some; an input that cannot be read has none."""
    from saccade.cli.asking import typed

    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ()
    coming = typed()
    try:
        first = next(coming, None)
    except OSError:
        return ()
    return () if first is None else chain([first], coming)


def _records(text: str, asked: Asked, ways: "Ways", kind: "Kind", length: int) -> "Sequence[Written]":
    """Texts that end where a record ends."""
    from saccade.cli.settings import Wrong
    from saccade.tasks.records import write_records

    if not ways.decoding.streams:
        raise Wrong(
            "Records are drawn one by one; beams, samples, contrast, drafts and --n-best choose one of several. Leave them "
            "out, or say --kind none."
        )
    given = {"length": length, "rules": ways.rules, "stop": ways.decoding.stop}
    return write_records(ways.model, asked.count, ways.choose, border=kind.border, begin=text, **given)


def _drawn(text: str, asked: Asked, ways: "Ways", length: int) -> "Sequence[Written]":
    """Several texts with one beginning; where no record ends, any end is one."""
    from saccade.cli.beginning import gone_on
    from saccade.tasks.records import Written

    return [Written(texts[0], True) for _, texts, _ in gone_on(repeat(text, asked.count), ways, length)]


def _many(beginnings: Iterable[str], asked: Asked, ways: "Ways", length: int) -> int:
    """A text for each beginning, or the best few of them with their scores, in their order."""
    from saccade.cli.beginning import gone_on
    from saccade.cli.writing import listed

    for line, texts, found in gone_on(beginnings, ways, length):
        print(listed(found, [{"prompt": line, "text": text} for text in texts], texts, asked.json))
    sys.stdout.flush()
    return 0


def _tell(run: str, found: "Sequence[Written]", kind: "Kind", asked: Asked) -> int:
    """The records on standard output, and what the check says of them beside."""
    texts = [one.text for one in found]
    verdict = _verdict(run, found, kind) if asked.check else None
    if asked.json:
        print(encoder.dumps({"texts": texts} | (verdict.as_dict() if verdict else {}), ensure_ascii=False))
        return 0
    for text in texts:
        print(text, end=kind.border or "\n\n")
    sys.stdout.flush()
    for line in verdict.lines() if verdict else ():
        print(line, file=sys.stderr)
    return 0


def _verdict(run: str, found: "Sequence[Written]", kind: "Kind") -> "Verdict":
    from saccade.tasks.validity import judge
    from saccade.training.job import data_of

    data = data_of(run)
    learnt = None if data is None else (example["text"] for example in data.train.examples)
    return judge([one.text for one in found], kind, learnt, unended={one.text for one in found if not one.ended})
