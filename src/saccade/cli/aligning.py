"""`saccade translate RUN --align`: each translation with which word became which, in Pharaoh's format.

By which head is a choice: the sharpest of the last layer, or with --best-head FILE the one that errs least on sentences whose
alignments are known.
"""

import json as json_text
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from saccade.cli.engine import Engine
from saccade.cli.writing import Asked
from saccade.decoding.settings import Decoding
from saccade.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saccade.data import Example
    from saccade.explain.align import Alignment, Where
    from saccade.explain.looks import Looks
    from saccade.models.model import Model
    from saccade.tasks.task import Task


LINKS = ("alignment", "alignments", "links", "pharaoh")  # how the column of known alignments may be called


def write_aligned(
    run: str, asked: Asked, *, as_json: bool, decoding: Decoding, engine: Engine, best_head: str = ""
) -> int:
    """A line for each text: the translation, a tab and its links; `best_head` is a file to find the head on."""
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import each_example, opened
        from saccade.cli.settings import Wrong

        try:
            decoding.check()
        except UsageError as error:
            raise Wrong(str(error)) from None
        if decoding.n_best > 1:
            raise Wrong("--align is about one translation of each text; leave --n-best out.")
        task, model = opened(run, "translate")
        model = engine.ready(model)
        where = None
        if best_head:
            where, said = head_on(model, best_head)
            print(f"saccade translate: {said}", file=sys.stderr)
        examples = each_example(task, asked.texts, asked.data, asked.columns)
        for looks, found in _aligned(task, model, examples, decoding, where):
            print(_line(looks, found, as_json), flush=True)
        return 0

    return guarded("translate", work)


def head_on(model: "Model", file: str, layers: Sequence[int] | None = None) -> "tuple[Where, str]":
    """The head with the fewest errors on the sentences of a file, and a line that says so."""
    from saccade.data import Role
    from saccade.data.read import read
    from saccade.explain.align import best_head
    from saccade.tasks.translate import SOURCE, TARGET

    found = read([file], [SOURCE, TARGET, Role("alignment", "text", LINKS)]).examples
    pairs = [(one["source"], one["target"]) for one in found]
    where, rate = best_head(model, pairs, [one["alignment"] for one in found], layers=layers)
    return where, f"aligned by {where}, whose alignment error rate is {rate:.3f} on {len(found):,} sentences of {file}"


def _aligned(
    task: "Task", model: "Model", examples: "Iterator[Example]", decoding: Decoding, where: "Where | None"
) -> "Iterator[tuple[Looks, Alignment]]":
    from saccade.explain.align import align
    from saccade.explain.inputs import ask
    from saccade.explain.look import look_at

    for example in examples:
        looks = look_at(ask(task, model, {"source": example["source"]}), decoding=decoding)
        yield looks, align(looks, where)


def _line(looks: "Looks", found: "Alignment", as_json: bool) -> str:
    if not as_json:
        return f"{looks.written}\t{found.pharaoh()}"
    said = {"translation": looks.written, "alignment": found.pharaoh(), "by": str(found.where)}
    return json_text.dumps(said | {"source_words": found.source, "target_words": found.target}, ensure_ascii=False)
