"""`saccade translate RUN --align`: each translation with which word became which, in Pharaoh's format."""

import json as json_text
from typing import TYPE_CHECKING

from saccade.cli.engine import Engine
from saccade.cli.writing import Asked
from saccade.decoding.settings import Decoding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from saccade.data import Example
    from saccade.models.model import Model
    from saccade.tasks.task import Task


def write_aligned(run: str, asked: Asked, *, as_json: bool, decoding: Decoding, engine: Engine) -> int:
    """A line for each text: the translation, a tab and its links."""
    from saccade.cli.running import guarded

    def work() -> int:
        from saccade.cli.asking import each_example, opened
        from saccade.cli.settings import Wrong

        try:
            decoding.check()
        except ValueError as error:
            raise Wrong(str(error)) from None
        if decoding.n_best > 1:
            raise Wrong("--align is about one translation of each text; leave --n-best out.")
        task, model = opened(run, "translate")
        model = engine.ready(model)
        for line in _lines(task, model, each_example(task, asked.texts, asked.data, asked.columns), decoding, as_json):
            print(line, flush=True)
        return 0

    return guarded("translate", work)


def _lines(
    task: "Task", model: "Model", examples: "Iterator[Example]", decoding: Decoding, as_json: bool
) -> "Iterator[str]":
    from saccade.explain.align import align
    from saccade.explain.asked import ask
    from saccade.explain.look import look_at

    for example in examples:
        looks = look_at(ask(task, model, {"source": example["source"]}), decoding=decoding)
        found = align(looks)
        if as_json:
            said = {"translation": looks.written, "alignment": found.pharaoh(), "by": str(found.where)}
            words = {"source_words": found.source, "target_words": found.target}
            yield json_text.dumps(said | words, ensure_ascii=False)
        else:
            yield f"{looks.written}\t{found.pharaoh()}"
