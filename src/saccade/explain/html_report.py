"""Attention maps as an HTML report or as the output of a notebook cell: the prediction, heat maps, all heads, overlays, gates."""

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from saccade.explain.head_stats import TABLE_COLUMNS, compute_head_stats, make_table_rows
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.overlay import describe_brightness, render_overlays
from saccade.explain.text_summary import format_truncations
from saccade.explain.word_alignment import Alignment
from saccade.render.page import (
    Block,
    FactList,
    Figure,
    Gallery,
    Heading,
    Paragraph,
    Section,
    Table,
    Thumbnail,
    render_notebook_cell,
    render_page,
    write_page,
)
from saccade.render.raster import image_to_data_url, matrix_to_data_url, render_heatmap
from saccade.render.svg import format_label, shorten

MAX_HEATMAPS = 6  # large heat maps with token labels on a page
MAX_THUMBNAILS = 400  # heads as thumbnails on a page
MAX_PREDICTION_COLUMNS = 400  # columns of a prediction in a notebook cell
MAX_OVERLAY_NAME_COLUMNS = 24
HEAD_PIXELS, GATE_PIXELS, CHANNEL_STRIP_PIXELS = (96, 96), (160, 160), (320, 28)  # of thumbnails
HEATMAP_HELP = (
    "Each row is a query token and each column a key token. A weight is the fraction of the output at the query that comes from "
    "the value of the key. It does not say how large that value is, nor that the prediction depends on it."
)


def render_notebook_html(attention_maps: AttentionMaps) -> str:
    """The output of a notebook cell: the prediction and the most informative map."""
    prediction = (
        f"prediction: {shorten(attention_maps.answer, MAX_PREDICTION_COLUMNS)}"
        if attention_maps.answer
        else f"no prediction: {attention_maps.no_answer_reason}"
    )
    lines = [f"model: {attention_maps.model}", prediction, *format_truncations(attention_maps)]
    blocks: list[Block] = [Paragraph(line) for line in lines]
    if attention_maps.maps:
        overlays = _overlay_blocks(attention_maps)
        blocks += overlays or _mean_blocks(attention_maps.most_informative())
    return render_notebook_cell(blocks)


def write_html_report(
    attention_maps: AttentionMaps, path: Path, *, title: str = "", extra_sections: Sequence[Section] = ()
) -> None:
    """Write all maps as one HTML file; `extra_sections`, such as a word alignment, come last."""
    sections = [*make_sections(attention_maps), *extra_sections]
    write_page(path, render_page(title or f"Attention of {attention_maps.model}", sections))


def make_sections(attention_maps: AttentionMaps) -> list[Section]:
    """The sections of the report; those that have nothing to show are empty."""
    heads = make_table_rows(compute_head_stats(attention_maps))
    return [
        Section("Input and prediction", [FactList(_input_facts(attention_maps))]),
        Section("Attention over the image", _overlay_blocks(attention_maps)),
        Section("Attention heat maps", _heatmap_blocks(attention_maps)),
        Section("All layers and heads", _thumbnail_blocks(attention_maps)),
        Section("Gates over time", [b for m in attention_maps.maps if m.kind == "gate" for b in _gate_blocks(m)]),
        Section("Channels", [b for m in attention_maps.maps if m.kind == "channel" for b in _channel_blocks(m)]),
        Section("Head statistics", [Table(TABLE_COLUMNS, heads, label="heads")] if heads else []),
    ]


def _input_facts(attention_maps: AttentionMaps) -> list[tuple[str, str]]:
    inputs = [text for text in attention_maps.texts if text and text != attention_maps.generated_text]
    facts = [("model", attention_maps.model)]
    facts += [(f"text {i + 1}" if len(inputs) > 1 else "text", text) for i, text in enumerate(inputs)]
    if attention_maps.answer:
        facts.append(("prediction", attention_maps.answer))
    elif attention_maps.no_answer_reason:
        facts.append(("no prediction", attention_maps.no_answer_reason))
    return facts + [("truncated", line.removeprefix("truncated: ")) for line in format_truncations(attention_maps)]


def make_alignment_section(alignment: Alignment | None) -> list[Section]:
    """The word alignment as a heat map of words and in Pharaoh format; no section if no words are aligned."""
    if alignment is None or not alignment.links:
        return []
    title = f"Word alignment by {alignment.alignment_head}"
    axes = ("target ↓", "source →")
    svg = render_heatmap(alignment.weights, alignment.target, alignment.source, title=title, axes=axes)
    return [Section("Word alignment", [Figure(svg, title, f"source-target: {alignment.to_pharaoh()}")])]


