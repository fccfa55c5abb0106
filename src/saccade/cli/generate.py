"""`saccade generate RUN [TEXT]`: go on with a text; or write many, and say how many of them are what they should be."""

import json as encoder
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import tyro

if TYPE_CHECKING:
    from saccade.decoding.loop import Choose
    from saccade.models.model import Model
    from saccade.tasks.records import Written
    from saccade.tasks.validity import Kind, Verdict

Kinds = Literal["none", "smiles", "abc", "protein", "midi"]


def main(
    run: tyro.conf.Positional[str],
    text: tyro.conf.Positional[str] = "",
    *,
    length: int | None = None,
    count: int = 1,
    check: tyro.conf.FlagCreatePairsOff[bool] = False,
    kind: Kinds | None = None,
    temperature: float = 0.8,
    top_k: int = 0,
    top_p: float = 0.95,
    seed: int = 0,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Go on with a text, token by token, as a language model would.

    saccade generate runs/shakespeare "ROMEO:" --length 400

    saccade generate runs/molecules --count 1000 --check > new.smi

    Args:
        run: A run, or any directory with a writer.
        text: How the text begins.
        length: The most tokens to write: 200, or where records have an end a window of the run (task.length).
        count: How many texts to write.
        check: Say how many are valid, different and new; on standard error, or in the object of --json.
        kind: What the records are; if not given, what task.check of the run says.
        temperature: Below 1 the likely is likelier; 0 takes the best token each time.
        top_k: Draw among so many best tokens; 0: all.
        top_p: Draw among the fewest tokens that have this share together.
        seed: The same seed writes the same.
        json: One JSON object with all texts.
    """
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.decoding.choose import Draw, greedy
        from saccade.tasks.language import Language
        from saccade.tasks.opening import open_run
        from saccade.tasks.records import write_records
        from saccade.tasks.validity import kind_of

        task, model = open_run(run)
        task = getattr(task, "doing", task)  # of pretraining, what it does
        if not isinstance(task, Language):
            raise ValueError(
                f"{run} was made to {task.name}; a language model is needed. Say saccade predict {run} TEXT."
            )
        choose = greedy if temperature == 0 else Draw(temperature, top_k, top_p, seed)
        chosen = kind_of(kind or getattr(task.config, "check", "none"))
        if count == 1 and not (check or json or chosen.border):
            return _stream(model, text, choose, length or 200)
        longest = length or (task.window(model) if chosen.border else 200)
        found = write_records(model, count, choose, border=chosen.border, begin=text, length=longest)
        return _tell(run, found, chosen, check, json)

    return guarded("generate", work)


def _stream(model: "Model", text: str, choose: "Choose", length: int) -> int:
    """One text, printed as it is written."""
    from saccade.data import Batch, Text
    from saccade.decoding.loop import write
    from saccade.tasks.task import need_tokenizer
    from saccade.text.stream import Stream

    tokenizer = need_tokenizer(model)
    ids = tokenizer.encode(text or "\n", special=False).ids
    if not ids:
        raise ValueError("The model's tokenizer has no token for an empty beginning; give a text to go on with.")
    if model.limit is not None:
        ids = ids[-max(1, model.limit - length) :]
        length = min(length, model.limit - len(ids))
    stream = Stream(tokenizer)
    sys.stdout.write(text)
    ends = [] if tokenizer.end is None else [tokenizer.end]
    for tokens, going in write(model, Batch(Text.of([ids])), choose, stop=ends, limit=length):
        if bool(going[0]):
            sys.stdout.write(stream.feed([int(tokens[0])]))
            sys.stdout.flush()
    print(stream.end())
    return 0


def _tell(run: str, found: "Sequence[Written]", kind: "Kind", check: bool, json: bool) -> int:
    """The records on standard output, and what the check says of them beside."""
    texts = [one.text for one in found]
    verdict = _verdict(run, found, kind) if check else None
    if json:
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
