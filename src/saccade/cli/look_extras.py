"""What `saccade look` finds out besides maps: a word in two contexts, what heads are worth, and the positions of a model."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from saccade.cli.commands.look import LookExtras, LookSelection
    from saccade.render.page import Section
    from saccade.render.plot import Heatmap, LineChart


def compare_word_contexts(run: str, text: Sequence[str], word: str, html: str, png: str, *, as_json: bool) -> int:
    """A line for each layer."""
    from saccade.explain import word_contexts as words
    from saccade.explain.report_sections import make_word_charts, make_word_sections

    steps = words.compare_contexts(run, text[0], text[1], word)
    _write_files(
        f"{word} in two contexts",
        html,
        png,
        lambda: make_word_sections(steps, word, text),
        lambda: make_word_charts(steps, word),
    )
    if as_json:
        print(json.dumps([vars(step) for step in steps], ensure_ascii=False))
    else:
        print(f"{word!r} in {text[0]!r} and in {text[1]!r}:", *steps, sep="\n")
    return 0


def print_head_importance(
    run: str, selection: "LookSelection", extras: "LookExtras", html: str, png: str, *, as_json: bool
) -> int:
    """A line for each head and layer, the most useful first."""
    from saccade.data.read import read_examples
    from saccade.explain.ablate import list_heads, measure_head_importance
    from saccade.explain.report_sections import make_importance_heatmaps, make_importance_sections
    from saccade.tasks.runs.run import open_run

    opened = open_run(run)
    task, model = opened.task, opened.model
    examples = read_examples(extras.data, task.roles(extras.data)).examples if extras.data else opened.held_out
    every = [*list_heads(model, whole_layers=True), *list_heads(model)]
    layers = {one.layer for one in every}
    wanted = {layer + max(layers) + 1 if layer < 0 else layer for layer in selection.layer} or layers
    chosen = [
        one
        for one in every
        if one.layer in wanted and (one.head is None or not selection.head or one.head in selection.head)
    ]
    found = measure_head_importance(
        task, model, examples[: extras.max_examples], head_refs=chosen, bootstrap_samples=extras.bootstrap_samples
    )
    _write_files(
        "What each head is worth",
        html,
        png,
        lambda: make_importance_sections(found),
        lambda: make_importance_heatmaps(found),
    )
    for one in found:
        print(json.dumps(vars(one) | {"head_ref": str(one.head_ref)}) if as_json else one, flush=True)
    return 0


def show_architecture(run: str, html: str, png: str, *, as_json: bool) -> int:
    """The barcode of the model's positions and the pattern of its stacks, as characters or as a picture."""
    from saccade.attention.ascii_heatmap import ascii_heatmap
    from saccade.explain.architecture_maps import build_architecture_maps
    from saccade.explain.inputs import open_with_task
    from saccade.render.page import Figure, Section

    panels = build_architecture_maps(open_with_task(run)[1])

    def sections() -> list[Section]:
        return [Section(one.title, [Figure(one.to_svg(), one.title)]) for one in panels]

    _write_files("How it knows order", html, png, sections, lambda: panels)
    if as_json:
        print(json.dumps({one.title: one.matrix.tolist() for one in panels}))
        return 0
    for one in panels:
        print(f"{one.title}\n{ascii_heatmap(one.matrix[:16, :48], low=None if one.signed else 0.0)}\n")
    return 0


def _write_files(
    title: str,
    html: str,
    png: str,
    sections: "Callable[[], list[Section]]",
    panels: "Callable[[], Sequence[Heatmap | LineChart]]",
) -> None:
    """The files that were asked for."""
    if html:
        from saccade.render.page import render_page, write_page

        write_page(Path(html), render_page(title, sections()))
    if png:
        from saccade.cli.drawing import report_missing_fonts
        from saccade.render.plot import save_panels

        drawn = panels()
        with report_missing_fonts("look"):
            save_panels(Path(png), drawn, title=title if len(drawn) > 1 else "", columns=2)
    for name in filter(None, (html, png)):
        print(f"saccade look: wrote {name}", file=sys.stderr)