def _overlay_blocks(attention_maps: AttentionMaps) -> list[Block]:
    thumbnails = []
    for overlay in render_overlays(attention_maps):
        name = format_label(overlay.name, MAX_OVERLAY_NAME_COLUMNS)
        thumbnails.append(Thumbnail(image_to_data_url(overlay.image), name, name, smooth=True))
    return [Paragraph(describe_brightness(attention_maps), "soft"), Gallery(thumbnails)] if thumbnails else []


def _mean_blocks(attention_map: AttentionMap) -> list[Block]:
    """The mean of all heads as a heat map; gates and channels in their own form."""
    if attention_map.kind == "gate":
        return _gate_blocks(attention_map)
    if attention_map.kind == "channel":
        return _channel_blocks(attention_map)
    head_count = len(attention_map.heads)
    heads = f"mean of {head_count} heads" if head_count > 1 else attention_map.head_name(0)
    return [_make_heatmap(attention_map, attention_map.mean, f"{attention_map.title}, {heads}")]


def _make_heatmap(attention_map: AttentionMap, weights: Tensor, title: str) -> Figure:
    rows, columns = attention_map.query_names, attention_map.key_names
    svg = render_heatmap(weights, rows, columns, title=title, vmax=attention_map.vmax)
    return Figure(svg, title, "Each row sums to one." if attention_map.sums_to_one else "")


def _heatmap_blocks(attention_maps: AttentionMaps) -> list[Block]:
    """The last map of each kind and side: the mean of its heads, and the head with the lowest entropy."""
    last: dict[tuple[str, str], AttentionMap] = {}
    for m in attention_maps.maps:
        if m.kind in ATTENTION_KINDS:
            last[m.kind, m.side] = m
    blocks: list[Block] = []
    for m in sorted(last.values(), key=lambda m: ("cross", "image", "self").index(m.kind)):
        blocks += _mean_blocks(m)
        if len(m.heads) > 1 and m.key_index is None:
            head = m.find_sharpest_head()
            blocks.append(_make_heatmap(m, m.weights[head], f"{m.title}, {m.head_name(head)}, lowest entropy"))
    return [Paragraph(HEATMAP_HELP), *blocks[:MAX_HEATMAPS]] if blocks else []


def _thumbnail_blocks(attention_maps: AttentionMaps) -> list[Block]:
    """Every head as a thumbnail, with a gallery for each layer."""
    blocks: list[Block] = []
    count = 0
    for m in attention_maps.maps:
        if m.kind not in ATTENTION_KINDS or count >= MAX_THUMBNAILS:
            continue
        labels = [head.label for head in compute_head_stats(AttentionMaps("", (m,), ()))]
        weights = m.to_dense()
        count += len(weights)
        thumbnails = [
            Thumbnail(
                matrix_to_data_url(weights[i], vmax=m.vmax),
                f"{m.title}, {m.head_name(i)}",
                f"{m.head_name(i)}: {label}",
                HEAD_PIXELS,
            )
            for i, label in enumerate(labels)
        ]
        scale = f"One scale for all heads of this layer: no color is a weight of 0, full color is {m.vmax:.3g}."
        blocks += [Heading(m.title), Paragraph(scale, "soft"), Gallery(thumbnails)]
    return blocks


def _gate_blocks(gate_map: AttentionMap) -> list[Block]:
    """How far each gate is open at each token, as the mean over units, and every unit as a row of a thumbnail."""
    title = f"{gate_map.title}: how far each gate is open, mean of {gate_map.weights.size(-1)} units"
    means, axes = gate_map.weights.mean(-1), ("gate ↓", "token →")
    svg = render_heatmap(means, gate_map.gates, gate_map.query_names, title=title, axes=axes, vmax=1.0)
    thumbnails = [
        Thumbnail(
            matrix_to_data_url(gate_map.weights[i].T, vmax=1.0),
            f"{gate_map.title}, {gate}",
            f"{gate}, a row for each unit",
            GATE_PIXELS,
        )
        for i, gate in enumerate(gate_map.gates)
    ]
    return [Figure(svg, title), Gallery(thumbnails)]


def _channel_blocks(channel_map: AttentionMap) -> list[Block]:
    """The weights of all channels as a strip, and the numbers of the largest and the smallest."""
    values = channel_map.weights[0, 0]
    order = values.argsort(descending=True).tolist()
    largest, smallest = (", ".join(f"{i} ({values[i]:.2f})" for i in some) for some in (order[:5], order[-5:]))
    strip = Thumbnail(
        matrix_to_data_url(values[None]), channel_map.title, f"{len(order)} channels", CHANNEL_STRIP_PIXELS
    )
    return [
        Heading(channel_map.title),
        Gallery([strip]),
        Paragraph(f"Channels with the largest weights: {largest}; with the smallest: {smallest}.", "soft"),
    ]
