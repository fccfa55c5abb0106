"""What `translate`, `summarise` and `caption` do: read, write in the way that is asked for, and print in the order that came."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.cli.engine import Engine
from saccade.decoding.settings import Decoding
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.decoding.beam import Hypothesis
    from saccade.decoding.ways import Ways
    from saccade.tasks.task import Task


@dataclass(frozen=True)
class Asked:
    """Where the questions come from: the command line, files, or, if there is neither, standard input."""

    texts: Sequence[str]
    data: Sequence[str]
    columns: str


def write(verb: str, run: str, asked: Asked, *, as_json: bool, decoding: Decoding, engine: Engine) -> int:
    """Every text answered, a line for each, or with --n-best several."""
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import each_example, opened
        from saccade.cli.settings import Wrong
        from saccade.decoding.ways import Ways
        from saccade.tasks.task import need_tokenizer

        try:
            decoding.check()
        except UsageError as error:
            raise Wrong(str(error)) from None
        task, model = opened(run, verb)
        tokenizer = need_tokenizer(model).target
        model = engine.ready(model)  # under the same name, so that a plain model does not stay beside its fast form
        ways = Ways(decoding, model, tokenizer)
        count = 0
        for line in _lines(task, ways, each_example(task, asked.texts, asked.data, asked.columns), as_json):
            print(line)
            count += 1
        _close(verb, task, ways, engine, count)
        return 0

    return guarded(verb, work)


def _lines(task: "Task", ways: "Ways", examples: "Iterable[Example]", as_json: bool) -> Iterator[str]:
    """What is printed for each example, in their order, and the first before the last question is read."""
    from saccade.cli.waiting import Waiting
    from saccade.decoding.many import windows
    from saccade.tasks.answering import answers

    plain = ways.decoding == Decoding() and not as_json
    ask = None if plain else lambda model, batch: task.written(ways, batch)
    before = 0
    with Waiting() as waiting:
        for some in windows(examples):
            told = lambda done, of, before=before: waiting.told(before + done)
            found, asked = answers(task, ways.model, some, told=told, ask=ask, times=ways.decoding.beams)
            for given, example in zip(found, asked, strict=True):
                if plain:
                    yield task.told(task.shown(given, example))
                else:
                    yield shown_texts(task, given, example, as_json)
            sys.stdout.flush()
            before += len(some)


def _close(verb: str, task: "Task", ways: "Ways", engine: Engine, count: int) -> None:
    """What is left to say, on standard error."""
    for line in task.noticed:
        print(f"saccade {verb}: {line}", file=sys.stderr)
    if not count:
        print(f"saccade {verb}: there was nothing to answer.", file=sys.stderr)
    if ways.tally.steps:
        engine.say(f"proposed {ways.tally.proposed:,} tokens, of which {ways.tally.share:.0%} were right")


def shown_texts(task: "Task", found: "list[Hypothesis]", example: "Example", as_json: bool) -> str:
    """The texts of one example."""
    shown = [task.shown(one.text, example) for one in found]
    return listed(found, shown, [task.told(one) for one in shown], as_json)


def listed(found: "list[Hypothesis]", shown: Sequence[dict[str, Any]], told: Sequence[str], as_json: bool) -> str:
    """The texts of one input: a line, several lines with their scores and an empty one, or an object for a program."""
    if as_json:
        first, *others = [what | numbers(one) for what, one in zip(shown, found, strict=True)]
        return json_text.dumps(first | ({"others": others} if others else {}), ensure_ascii=False)
    if len(found) == 1:
        return told[0]
    return "\n".join(f"{one.score:.4f}\t{text}" for text, one in zip(told, found, strict=True)) + "\n"


def numbers(one: "Hypothesis") -> dict[str, Any]:
    """What a program gets beside a text: its score, the log-probability of each token, and whether it came to an end."""
    closing = [] if one.closing is None else [one.closing]
    return {"score": one.score, "logprobs": [*one.logprobs, *closing], "ended": one.ended}
