"""What `saccade look` finds out besides maps: a word in two contexts, what heads are worth, and the positions of a model."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.cli.look import Also, Which
    from saccade.explain.picture import Curves, Map


def contexts(run: str, text: Sequence[str], word: str, html: str, png: str, *, as_json: bool) -> int:
    """A line for each layer."""
    from saccade.explain import word as words
    from saccade.explain.findings import word_panels, word_sections

    steps = words.contexts(run, text[0], text[1], word)
    _write(
        f"{word} in two contexts", html, png, lambda: word_sections(steps, word, text), lambda: word_panels(steps, word)
    )
    if as_json:
        print(json.dumps([vars(step) for step in steps], ensure_ascii=False))
    else:
        print(f"{word!r} in {text[0]!r} and in {text[1]!r}:", *steps, sep="\n")
    return 0


def ablated(run: str, which: "Which", also: "Also", html: str, png: str, *, as_json: bool) -> int:
    """A line for each head and layer, the most useful first."""
    from saccade.data.read import read
    from saccade.explain.ablate import importance, switches
    from saccade.explain.findings import worth_panels, worth_sections
    from saccade.tasks.opening import open_run

    task, model = open_run(run)
    if also.data:
        examples = read(also.data, task.roles(also.data)).examples
    else:
        from saccade.training.job import held_out

        examples = held_out(run)
    every = [*switches(model, layers=True), *switches(model)]
    layers = {one.layer for one in every}
    wanted = {layer + max(layers) + 1 if layer < 0 else layer for layer in which.layer} or layers
    chosen = [
        one for one in every if one.layer in wanted and (one.head is None or not which.head or one.head in which.head)
    ]
    found = importance(task, model, examples[: also.examples], which=chosen, rounds=also.rounds)
    _write("What each head is worth", html, png, lambda: worth_sections(found), lambda: worth_panels(found))
    for one in found:
        print(json.dumps(vars(one) | {"switch": str(one.switch)}) if as_json else one, flush=True)
    return 0


def positions(run: str, html: str, png: str, *, as_json: bool) -> int:
    """The barcode of the model's positions and the pattern of its stacks, as characters or as a picture."""
    from saccade.attention.shade import shade
    from saccade.explain.built import built
    from saccade.explain.inputs import opened
    from saccade.explain.page import figure
    from saccade.explain.raster import drawing

    panels = built(opened(run)[1])

    def sections() -> list[tuple[str, str]]:
        drawn = []
        for one in panels:
            names = [[str(i) for i in range(count)] for count in one.matrix.shape]
            axes = (f"{one.rows} ↓", f"{one.columns} →")
            matrix = one.matrix if one.most is None else one.matrix.clamp(-one.most, one.most)
            drawn.append((one.title, figure(drawing(matrix, *names, title=one.title, axes=axes), name=one.title)))
        return drawn

    _write("How it knows order", html, png, sections, lambda: panels)
    if as_json:
        print(json.dumps({one.title: one.matrix.tolist() for one in panels}))
        return 0
    for one in panels:
        print(f"{one.title}\n{shade(one.matrix[:16, :48], low=None if one.signed else 0.0)}\n")
    return 0


def _write(
    title: str,
    html: str,
    png: str,
    sections: Callable[[], list[tuple[str, str]]],
    panels: "Callable[[], Sequence[Map | Curves]]",
) -> None:
    """The files that were asked for."""
    if html:
        from saccade.explain.page import page, write_page

        write_page(Path(html), page(title, sections()))
    if png:
        from saccade.cli.drawing import saying_missing_fonts
        from saccade.explain.picture import save

        drawn = panels()
        with saying_missing_fonts("look"):
            save(Path(png), drawn, title=title if len(drawn) > 1 else "", columns=2)
    for name in filter(None, (html, png)):
        print(f"saccade look: wrote {name}", file=sys.stderr)
