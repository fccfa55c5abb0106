"""`saccade translate RUN --align`: translations with word alignments in Pharaoh format, from cross-attention.

The head that aligns is the sharpest of the last layer or, with --gold-alignments FILE, the head with the lowest alignment error
rate on sentences with gold alignments.
"""

import json as json_text
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from saccade.cli.engine_flags import EngineFlags
from saccade.cli.prediction_flags import Inputs
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saccade.data import Example
    from saccade.explain.maps import AttentionMaps
    from saccade.explain.word_alignment import Alignment, AlignmentHead
    from saccade.models.model import Model
    from saccade.tasks.base import Task


ALIGNMENT_COLUMN_NAMES = ("alignment", "alignments", "links", "pharaoh")  # accepted names of the gold alignment column


def print_translations_with_alignments(
    run: str,
    inputs: Inputs,
    *,
    as_json: bool,
    decoding: GenerationConfig,
    engine: EngineFlags,
    gold_alignments: str = "",
) -> int:
    """Print one line per text: the translation, a tab and its alignment; `gold_alignments` is a file to choose the head by."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import iter_examples, open_run_for_task

        try:
            decoding.check()
        except UsageError as error:
            raise UsageError(str(error)) from None
        if decoding.n_best > 1:
            raise UsageError("--align aligns one translation of each text; leave --n-best out.")
        if inputs.flags.out:
            raise UsageError(
                "--align prints the translations with their alignments; leave --out out, and redirect the output."
            )
        opened = open_run_for_task(run, "translate")
        task, opened.model = opened.task, engine.prepare(opened.model)
        model = opened.model
        head = None
        if gold_alignments:
            head, message = choose_alignment_head(model, gold_alignments)
            print(f"saccade translate: {message}", file=sys.stderr)
        examples = iter_examples(task, inputs)
        for maps, alignment in _translate_and_align(task, model, examples, decoding, head):
            print(_format_line(maps, alignment, as_json), flush=True)
        return 0

    return run_command("translate", work)


def choose_alignment_head(
    model: "Model", file: str, layers: Sequence[int] | None = None
) -> "tuple[AlignmentHead, str]":
    """The head with the lowest alignment error rate on the sentences of a file, and a message about it."""
    from saccade.data import Role
    from saccade.data.read import read_examples
    from saccade.explain.word_alignment import choose_best_head
    from saccade.tasks.translate import SOURCE, TARGET

    examples = read_examples([file], [SOURCE, TARGET, Role("alignment", "text", ALIGNMENT_COLUMN_NAMES)]).examples
    pairs = [(example["source"], example["target"]) for example in examples]
    head, rate = choose_best_head(model, pairs, [example["alignment"] for example in examples], layers=layers)
    return head, f"aligned by {head}; alignment error rate {rate:.3f} on {len(examples):,} sentences of {file}"


def _translate_and_align(
    task: "Task",
    model: "Model",
    examples: "Iterator[Example]",
    decoding: GenerationConfig,
    head: "AlignmentHead | None",
) -> "Iterator[tuple[AttentionMaps, Alignment]]":
    from saccade.explain.inputs import make_input
    from saccade.explain.look import look_at
    from saccade.explain.word_alignment import align_words

    for example in examples:
        maps = look_at(make_input(task, model, {"source": example["source"]}), decoding=decoding)
        yield maps, align_words(maps, head)


def _format_line(maps: "AttentionMaps", alignment: "Alignment", as_json: bool) -> str:
    if not as_json:
        return f"{maps.generated_text}\t{alignment.to_pharaoh()}"
    head = str(alignment.alignment_head)
    record = {"text": maps.generated_text, "alignment": alignment.to_pharaoh(), "head": head}
    words = {"source_words": alignment.source, "target_words": alignment.target}
    return json_text.dumps(record | words, ensure_ascii=False)
