"""Text generation for `translate`, `summarize` and `caption`: read inputs, generate, and print the texts in input order."""

import json as json_text
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from saccade.cli.engine_flags import EngineFlags
from saccade.cli.prediction_flags import Inputs
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.data import Example
    from saccade.decoding.beam import Hypothesis
    from saccade.decoding.generator import TextGenerator
    from saccade.models.model import Model
    from saccade.tasks.base import Task


def print_generated_texts(
    verb: str, run: str, inputs: Inputs, *, as_json: bool, decoding: GenerationConfig, engine: EngineFlags
) -> int:
    """Generate and print one line per input, or several with --n-best."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import iter_examples, open_run_for_task
        from saccade.decoding.generator import TextGenerator
        from saccade.tasks.base import require_tokenizer

        try:
            decoding.check()
        except UsageError as error:
            raise UsageError(str(error)) from None
        inputs.check_output(as_json=as_json)
        opened = open_run_for_task(run, verb)
        task, tokenizer = opened.task, require_tokenizer(opened.model).target
        opened.model = engine.prepare(opened.model)  # replaces the plain model, so that its memory is freed
        examples = iter_examples(task, inputs)
        if inputs.flags.out:
            return write_prediction_file(verb, task, opened.model, examples, inputs, decoding)
        generator = TextGenerator(decoding, opened.model, tokenizer)
        count = 0
        for line in _generate_lines(task, generator, examples, as_json, inputs.flags.batch_size):
            print(line)
            count += 1
        print_notes(verb, task, inputs, count)
        log_acceptance_rate(generator, engine)
        return 0

    return run_command(verb, work)


def _generate_lines(
    task: "Task", generator: "TextGenerator", examples: "Iterable[Example]", as_json: bool, batch_size: int | None
) -> Iterator[str]:
    """Yield the output of each example in order, window by window, so that output begins before all input is read."""
    from saccade.decoding.batch_generate import sorting_windows
    from saccade.progress import ProgressBar
    from saccade.tasks.predict import predict

    greedy = generator.decoding == GenerationConfig() and not as_json
    predictor = None if greedy else lambda model, batch: task.generate(generator, batch)
    rows = generator.decoding.beams
    count = 0
    with ProgressBar() as bar:
        for window in sorting_windows(examples):
            update = lambda done, total, count=count: bar.update(count + done)
            outputs, predicted = predict(
                task,
                generator.model,
                window,
                on_progress=update,
                predictor=predictor,
                rows_per_item=rows,
                batch_size=batch_size,
            )
            for output, example in zip(outputs, predicted, strict=True):
                if greedy:
                    yield str(task.to_prediction(output, example))
                else:
                    yield format_example_texts(task, output, example, as_json)
            sys.stdout.flush()
            count += len(window)


def write_prediction_file(
    verb: str,
    task: "Task",
    model: "Model",
    examples: "Iterable[Example]",
    inputs: Inputs,
    decoding: GenerationConfig | None = None,
) -> int:
    """Write the predictions of a command to the file of --out, and print how many there are to standard error."""
    from saccade.api.prediction_file import default_decoding, write_predictions
    from saccade.tasks.runs.stream_predictor import StreamPredictor

    flags = inputs.flags
    predictor = StreamPredictor(task, model, batch_size=flags.batch_size, decoding=decoding or default_decoding(task))
    written = write_predictions(flags.out, predictor, examples, data=inputs.data, rejects=inputs.rejects)
    for line in (*task.notes, str(written)):
        print(f"saccade {verb}: {line}", file=sys.stderr)
    return 0


def print_notes(verb: str, task: "Task", inputs: Inputs, count: int) -> None:
    """Print the notes of the task, bad records that were left out, and whether there was any input, on standard error."""
    from saccade.api.prediction_file import describe_rejects

    lines = [*task.notes, *describe_rejects(inputs.rejects), *([] if count else ["no input texts."])]
    for line in lines:
        print(f"saccade {verb}: {line}", file=sys.stderr)


def log_acceptance_rate(generator: "TextGenerator", engine: EngineFlags) -> None:
    """Log how many draft tokens speculative decoding has accepted."""
    stats = generator.speculation_stats
    if stats.model_steps:
        engine.log(f"speculative decoding: accepted {stats.acceptance_rate:.0%} of {stats.draft_tokens:,} draft tokens")


def format_example_texts(task: "Task", hypotheses: "list[Hypothesis]", example: "Example", as_json: bool) -> str:
    """The output for one example."""
    predictions = [task.to_prediction(hypothesis.text, example).locate(example) for hypothesis in hypotheses]
    records = [prediction.as_dict() for prediction in predictions]
    return format_texts(hypotheses, records, [str(prediction) for prediction in predictions], as_json)


def format_texts(
    hypotheses: "list[Hypothesis]", records: Sequence[dict[str, Any]], texts: Sequence[str], as_json: bool
) -> str:
    """The output for one input: a line; for several texts, lines with scores and an empty line; or a JSON object."""
    if as_json:
        first, *others = [record | hypothesis_facts(item) for record, item in zip(records, hypotheses, strict=True)]
        return json_text.dumps(first | ({"alternatives": others} if others else {}), ensure_ascii=False)
    if len(hypotheses) == 1:
        return texts[0]
    return "\n".join(f"{item.score:.4f}\t{text}" for text, item in zip(texts, hypotheses, strict=True)) + "\n"


def hypothesis_facts(hypothesis: "Hypothesis") -> dict[str, Any]:
    """The JSON fields of a hypothesis: its score, the log-probability of each token, and whether it is finished."""
    stop = [] if hypothesis.stop_logprob is None else [hypothesis.stop_logprob]
    return {"score": hypothesis.score, "logprobs": [*hypothesis.logprobs, *stop], "finished": hypothesis.hit_stop}
