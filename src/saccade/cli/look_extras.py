"""Further analyses of `saccade look`: a word in two contexts, head ablation, and position encodings and patterns."""

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
    """Print the similarity of a word's representations in two texts, one line per layer."""
    from saccade.explain import word_contexts as words
    from saccade.explain.report_sections import make_word_charts, make_word_sections

    steps = words.compare_contexts(run, text[0], text[1], word)
    sections, charts = lambda: make_word_sections(steps, word, text), lambda: make_word_charts(steps, word)
    _write_files(f"{word} in two contexts", html, png, sections, charts)
    if as_json:
        print(json.dumps([vars(step) for step in steps], ensure_ascii=False))
    else:
        print(f"{word!r} in {text[0]!r} and in {text[1]!r}:", *steps, sep="\n")
    return 0


def print_head_importance(
    run: str, selection: "LookSelection", extras: "LookExtras", html: str, png: str, *, as_json: bool
) -> int:
    """Print the importance of each layer and head, one per line, the most important first."""
    from saccade.data.read import read_examples
    from saccade.explain.ablate import list_heads, measure_head_importance
    from saccade.explain.report_sections import make_importance_heatmaps, make_importance_sections
    from saccade.tasks.runs.run import open_run

    opened = open_run(run)
    task, model = opened.task, opened.model
    examples = read_examples(extras.data, task.roles(extras.data)).examples if extras.data else opened.held_out
    refs = [*list_heads(model, whole_layers=True), *list_heads(model)]
    layers = {ref.layer for ref in refs}
    selected_layers = {layer + max(layers) + 1 if layer < 0 else layer for layer in selection.layer} or layers
    refs = [
        ref
        for ref in refs
        if ref.layer in selected_layers and (ref.head is None or not selection.head or ref.head in selection.head)
    ]
    results = measure_head_importance(
        task, model, examples[: extras.max_examples], head_refs=refs, bootstrap_samples=extras.bootstrap_samples
    )
    sections, heatmaps = lambda: make_importance_sections(results), lambda: make_importance_heatmaps(results)
    _write_files("Head importance", html, png, sections, heatmaps)
    for result in results:
        print(json.dumps(vars(result) | {"head_ref": str(result.head_ref)}) if as_json else result, flush=True)
    return 0


def show_architecture(run: str, html: str, png: str, *, as_json: bool) -> int:
    """Print the position encodings and the attention patterns of a model as heat maps of characters, or write plots."""
    from saccade.attention.ascii_heatmap import ascii_heatmap
    from saccade.explain.architecture_maps import build_architecture_maps
    from saccade.explain.inputs import open_with_task
    from saccade.render.page import Figure, Section

    panels = build_architecture_maps(open_with_task(run)[1])

    def sections() -> list[Section]:
        return [Section(panel.title, [Figure(panel.to_svg(), panel.title)]) for panel in panels]

    _write_files("Positions and attention patterns", html, png, sections, lambda: panels)
    if as_json:
        print(json.dumps({panel.title: panel.matrix.tolist() for panel in panels}))
        return 0
    for panel in panels:
        print(f"{panel.title}\n{ascii_heatmap(panel.matrix[:16, :48], low=None if panel.signed else 0.0)}\n")
    return 0


def _write_files(
    title: str,
    html: str,
    png: str,
    sections: "Callable[[], list[Section]]",
    panels: "Callable[[], Sequence[Heatmap | LineChart]]",
) -> None:
    """Write the HTML page and the plot, as far as they are requested."""
    if html:
        from saccade.render.page import render_page, write_page

        write_page(Path(html), render_page(title, sections()))
    if png:
        from saccade.cli.font_warnings import report_missing_fonts
        from saccade.render.plot import save_panels

        plots = panels()
        with report_missing_fonts("look"):
            save_panels(Path(png), plots, title=title if len(plots) > 1 else "", columns=2)
    for name in filter(None, (html, png)):
        print(f"saccade look: wrote {name}", file=sys.stderr)
