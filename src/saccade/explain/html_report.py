"""Looks as one HTML file, or as a piece of a notebook: the answer, all heads side by side, heat maps, pictures, gates."""

from collections.abc import Sequence
from pathlib import Path

from saccade.explain.head_stats import TABLE_COLUMNS, compute_head_stats, make_table_rows
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.overlay import describe_brightness, render_overlays
from saccade.explain.text_summary import format_truncations
from saccade.explain.word_alignment import Alignment
from saccade.render.page import render_definition_list, render_figure, render_page, render_paragraph, write_page
from saccade.render.page import render_table as lines
from saccade.render.raster import image_to_data_url, render_heatmap, render_thumbnail
from saccade.render.svg import escape, format_label, shorten

MAX_LARGE_MAPS = 6  # heat maps with names on a page
MAX_THUMBNAILS = 400  # heads as small pictures on a page
GALLERY_CSS = (
    "<style>.heads{display:flex;flex-wrap:wrap;gap:.6rem;margin:0 0 1.2rem}.heads figure{margin:0;max-width:11rem}"
    ".heads img{display:block;image-rendering:pixelated;border:1px solid #8886}.heads .view img{image-rendering:auto}"
    ".heads figcaption{font-size:.75rem;line-height:1.3;color:inherit;max-width:11rem}</style>"
)
HOW_TO_READ = (
    "A row is a token that looks, a column one that is looked at. A weight is the share that the value of a token has in the sum "
    "at this place. It does not say how large that value is, nor that the answer depends on it."
)


def render_notebook_html(attention_maps: AttentionMaps) -> str:
    """What a notebook shows: the answer and the map that says most."""
    said = (
        f"answer: {escape(shorten(attention_maps.answer, 400))}"
        if attention_maps.answer
        else f"no answer: {escape(attention_maps.no_answer_reason)}"
    )
    top = f"<p>model: {escape(attention_maps.model)}<br><b>{said}</b></p>" + "".join(
        render_paragraph(line) for line in format_truncations(attention_maps)
    )
    if not attention_maps.maps:
        return top
    seen = attention_maps.most_informative()
    drawn = GALLERY_CSS + _render_overlays(attention_maps) if render_overlays(attention_maps) else _render_mean(seen)
    return f'<div style="overflow-x:auto">{top}{drawn}</div>'


def write_html_report(
    attention_maps: AttentionMaps, path: Path, *, title: str = "", extra_sections: Sequence[tuple[str, str]] = ()
) -> None:
    """Write everything as one page; `more` are further sections, such as an alignment."""
    write_page(
        path,
        render_page(title or f"Where {attention_maps.model} looked", [*make_sections(attention_maps), *extra_sections]),
    )


def make_sections(attention_maps: AttentionMaps) -> list[tuple[str, str]]:
    """The parts of the page, each with its heading; what there is none of is empty."""
    read = [text for text in attention_maps.texts if text and text != attention_maps.generated_text]
    facts = [
        ("model", attention_maps.model),
        *((f"text {i + 1}" if len(read) > 1 else "text", text) for i, text in enumerate(read)),
    ]
    facts += (
        [("answer", attention_maps.answer)]
        if attention_maps.answer
        else [("no answer", attention_maps.no_answer_reason)]
        if attention_maps.no_answer_reason
        else []
    )
    facts += [("cut", line.removeprefix("cut: ")) for line in format_truncations(attention_maps)]
    found = compute_head_stats(attention_maps)
    rows = f'<div class="scroll" tabindex="0" role="group" aria-label="heads">{lines(TABLE_COLUMNS, make_table_rows(found))}</div>'
    return [
        ("What was asked", render_definition_list(facts)),
        ("On the picture", GALLERY_CSS + _render_overlays(attention_maps) if render_overlays(attention_maps) else ""),
        ("Where it looked", _render_main_maps(attention_maps)),
        ("All layers and heads", _render_thumbnails(attention_maps)),
        ("Gates over time", "".join(_render_gates(m) for m in attention_maps.maps if m.kind == "gate")),
        ("Channels", "".join(_render_channels(m) for m in attention_maps.maps if m.kind == "channel")),
        ("What each head does", rows if found else ""),
    ]


def make_alignment_section(alignment: Alignment | None) -> list[tuple[str, str]]:
    """Which word became which, as a matrix of words and in Pharaoh's format."""
    if alignment is None or not alignment.links:
        return []
    title = f"Alignment by {alignment.alignment_head}"
    drawn = render_heatmap(
        alignment.weights, alignment.target, alignment.source, title=title, axes=("written ↓", "read →")
    )
    return [("Alignment", render_figure(drawn, name=title, caption=f"source-target: {alignment.to_pharaoh()}"))]


