"""`saccade translate RUN --align`: each translation with which word became which, in Pharaoh's format.

By which head is a choice: the sharpest of the last layer, or with --gold-alignments FILE the one that errs least on sentences whose
alignments are known.
"""

import json as json_text
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from saccade.cli.engine_flags import EngineFlags
from saccade.cli.generate_texts import Inputs
from saccade.decoding.config import GenerationConfig
from saccade.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saccade.data import Example
    from saccade.explain.maps import AttentionMaps
    from saccade.explain.word_alignment import Alignment, AlignmentHead
    from saccade.models.model import Model
    from saccade.tasks.base import Task


ALIGNMENT_COLUMN_NAMES = (
    "alignment",
    "alignments",
    "links",
    "pharaoh",
)  # how the column of known alignments may be called


def print_translations_with_alignments(
    run: str,
    inputs: Inputs,
    *,
    as_json: bool,
    decoding: GenerationConfig,
    engine: EngineFlags,
    gold_alignments: str = "",
) -> int:
    """A line for each text: the translation, a tab and its links; `best_head` is a file to find the head on."""
    from saccade.cli.exit_codes import run_command

    def work() -> int:
        from saccade.cli.inputs import iter_examples, open_run_for_task

        try:
            decoding.check()
        except UsageError as error:
            raise UsageError(str(error)) from None
        if decoding.n_best > 1:
            raise UsageError("--align is about one translation of each text; leave --n-best out.")
        found = open_run_for_task(run, "translate")
        task, found.model = found.task, engine.prepare(found.model)
        model = found.model
        where = None
        if gold_alignments:
            where, said = choose_alignment_head(model, gold_alignments)
            print(f"saccade translate: {said}", file=sys.stderr)
        examples = iter_examples(task, inputs.texts, inputs.data, inputs.columns)
        for looks, links in _translate_and_align(task, model, examples, decoding, where):
            print(_format_line(looks, links, as_json), flush=True)
        return 0

    return run_command("translate", work)


def choose_alignment_head(
    model: "Model", file: str, layers: Sequence[int] | None = None
) -> "tuple[AlignmentHead, str]":
    """The head with the fewest errors on the sentences of a file, and a line that says so."""
    from saccade.data import Role
    from saccade.data.read import read_examples
    from saccade.explain.word_alignment import choose_best_head
    from saccade.tasks.translate import SOURCE, TARGET

    found = read_examples([file], [SOURCE, TARGET, Role("alignment", "text", ALIGNMENT_COLUMN_NAMES)]).examples
    pairs = [(one["source"], one["target"]) for one in found]
    where, rate = choose_best_head(model, pairs, [one["alignment"] for one in found], layers=layers)
    return where, f"aligned by {where}, whose alignment error rate is {rate:.3f} on {len(found):,} sentences of {file}"


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
        looks = look_at(make_input(task, model, {"source": example["source"]}), decoding=decoding)
        yield looks, align_words(looks, head)


def _format_line(maps: "AttentionMaps", alignment: "Alignment", as_json: bool) -> str:
    if not as_json:
        return f"{maps.generated_text}\t{alignment.to_pharaoh()}"
    said = {
        "text": maps.generated_text,
        "alignment": alignment.to_pharaoh(),
        "head": str(alignment.alignment_head),
    }
    return json_text.dumps(
        said | {"source_words": alignment.source, "target_words": alignment.target}, ensure_ascii=False
    )
