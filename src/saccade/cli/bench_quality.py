"""`saccade bench quality`: quality loss of quantized inference, as agreement of the next token and as perplexity."""

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
            raise UsageError(f"--max-texts is {max_texts}; it must be at least 1.")
        opened = open_run_for_task(run)
        model = opened.model
        texts = take_evenly(drop_short_texts(model, read_texts(opened, data, columns)), max_texts)
        records = []
        for precision in precisions:
            result = measure_quality(model, texts, precision)
            precision = result.precision_choice.precision
            records.append({"precision": precision, **_result_fields(result), "texts": len(texts)})
            if not json:
                print(result, flush=True)
        if json:
            print(json_text.dumps(records))
        return 0

    return run_command("bench quality", work)


def _result_fields(result: object) -> dict[str, float]:
    return {
        name: getattr(result, name)
        for name in ("tokens", "agreement", "base_perplexity", "fast_perplexity", "perplexity_increase")
    }


def read_texts(run: "Run", data: tuple[str, ...], columns: str) -> list[str]:
    """The input texts of the data: its sources, or its texts."""
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
            f"{run.path} is a model for {task.name}; bench quality needs a model that generates text from text."
        )
    return [example[name] for example in examples]


def drop_short_texts(model: "Model", texts: "Sequence[str]") -> list[str]:
    """The texts of at least two tokens, which have a next token to predict."""
    from saccade.tasks.base import require_tokenizer

    encodings = require_tokenizer(model).encode_batch(list(texts))
    kept = [text for text, encoding in zip(texts, encodings, strict=True) if len(encoding.ids) > 1]
    if not kept:
        raise UsageError("There is no text of two or more tokens; give at least one.")
    return kept


def take_evenly(texts: "Sequence[str]", count: int) -> list[str]:
    """At most `count` of the texts, evenly spread over all.

    >>> take_evenly("abcdefgh", 3), take_evenly("ab", 5)
    (['a', 'c', 'f'], ['a', 'b'])
    """
    count = min(count, len(texts))
    return [texts[number * len(texts) // count] for number in range(count)]
