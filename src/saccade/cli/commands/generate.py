"""`saccade generate RUN [TEXT]`: continue prompts with a language model, or sample many texts and check their validity."""

import json as encoder
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from saccade.cli.argument_types import RunArgument, optional_argument
from saccade.cli.engine_flags import EngineFlags
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from saccade.decoding.generator import TextGenerator
    from saccade.tasks.records.generate import GeneratedRecord
    from saccade.tasks.records.validity import RecordFormat, ValidityReport
    from saccade.tasks.runs.run import Run

RecordFormatName = Literal["auto", "none", "smiles", "abc", "protein", "midi"]
DEFAULT_MAX_NEW_TOKENS = 200  # for texts without a record format


@dataclass(frozen=True)
class GenerateInputs:
    """Prompts and output format."""

    data: Annotated[str, optional_argument("FILE")] = ""
    """File with one prompt per line; - is standard input, which is also the default for piped input."""
    count: int = 1
    """Number of texts to generate."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Report how many texts are valid, unique and novel, on standard error or in the object of --json."""
    record_format: RecordFormatName = "auto"
    """Format of the records to generate; auto: task.record_format of the run."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print one JSON object per prompt, with scores and log-probabilities; a single one for --count, --check and records."""


def main(
    run: RunArgument,
    text: Annotated[str, tyro.conf.Positional, optional_argument("[TEXT]")] = "",
    *,
    inputs: Annotated[tyro.conf.OmitArgPrefixes[GenerateInputs], tyro.conf.arg(name="input")] = GenerateInputs(),
    decoding: tyro.conf.OmitArgPrefixes[GenerationConfig] = GenerationConfig(),  # noqa: B008 - frozen
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = EngineFlags(),  # noqa: B008 - frozen
) -> int:
    """Continue a text with a language model. Default: sampling with temperature 0.8 and top-p 0.95.

    saccade generate runs/shakespeare "ROMEO:" --max-new-tokens 400

    saccade generate runs/shakespeare "ROMEO:" --beams 4 --n-best 4

    saccade generate runs/molecules --count 1000 --check > new.smi

    Args:
        run: A run, or a directory with a language model.
        text: Prompt: the start of the text.
        inputs: Prompts and output format.
        decoding: Decoding strategy and its settings.
        engine: Engine and device of inference.
    """
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.generate_texts import log_acceptance_rate
        from saccade.cli.inputs import open_run_for_task
        from saccade.decoding.generator import TextGenerator
        from saccade.errors import UsageError
        from saccade.models.capabilities import Generates
        from saccade.tasks.base import require_tokenizer
        from saccade.tasks.records.validity import get_record_format

        chosen = decoding.with_default_sampling(0.8, 0.95)
        try:
            _check_flags(text, inputs, chosen.check())
        except UsageError as error:
            raise UsageError(str(error)) from None
        opened = open_run_for_task(run)
        task = opened.task
        if task.needs.generates is not Generates.CONTINUATION:
            raise UsageError(
                f"{run} is a model for {task.name}; generate needs a language model. Use saccade predict {run} TEXT."
            )
        tokenizer = require_tokenizer(opened.model)
        opened.model = engine.prepare(opened.model)  # replaces the plain model, so that its memory is freed
        generator = TextGenerator(chosen, opened.model, tokenizer)
        name = task.record_format if inputs.record_format == "auto" else inputs.record_format
        code = _generate(opened, text, inputs, generator, get_record_format(name or "none"))
        log_acceptance_rate(generator, engine)
        return code

    return run_command("generate", work)


def _check_flags(text: str, inputs: GenerateInputs, decoding: GenerationConfig) -> None:
    """Raise a UsageError for flags that contradict each other."""
    if text and inputs.data:
        raise UsageError("A prompt and --data are both given; use one of them.")
    if inputs.count < 1:
        raise UsageError(f"--count is {inputs.count}; it must be at least 1.")
    if inputs.data and (inputs.count > 1 or inputs.check):
        raise UsageError("--count and --check work with one prompt, but --data gives many; leave one of them out.")
    if inputs.count > 1 and not (decoding.temperature or decoding.mbr_samples):
        raise UsageError(
            f"All {inputs.count} texts of --count would be equal; give --temperature, or --beams and --n-best."
        )
    if (inputs.count > 1 or inputs.check) and not decoding.can_stream:
        raise UsageError(
            f"{'--check' if inputs.check else '--count'} samples texts one by one; it cannot be combined with beam search, MBR, "
            "contrastive search, speculative decoding or --n-best."
        )


