"""`saccade bench quality`: what fewer bits cost a writer of yours, in tokens that stay the same and in perplexity."""

import json as json_text
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saccade.data import Example
    from saccade.models.model import Model
    from saccade.tasks.task import Task


def main(
    run: tyro.conf.Positional[str],
    *,
    data: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE")] = (),
    columns: str = "",
    precisions: tuple[str, ...] = ("float32", "float16", "int8"),
    texts: int = 200,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """How often the fast form of a writer would go on with the same token as the plain model, and how much worse it foresees.

    $ saccade bench quality runs/stories --data test.txt

    $ saccade bench quality runs/english-german --precisions int8 --texts 1000

    A model that continues texts foresees theirs. One that translates or summarises is held to what the plain model writes. Scores
    such as BLEU are told by `saccade evaluate RUN --engine int8`.

    Args:
        run: A run, or any directory with a writer.
        data: Files with texts; none: the held-out part of what the run was trained on.
        columns: Which column is what: source=english.
        precisions: float32, float16, int8, or auto for what the engine would take.
        texts: How many, spread evenly over the data.
        json: Print JSON.
    """
    from saccade.cli.running import guarded
    from saccade.cli.settings import Wrong

    def work() -> int:
        from saccade.cli.asking import opened
        from saccade.engine.quality import quality

        if texts < 1:
            raise Wrong(f"--texts is {texts}; at least one is needed.")
        task, model = opened(run)
        some = spread(readable(model, asked(run, task, data, columns)), texts)
        found = []
        for precision in precisions:
            found.append(quality(model, some, precision))
            if not json:
                print(found[-1], flush=True)
        if json:
            told = [{"precision": one.choice.precision, **_numbers(one), "texts": len(some)} for one in found]
            print(json_text.dumps(told))
        return 0

    return guarded("bench quality", work)


def _numbers(one: object) -> dict[str, float]:
    return {name: getattr(one, name) for name in ("tokens", "equal", "plain", "fast", "change")}


def asked(run: str, task: "Task", data: tuple[str, ...], columns: str) -> list[str]:
    """What a writer reads: the sources of the data, or their texts."""
    examples: Sequence[Example]
    if data:
        from saccade.cli.asking import examples_of

        examples = examples_of(task, (), data, columns)
    else:
        from saccade.training.job import held_out

        examples = held_out(run)
    name = next((role.name for role in task.roles(data) if role.name in ("text", "source")), "")
    if not name:
        raise ModelError(
            f"{run} was made to {task.name}; what fewer bits cost is asked of models that read a text and write one."
        )
    return [example[name] for example in examples]


def readable(model: "Model", texts: "Sequence[str]") -> list[str]:
    """Those of which there is something to foresee: two tokens or more."""
    from saccade.tasks.task import need_tokenizer

    found = need_tokenizer(model).encode_batch(list(texts))
    kept = [text for text, tokens in zip(texts, found, strict=True) if len(tokens.ids) > 1]
    if not kept:
        raise UsageError("There is nothing to compare: give at least one text of two tokens or more.")
    return kept


def spread(texts: "Sequence[str]", count: int) -> list[str]:
    """So many of the texts, evenly spread over all.

    >>> spread("abcdefgh", 3), spread("ab", 5)
    (['a', 'c', 'f'], ['a', 'b'])
    """
    count = min(count, len(texts))
    return [texts[number * len(texts) // count] for number in range(count)]
