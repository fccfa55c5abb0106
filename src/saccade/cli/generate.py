"""`saccade generate RUN [TEXT]`: go on with a text; or write many, and say how many of them are what they should be."""

import json as encoder
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.engine import Engine
from saccade.decoding.settings import Decoding

if TYPE_CHECKING:
    from saccade.decoding.ways import Ways
    from saccade.tasks.language import Language
    from saccade.tasks.records import Written
    from saccade.tasks.validity import Kind, Verdict

Kinds = Literal["none", "smiles", "abc", "protein", "midi"]
LENGTH = 200  # tokens, where nobody says and records have no end


@dataclass(frozen=True)
class Asked:
    """What is written and how it is shown."""

    data: Annotated[str, tyro.conf.arg(metavar="FILE")] = ""
    """A file with a beginning in each line; - is standard input. Each is gone on with."""
    count: int = 1
    """How many texts to write."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Say how many are valid, different and new; on standard error, or in the object of --json."""
    kind: Kinds | None = None
    """What the records are; if not given, what task.check of the run says."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """One JSON object with all texts; with --data an object a line, with scores and log-probabilities."""


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[str] = "",
    *,
    asked: tyro.conf.OmitArgPrefixes[Asked] = Asked(),  # noqa: B008 - frozen
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
        from saccade.cli.settings import Wrong
        from saccade.decoding.ways import Ways
        from saccade.tasks.language import Language
        from saccade.tasks.opening import open_run
        from saccade.tasks.task import need_tokenizer
        from saccade.tasks.validity import kind_of

        chosen = decoding.or_draw(0.8, 0.95)
        try:
            _refused(text, asked, chosen.check())
        except ValueError as error:
            raise Wrong(str(error)) from None
        task, model = open_run(run)
        task = getattr(task, "doing", task)  # of pretraining, what it does
        if not isinstance(task, Language):
            raise ValueError(
                f"{run} was made to {task.name}; a language model is needed. Say saccade predict {run} TEXT."
            )
        ways = Ways(chosen, engine.ready(model), need_tokenizer(model))
        kind = kind_of(asked.kind or getattr(task.config, "check", "none"))
        code = _written(run, text, asked, ways, task, kind)
        if ways.tally.steps:
            engine.say(f"proposed {ways.tally.proposed:,} tokens, of which {ways.tally.share:.0%} were right")
        return code

    return guarded("generate", work)


def _refused(text: str, asked: Asked, decoding: Decoding) -> None:
    """What cannot be asked together."""
    if text and asked.data:
        raise ValueError("A text and --data are two ways to begin; use one of them.")
    if asked.count < 1:
        raise ValueError(f"At least one text has to be asked for; got --count {asked.count}.")
    if asked.data and (asked.count > 1 or asked.check):
        raise ValueError("--count and --check are about one beginning, and --data gives many; leave one of them out.")
    if asked.count > 1 and not decoding.temperature:
        raise ValueError(
            f"--count {asked.count} texts would be the same one; give --temperature, or --beams and --n-best."
        )


def _written(run: str, text: str, asked: Asked, ways: "Ways", task: "Language", kind: "Kind") -> int:
    """One of four: many beginnings, records with an end, one text as it comes, or one when it is whole."""
    length = ways.decoding.length
    if asked.data:
        return _many(asked, ways, length or LENGTH)
    searched = not (ways.decoding.plain or ways.decoding.temperature) or ways.decoding.n_best > 1
    if asked.count > 1 or asked.check or kind.border or (asked.json and not searched):
        from saccade.tasks.records import write_records

        if searched:
            raise ValueError("Records are drawn one by one; beams, samples, contrast and drafts write a single text.")
        longest = length or (task.window(ways.model) if kind.border else LENGTH)
        given = {"border": kind.border, "begin": text, "length": longest, "rules": ways.rules}
        return _tell(run, write_records(ways.model, asked.count, ways.choose, **given), kind, asked)
    if searched:
        return _whole(text, asked, ways, length or LENGTH)
    return _stream(text, ways, length or LENGTH)


def _stream(text: str, ways: "Ways", length: int) -> int:
    """One text, printed as it is written."""
    from saccade.data import Batch, Text
    from saccade.decoding.loop import steps
    from saccade.decoding.stop import Cutters

    ids, length = _beginning(text, ways, length)
    sys.stdout.write(text)
    cutters = Cutters(ways.tokenizer, ways.decoding.stop)
    given = {"stop": ways.ends, "limit": length, "rules": ways.rules, "until": cutters}
    for number, step in enumerate(steps(ways.model, Batch(Text.of([ids])), ways.choose, **given)):
        front = spaced(ways, ids, step.tokens.tolist()) if number == 0 else ""
        sys.stdout.write(front + cutters.feed(step)[0])
        sys.stdout.flush()
    print(*cutters.end())
    return 0


def _whole(text: str, asked: Asked, ways: "Ways", length: int) -> int:
    """One text, or the best few of them with their scores, when they are whole."""
    from saccade.cli.writing import numbers
    from saccade.data import Batch, Text

    ids, length = _beginning(text, ways, length)
    (found,) = ways.write(Batch(Text.of([ids])), limit=length)
    texts = [text + spaced(ways, ids, one.tokens) + (one.text or "") for one in found]
    if asked.json:
        each = [numbers(one) for one in found]
        more = {f"{name}s" if name == "score" else name: [one[name] for one in each] for name in ("score", "logprobs")}
        print(encoder.dumps({"texts": texts} | more, ensure_ascii=False))
        return 0
    for one, whole in zip(found, texts, strict=True):
        print((f"{one.score:.4f}\t" if len(found) > 1 else "") + whole)
    return 0


def spaced(ways: "Ways", before: list[int], tokens: list[int]) -> str:
    """The space in front of what is written, where a tokenizer drops it because it sees the beginning of a text."""
    last, first = before[-8:], tokens[:1]
    rest = ways.tokenizer.decode(last + first).removeprefix(ways.tokenizer.decode(last))
    return " " if rest.startswith(" ") and not ways.tokenizer.decode(first).startswith(" ") else ""


def _beginning(text: str, ways: "Ways", length: int) -> tuple[list[int], int]:
    """The tokens that the model reads, and how many it then has room for: what is too long loses its beginning."""
    ids = ways.tokenizer.encode(text or "\n", special=False).ids
    if not ids:
        raise ValueError("The model's tokenizer has no token for an empty beginning; give a text to go on with.")
    limit = ways.model.limit
    if limit is None:
        return ids, length
    ids = ids[-max(1, limit - length) :]
    return ids, min(length, limit - len(ids))


def _many(asked: Asked, ways: "Ways", length: int) -> int:
    """A text for each line of a file, in its order."""
    from saccade.cli.waiting import Waiting
    from saccade.cli.writing import numbers
    from saccade.decoding.many import write_many

    begun: list[tuple[str, list[int]]] = []

    def prompts() -> Iterator[list[int]]:
        for line in _lines(asked.data):
            begun.append((line, _beginning(line, ways, length)[0]))
            yield begun[-1][1]

    limit = length if ways.model.limit is None else min(length, ways.model.limit - 1)
    with Waiting() as waiting:
        for number, found in enumerate(write_many(ways, prompts(), limit=limit, told=waiting.told)):
            line, ids = begun[number]
            texts = [{"text": line + spaced(ways, ids, one.tokens) + (one.text or "")} | numbers(one) for one in found]
            if asked.json:
                more = {"others": texts[1:]} if texts[1:] else {}
                print(encoder.dumps({"prompt": line} | texts[0] | more, ensure_ascii=False))
            else:
                print("\n".join(str(one["text"]) for one in texts))
    sys.stdout.flush()
    return 0


def _lines(where: str) -> Iterator[str]:
    if where == "-":
        yield from (line.rstrip("\n") for line in sys.stdin)
        return
    with open(where, encoding="utf-8-sig") as file:
        yield from (line.rstrip("\n") for line in file)


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
