"""What `translate`, `summarize` and `caption` do: read, write in the way that is asked for, and print in the order that came."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from saccade.cli.engine_flags import EngineFlags
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.decoding.beam import Hypothesis
    from saccade.decoding.generator import TextGenerator
    from saccade.tasks.base import Task


@dataclass(frozen=True)
class Inputs:
    """Where the questions come from: the command line, files, or, if there is neither, standard input."""

    texts: Sequence[str]
    data: Sequence[str]
    columns: str


def print_generated_texts(
    verb: str, run: str, inputs: Inputs, *, as_json: bool, decoding: GenerationConfig, engine: EngineFlags
) -> int:
    """Every text answered, a line for each, or with --n-best several."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import iter_examples, open_run_for_task
        from saccade.decoding.generator import TextGenerator
        from saccade.tasks.base import require_tokenizer

        try:
            decoding.check()
        except UsageError as error:
            raise UsageError(str(error)) from None
        found = open_run_for_task(run, verb)
        task, tokenizer = found.task, require_tokenizer(found.model).target
        found.model = engine.prepare(
            found.model
        )  # in its place, so that a plain model does not stay beside its fast form
        ways = TextGenerator(decoding, found.model, tokenizer)
        count = 0
        for line in _generate_lines(
            task, ways, iter_examples(task, inputs.texts, inputs.data, inputs.columns), as_json
        ):
            print(line)
            count += 1
        _print_summary(verb, task, ways, engine, count)
        return 0

    return run_command(verb, work)


def _generate_lines(
    task: "Task", generator: "TextGenerator", examples: "Iterable[Example]", as_json: bool
) -> Iterator[str]:
    """What is printed for each example, in their order, and the first before the last question is read."""
    from saccade.decoding.batch_generate import sorting_windows
    from saccade.progress import ProgressBar
    from saccade.tasks.predict import predict

    plain = generator.decoding == GenerationConfig() and not as_json
    ask = None if plain else lambda model, batch: task.generate(generator, batch)
    before = 0
    with ProgressBar() as waiting:
        for some in sorting_windows(examples):
            told = lambda done, of, before=before: waiting.update(before + done)
            found, asked = predict(
                task, generator.model, some, on_progress=told, predictor=ask, rows_per_item=generator.decoding.beams
            )
            for given, example in zip(found, asked, strict=True):
                if plain:
                    yield str(task.to_prediction(given, example))
                else:
                    yield format_example_texts(task, given, example, as_json)
            sys.stdout.flush()
            before += len(some)


def _print_summary(verb: str, task: "Task", generator: "TextGenerator", engine: EngineFlags, count: int) -> None:
    """What is left to say, on standard error."""
    for line in task.notes:
        print(f"saccade {verb}: {line}", file=sys.stderr)
    if not count:
        print(f"saccade {verb}: there was nothing to answer.", file=sys.stderr)
    if generator.speculation_stats.model_steps:
        engine.log(
            f"proposed {generator.speculation_stats.draft_tokens:,} tokens, of which {generator.speculation_stats.acceptance_rate:.0%} were right"
        )


def format_example_texts(task: "Task", hypotheses: "list[Hypothesis]", example: "Example", as_json: bool) -> str:
    """The texts of one example."""
    predictions = [task.to_prediction(one.text, example) for one in hypotheses]
    records = [prediction.as_dict() for prediction in predictions]
    return format_texts(hypotheses, records, [str(prediction) for prediction in predictions], as_json)


def format_texts(
    hypotheses: "list[Hypothesis]", records: Sequence[dict[str, Any]], texts: Sequence[str], as_json: bool
) -> str:
    """The texts of one input: a line, several lines with their scores and an empty one, or an object for a program."""
    if as_json:
        first, *others = [what | hypothesis_facts(one) for what, one in zip(records, hypotheses, strict=True)]
        return json_text.dumps(first | ({"alternatives": others} if others else {}), ensure_ascii=False)
    if len(hypotheses) == 1:
        return texts[0]
    return "\n".join(f"{one.score:.4f}\t{text}" for text, one in zip(texts, hypotheses, strict=True)) + "\n"


def hypothesis_facts(hypothesis: "Hypothesis") -> dict[str, Any]:
    """What a program gets beside a text: its score, the log-probability of each token, and whether it came to an end."""
    closing = [] if hypothesis.stop_logprob is None else [hypothesis.stop_logprob]
    return {"score": hypothesis.score, "logprobs": [*hypothesis.logprobs, *closing], "finished": hypothesis.hit_stop}