def _generate(
    run: "Run", text: str, inputs: GenerateInputs, generator: "TextGenerator", record_format: "RecordFormat"
) -> int:
    """Generate and print: continuations of many prompts, records, one text token by token, or several texts."""
    from saccade.cli.continue_text import stream_to_stdout
    from saccade.cli.inputs import read_input_lines

    max_new_tokens = generator.decoding.max_new_tokens or DEFAULT_MAX_NEW_TOKENS
    several = inputs.count > 1 or inputs.check
    piped = _read_piped_lines() if not (text or inputs.data or several) else ()
    if inputs.data or piped:
        return _continue_each(piped or read_input_lines(inputs.data), inputs, generator, max_new_tokens)
    if record_format.separator:
        limit = generator.decoding.max_new_tokens or run.task.scoring_settings(generator.model)["window"]
        records = _generate_records(text, inputs, generator, record_format, limit)
        return _print_records(run, records, record_format, inputs)
    if several:
        return _print_records(run, _sample_texts(text, inputs, generator, max_new_tokens), record_format, inputs)
    if inputs.json or not generator.decoding.can_stream:
        return _continue_each([text], inputs, generator, max_new_tokens)
    stream_to_stdout(text, generator, max_new_tokens)
    return 0


def _read_piped_lines() -> Iterable[str]:
    """The lines of standard input, if it is a pipe or a file with at least one line."""
    from saccade.cli.inputs import read_stdin_lines

    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ()
    lines = read_stdin_lines()
    try:
        first = next(lines, None)
    except OSError:
        return ()
    return () if first is None else chain([first], lines)


def _generate_records(
    text: str, inputs: GenerateInputs, generator: "TextGenerator", record_format: "RecordFormat", max_new_tokens: int
) -> "Sequence[GeneratedRecord]":
    """Sample records, each up to the separator of its format."""
    from saccade.errors import UsageError
    from saccade.tasks.records.generate import generate_records

    if not generator.decoding.can_stream:
        raise UsageError(
            "Records are sampled one by one, without beam search, MBR, contrastive search, speculative decoding or --n-best. "
            "Leave these flags out, or use --record-format none."
        )
    return generate_records(
        generator.model,
        inputs.count,
        generator.sampler,
        separator=record_format.separator,
        prefix=text,
        max_new_tokens=max_new_tokens,
        processors=generator.processors,
        stop_strings=generator.decoding.stop,
    )


def _sample_texts(
    text: str, inputs: GenerateInputs, generator: "TextGenerator", max_new_tokens: int
) -> "Sequence[GeneratedRecord]":
    """Sample several texts with the same prompt; without a record format, every text counts as complete."""
    from saccade.cli.continue_text import continue_texts
    from saccade.tasks.records.generate import GeneratedRecord

    return [
        GeneratedRecord(texts[0], True)
        for _, texts, _ in continue_texts(repeat(text, inputs.count), generator, max_new_tokens)
    ]


def _continue_each(
    prompts: Iterable[str], inputs: GenerateInputs, generator: "TextGenerator", max_new_tokens: int
) -> int:
    """Print the text of each prompt, or its best texts with scores, in the order of the prompts."""
    from saccade.cli.continue_text import continue_texts
    from saccade.cli.generate_texts import format_texts

    for line, texts, hypotheses in continue_texts(prompts, generator, max_new_tokens):
        print(format_texts(hypotheses, [{"prompt": line, "text": text} for text in texts], texts, inputs.json))
    sys.stdout.flush()
    return 0


def _print_records(
    run: "Run", records: "Sequence[GeneratedRecord]", record_format: "RecordFormat", inputs: GenerateInputs
) -> int:
    """Print the records to standard output, and the report of --check to standard error."""
    texts = [record.text for record in records]
    report = _check_validity(run, records, record_format) if inputs.check else None
    if inputs.json:
        print(encoder.dumps({"texts": texts} | (report.as_dict() if report else {}), ensure_ascii=False))
        return 0
    for text in texts:
        print(text, end=record_format.separator or "\n\n")
    sys.stdout.flush()
    for line in report.to_lines() if report else ():
        print(line, file=sys.stderr)
    return 0


def _check_validity(
    run: "Run", records: "Sequence[GeneratedRecord]", record_format: "RecordFormat"
) -> "ValidityReport":
    from saccade.tasks.records.validity import check_validity

    training_texts = None if run.data is None else (example["text"] for example in run.data.train.examples)
    unfinished = {record.text for record in records if not record.is_complete}
    return check_validity([record.text for record in records], record_format, training_texts, unfinished=unfinished)
