"""`saccade generate RUN [TEXT]`: go on with a text; or write many, and say how many of them are what they should be."""

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
DEFAULT_MAX_NEW_TOKENS = 200  # tokens, where nobody says and records have no end


@dataclass(frozen=True)
class GenerateInputs:
    """Prompts and output format."""

    data: Annotated[str, optional_argument("FILE")] = ""
    """File with one prompt per line; - is standard input, which is also read from a pipe if there is no text."""
    count: int = 1
    """Number of texts to generate."""
    check: tyro.conf.FlagCreatePairsOff[bool] = False
    """Report how many texts are valid, unique and novel, on standard error or in the object of --json."""
    record_format: RecordFormatName = "auto"
    """Format of the records to generate; auto: task.record_format of the run."""
    json: tyro.conf.FlagCreatePairsOff[bool] = False
    """Print one JSON object per prompt, with scores and log-probabilities; one in all for --count, --check, records."""


def main(
    run: RunArgument,
    text: Annotated[str, tyro.conf.Positional, optional_argument("[TEXT]")] = "",
    *,
    inputs: tyro.conf.OmitArgPrefixes[GenerateInputs] = GenerateInputs(),
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
        found = open_run_for_task(run)
        task = found.task
        if task.needs.generates is not Generates.CONTINUATION:
            raise UsageError(
                f"{run} was made to {task.name}; a language model is needed. Say saccade predict {run} TEXT."
            )
        tokenizer = require_tokenizer(found.model)
        found.model = engine.prepare(
            found.model
        )  # in its place, so that a plain model does not stay beside its fast form
        ways = TextGenerator(chosen, found.model, tokenizer)
        name = task.record_format if inputs.record_format == "auto" else inputs.record_format
        kind = get_record_format(name or "none")
        code = _generate(found, text, inputs, ways, kind)
        if ways.speculation_stats.model_steps:
            engine.log(
                f"proposed {ways.speculation_stats.draft_tokens:,} tokens, of which {ways.speculation_stats.acceptance_rate:.0%} were right"
            )
        return code

    return run_command("generate", work)


def _check_flags(text: str, inputs: GenerateInputs, decoding: GenerationConfig) -> None:
    """What cannot be asked together."""
    if text and inputs.data:
        raise UsageError("A text and --data are two ways to begin; use one of them.")
    if inputs.count < 1:
        raise UsageError(f"At least one text has to be asked for; got --count {inputs.count}.")
    if inputs.data and (inputs.count > 1 or inputs.check):
        raise UsageError("--count and --check are about one beginning, and --data gives many; leave one of them out.")
    if inputs.count > 1 and not (decoding.temperature or decoding.mbr_samples):
        raise UsageError(
            f"--count {inputs.count} texts would be the same one; give --temperature, or --beams and --n-best."
        )
    if (inputs.count > 1 or inputs.check) and not decoding.can_stream:
        what = "--check" if inputs.check else "--count"
        raise UsageError(
            f"{what} is about texts that are drawn one by one; beams, samples, contrast, drafts and --n-best choose one of "
            "several. Leave one of the two out."
        )


def _generate(
    run: "Run", text: str, inputs: GenerateInputs, generator: "TextGenerator", record_format: "RecordFormat"
) -> int:
    """One of four: many beginnings, records with an end, one text as it comes, or texts when they are whole."""
    from saccade.cli.continue_text import stream_to_stdout
    from saccade.cli.inputs import read_input_lines

    length = generator.decoding.max_new_tokens
    several = inputs.count > 1 or inputs.check
    piped = _read_piped_lines() if not (text or inputs.data or several) else ()
    if inputs.data or piped:
        return _continue_each(
            piped or read_input_lines(inputs.data), inputs, generator, length or DEFAULT_MAX_NEW_TOKENS
        )
    if record_format.separator:
        return _print_records(
            run,
            _generate_records(
                text, inputs, generator, record_format, length or run.task.scoring_settings(generator.model)["window"]
            ),
            record_format,
            inputs,
        )
    if several:
        return _print_records(
            run, _sample_texts(text, inputs, generator, length or DEFAULT_MAX_NEW_TOKENS), record_format, inputs
        )
    if inputs.json or not generator.decoding.can_stream:
        return _continue_each([text], inputs, generator, length or DEFAULT_MAX_NEW_TOKENS)
    stream_to_stdout(text, generator, length or DEFAULT_MAX_NEW_TOKENS)
    return 0


def _read_piped_lines() -> Iterable[str]:
    """The lines of standard input where it is no terminal and has some; an input that cannot be read has none."""
    from saccade.cli.inputs import read_stdin_lines

    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return ()
    coming = read_stdin_lines()
    try:
        first = next(coming, None)
    except OSError:
        return ()
    return () if first is None else chain([first], coming)


def _generate_records(
    text: str, inputs: GenerateInputs, generator: "TextGenerator", record_format: "RecordFormat", max_new_tokens: int
) -> "Sequence[GeneratedRecord]":
    """Texts that end where a record ends."""
    from saccade.errors import UsageError
    from saccade.tasks.records.generate import generate_records

    if not generator.decoding.can_stream:
        raise UsageError(
            "Records are drawn one by one; beams, samples, contrast, drafts and --n-best choose one of several. Leave them "
            "out, or say --record-format none."
        )
    given = {
        "max_new_tokens": max_new_tokens,
        "processors": generator.processors,
        "stop_strings": generator.decoding.stop,
    }
    return generate_records(
        generator.model, inputs.count, generator.sampler, separator=record_format.separator, prefix=text, **given
    )


def _sample_texts(
    text: str, inputs: GenerateInputs, generator: "TextGenerator", max_new_tokens: int
) -> "Sequence[GeneratedRecord]":
    """Several texts with one beginning; where no record ends, any end is one."""
    from saccade.cli.continue_text import continue_texts
    from saccade.tasks.records.generate import GeneratedRecord

    return [
        GeneratedRecord(texts[0], True)
        for _, texts, _ in continue_texts(repeat(text, inputs.count), generator, max_new_tokens)
    ]


def _continue_each(
    prompts: Iterable[str], inputs: GenerateInputs, generator: "TextGenerator", max_new_tokens: int
) -> int:
    """A text for each beginning, or the best few of them with their scores, in their order."""
    from saccade.cli.continue_text import continue_texts
    from saccade.cli.generate_texts import format_texts

    for line, texts, found in continue_texts(prompts, generator, max_new_tokens):
        print(format_texts(found, [{"prompt": line, "text": text} for text in texts], texts, inputs.json))
    sys.stdout.flush()
    return 0


def _print_records(
    run: "Run", records: "Sequence[GeneratedRecord]", record_format: "RecordFormat", inputs: GenerateInputs
) -> int:
    """The records on standard output, and what the check says of them beside."""
    texts = [one.text for one in records]
    verdict = _check_validity(run, records, record_format) if inputs.check else None
    if inputs.json:
        print(encoder.dumps({"texts": texts} | (verdict.as_dict() if verdict else {}), ensure_ascii=False))
        return 0
    for text in texts:
        print(text, end=record_format.separator or "\n\n")
    sys.stdout.flush()
    for line in verdict.to_lines() if verdict else ():
        print(line, file=sys.stderr)
    return 0


def _check_validity(
    run: "Run", records: "Sequence[GeneratedRecord]", record_format: "RecordFormat"
) -> "ValidityReport":
    from saccade.tasks.records.validity import check_validity

    learnt = None if run.data is None else (example["text"] for example in run.data.train.examples)
    return check_validity(
        [one.text for one in records],
        record_format,
        learnt,
        unfinished={one.text for one in records if not one.is_complete},
    )
