"""`saccade bench quality`: what fewer bits cost a writer of yours, in tokens that stay the same and in perplexity."""

import json as json_text
from typing import TYPE_CHECKING, Annotated

import tyro

from saccade.cli.argument_types import ColumnsFlag, FileFlag, RunArgument
from saccade.errors import ModelError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from saccade.data import Example
    from saccade.models.model import Model
    from saccade.tasks.runs.run import Run


def main(
    run: RunArgument,
    *,
    data: FileFlag = (),
    columns: ColumnsFlag = "",
    precisions: Annotated[tuple[str, ...], tyro.conf.arg(metavar="PRECISION")] = ("float32", "float16", "int8"),
    max_texts: int = 200,
    json: tyro.conf.FlagCreatePairsOff[bool] = False,
) -> int:
    """Quality of quantized inference: how often the next token is that of the plain model, and how much perplexity rises.

    $ saccade bench quality runs/stories --data test.txt

    $ saccade bench quality runs/english-german --precisions int8 --max-texts 1000

    A language model is measured on the texts. A model that translates or summarizes is measured on the output of the plain model.
    For scores such as BLEU use `saccade evaluate RUN --engine int8`.

    Args:
        run: A run, or a directory with a model that generates text.
        data: Data files with texts; default: the held-out data of the run.
        columns: Columns of the data by role: source=english.
        precisions: Precisions to measure: float32, float16, int8, or auto, which the engine chooses.
        max_texts: Maximum number of texts, spread evenly over the data.
        json: Print the results as JSON.
    """
    from saccade.cli.exit_codes import run_command
    from saccade.errors import UsageError

    def work() -> int:
        from saccade.cli.inputs import open_run_for_task
        from saccade.engine.quantization_quality import measure_quality

        if max_texts < 1:
            raise UsageError(f"--max-texts is {max_texts}; at least one is needed.")
        tested = open_run_for_task(run)
        model = tested.model
        some = take_evenly(drop_short_texts(model, read_texts(tested, data, columns)), max_texts)
        found = []
        for precision in precisions:
            found.append(measure_quality(model, some, precision))
            if not json:
                print(found[-1], flush=True)
        if json:
            told = [
                {"precision": one.precision_choice.precision, **_result_fields(one), "texts": len(some)}
                for one in found
            ]
            print(json_text.dumps(told))
        return 0

    return run_command("bench quality", work)


def _result_fields(result: object) -> dict[str, float]:
    return {
        name: getattr(result, name)
        for name in ("tokens", "agreement", "base_perplexity", "fast_perplexity", "perplexity_increase")
    }


def read_texts(run: "Run", data: tuple[str, ...], columns: str) -> list[str]:
    """What a writer reads: the sources of the data, or their texts."""
    examples: Sequence[Example]
    task = run.task
    if data:
        from saccade.cli.inputs import read_examples

        examples = read_examples(task, (), data, columns)
    else:
        examples = run.held_out
    name = next((role.name for role in task.roles(data) if role.name in ("text", "source")), "")
    if not name:
        raise ModelError(
            f"{run.path} was made to {task.name}; what fewer bits cost is asked of models that read a text and write one."
        )
    return [example[name] for example in examples]


def drop_short_texts(model: "Model", texts: "Sequence[str]") -> list[str]:
    """Those of which there is something to foresee: two tokens or more."""
    from saccade.tasks.base import require_tokenizer

    found = require_tokenizer(model).encode_batch(list(texts))
    kept = [text for text, tokens in zip(texts, found, strict=True) if len(tokens.ids) > 1]
    if not kept:
        raise UsageError("There is nothing to compare: give at least one text of two tokens or more.")
    return kept


def take_evenly(texts: "Sequence[str]", count: int) -> list[str]:
    """So many of the texts, evenly spread over all.

    >>> take_evenly("abcdefgh", 3), take_evenly("ab", 5)
    (['a', 'c', 'f'], ['a', 'b'])
    """
    count = min(count, len(texts))
    return [texts[number * len(texts) // count] for number in range(count)]