def _render_overlays(attention_maps: AttentionMaps) -> str:
    drawn = []
    for view in render_overlays(attention_maps):
        name = format_label(view.name, 24)
        image = f'<img src="{image_to_data_url(view.image)}" alt="{escape(name)}">'
        drawn.append(f'<figure class="view">{image}<figcaption>{escape(name)}</figcaption></figure>')
    return (
        render_paragraph(describe_brightness(attention_maps), css_class="soft")
        + f'<div class="heads">{"".join(drawn)}</div>'
    )


def _render_mean(attention_map: AttentionMap) -> str:
    many = len(attention_map.heads)
    title = (
        f"{attention_map.title}, mean of {many} heads"
        if many > 1
        else f"{attention_map.title}, {attention_map.head_name(0)}"
    )
    if attention_map.kind == "gate":
        return _render_gates(attention_map)
    if attention_map.kind == "channel":
        return _render_channels(attention_map)
    return render_heatmap(
        attention_map.mean, attention_map.query_names, attention_map.key_names, title=title, vmax=attention_map.vmax
    )


def _render_main_maps(attention_maps: AttentionMaps) -> str:
    """The last map of each kind and side, the mean of its heads, and its sharpest head."""
    chosen: dict[tuple[str, str], AttentionMap] = {}
    for seen in attention_maps.maps:
        if seen.kind in ATTENTION_KINDS:
            chosen[seen.kind, seen.side] = seen
    drawn = []
    for seen in sorted(chosen.values(), key=lambda m: ("cross", "image", "self").index(m.kind)):
        drawn.append(
            render_figure(
                _render_mean(seen), name=seen.title, caption="Every row sums to one." if seen.sums_to_one else ""
            )
        )
        if len(seen.heads) > 1 and seen.key_index is None:
            head = seen.find_sharpest_head()
            name = f"{seen.title}, {seen.head_name(head)}, the sharpest"
            sharp = render_heatmap(seen.weights[head], seen.query_names, seen.key_names, title=name, vmax=seen.vmax)
            drawn.append(render_figure(sharp, name=name))
    return render_paragraph(HOW_TO_READ) + "\n".join(drawn[:MAX_LARGE_MAPS]) if drawn else ""


def _render_thumbnails(attention_maps: AttentionMaps) -> str:
    """Every head as a small picture, a line for each layer."""
    out, count = [GALLERY_CSS], 0
    for seen in attention_maps.maps:
        if seen.kind not in ATTENTION_KINDS or count >= MAX_THUMBNAILS:
            continue
        named = [head.label for head in compute_head_stats(AttentionMaps("", (seen,), ()))]
        weights = seen.to_dense()
        count += len(weights)
        small = "".join(
            render_thumbnail(
                weights[i], f"{seen.title}, {seen.head_name(i)}", f"{seen.head_name(i)}: {named[i]}", vmax=seen.vmax
            )
            for i in range(len(weights))
        )
        out.append(f"<h3>{escape(seen.title)}</h3>{_render_scale_note(seen)}<div class='heads'>{small}</div>")
    return "".join(out) if count else ""


def _render_scale_note(attention_map: AttentionMap) -> str:
    """What the colors of small pictures stand for, which have no legend of their own."""
    return render_paragraph(
        f"All heads of this layer: no color is a weight of 0, full color is {attention_map.vmax:.3g}.", css_class="soft"
    )


def _render_gates(gate_map: AttentionMap) -> str:
    """How far each gate is open at each token, in the mean, and every unit as a small picture."""
    title = f"{gate_map.title}: how far open, mean of {gate_map.weights.size(-1)} units"
    small = "".join(
        render_thumbnail(
            gate_map.weights[i].T, f"{gate_map.title}, {gate}", f"{gate}, unit by unit", width=160, vmax=1.0
        )
        for i, gate in enumerate(gate_map.gates)
    )
    axes = ("gate ↓", "token →")
    drawn = render_heatmap(
        gate_map.weights.mean(-1), gate_map.gates, gate_map.query_names, title=title, axes=axes, vmax=1.0
    )
    return GALLERY_CSS + render_figure(drawn, name=title) + f'<div class="heads">{small}</div>'


def _render_channels(channel_map: AttentionMap) -> str:
    """How much of each channel passes: the strongest and the weakest by number, and all as a strip."""
    values = channel_map.weights[0, 0]
    order = values.argsort(descending=True).tolist()
    most = ", ".join(f"{i} ({values[i]:.2f})" for i in order[:5])
    least = ", ".join(f"{i} ({values[i]:.2f})" for i in order[-5:])
    strip = render_thumbnail(values[None], channel_map.title, f"{len(order)} channels", width=320).replace(
        "height:320px", "height:28px"
    )
    return (
        f"<h3>{escape(channel_map.title)}</h3>"
        + GALLERY_CSS
        + f'<div class="heads">{strip}</div>'
        + render_paragraph(f"Most of channel {most}; least of {least}.", css_class="soft")
    )
