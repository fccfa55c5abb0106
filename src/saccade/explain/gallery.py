"""Looks as one HTML file, or as a piece of a notebook: the answer, all heads side by side, heat maps, pictures, gates."""

from collections.abc import Sequence
from pathlib import Path

from saccade.explain.align import Alignment
from saccade.explain.heads import COLUMNS, heads, table
from saccade.explain.looks import ATTENTION, Looks, Seen
from saccade.explain.overlay import brightness, views
from saccade.explain.page import figure, page, pairs, prose, write_page
from saccade.explain.page import table as lines
from saccade.explain.raster import address, drawing, thumbnail
from saccade.explain.svg import escape, label, shorten
from saccade.explain.told import cuts

LARGE = 6  # heat maps with names on a page
SMALL = 400  # heads as small pictures on a page
STYLE = (
    "<style>.heads{display:flex;flex-wrap:wrap;gap:.6rem;margin:0 0 1.2rem}.heads figure{margin:0;max-width:11rem}"
    ".heads img{display:block;image-rendering:pixelated;border:1px solid #8886}.heads .view img{image-rendering:auto}"
    ".heads figcaption{font-size:.75rem;line-height:1.3;color:inherit;max-width:11rem}</style>"
)
READING = (
    "A row is a token that looks, a column one that is looked at. A weight is the share that the value of a token has in the sum "
    "at this place. It does not say how large that value is, nor that the answer depends on it."
)


def brief(looks: Looks) -> str:
    """What a notebook shows: the answer and the map that says most."""
    said = f"answer: {escape(shorten(looks.answer, 400))}" if looks.answer else f"no answer: {escape(looks.no_answer)}"
    top = f"<p>model: {escape(looks.model)}<br><b>{said}</b></p>" + "".join(prose(line) for line in cuts(looks))
    if not looks.maps:
        return top
    seen = looks.telling()
    drawn = STYLE + _views(looks) if views(looks) else _mean(seen)
    return f'<div style="overflow-x:auto">{top}{drawn}</div>'


def write_gallery(looks: Looks, path: Path, *, title: str = "", more: Sequence[tuple[str, str]] = ()) -> None:
    """Write everything as one page; `more` are further sections, such as an alignment."""
    write_page(path, page(title or f"Where {looks.model} looked", [*sections(looks), *more]))


def sections(looks: Looks) -> list[tuple[str, str]]:
    """The parts of the page, each with its heading; what there is none of is empty."""
    read = [text for text in looks.texts if text and text != looks.written]
    facts = [
        ("model", looks.model),
        *((f"text {i + 1}" if len(read) > 1 else "text", text) for i, text in enumerate(read)),
    ]
    facts += [("answer", looks.answer)] if looks.answer else [("no answer", looks.no_answer)] if looks.no_answer else []
    facts += [("cut", line.removeprefix("cut: ")) for line in cuts(looks)]
    found = heads(looks)
    rows = f'<div class="scroll" tabindex="0" role="group" aria-label="heads">{lines(COLUMNS, table(found))}</div>'
    return [
        ("What was asked", pairs(facts)),
        ("On the picture", STYLE + _views(looks) if views(looks) else ""),
        ("Where it looked", _maps(looks)),
        ("All layers and heads", _small(looks)),
        ("Gates over time", "".join(_gates(m) for m in looks.maps if m.kind == "gate")),
        ("Channels", "".join(_channels(m) for m in looks.maps if m.kind == "channel")),
        ("What each head does", rows if found else ""),
    ]


def alignment_section(found: Alignment | None) -> list[tuple[str, str]]:
    """Which word became which, as a matrix of words and in Pharaoh's format."""
    if found is None or not found.links:
        return []
    title = f"Alignment by {found.where}"
    drawn = drawing(found.weights, found.target, found.source, title=title, axes=("written ↓", "read →"))
    return [("Alignment", figure(drawn, name=title, caption=f"source-target: {found.pharaoh()}"))]


def _views(looks: Looks) -> str:
    drawn = []
    for view in views(looks):
        name = label(view.name, 24)
        image = f'<img src="{address(view.image)}" alt="{escape(name)}">'
        drawn.append(f'<figure class="view">{image}<figcaption>{escape(name)}</figcaption></figure>')
    return prose(brightness(looks), kind="soft") + f'<div class="heads">{"".join(drawn)}</div>'


def _mean(seen: Seen) -> str:
    many = len(seen.heads)
    title = f"{seen.title}, mean of {many} heads" if many > 1 else f"{seen.title}, {seen.called(0)}"
    if seen.kind == "gate":
        return _gates(seen)
    if seen.kind == "channel":
        return _channels(seen)
    return drawing(seen.mean, seen.rows, seen.columns, title=title, most=seen.top)


def _maps(looks: Looks) -> str:
    """The last map of each kind and side, the mean of its heads, and its sharpest head."""
    chosen: dict[tuple[str, str], Seen] = {}
    for seen in looks.maps:
        if seen.kind in ATTENTION:
            chosen[seen.kind, seen.side] = seen
    drawn = []
    for seen in sorted(chosen.values(), key=lambda m: ("across", "picture", "self").index(m.kind)):
        drawn.append(figure(_mean(seen), name=seen.title, caption="Every row sums to one." if seen.sums_to_one else ""))
        if len(seen.heads) > 1 and seen.at is None:
            head = seen.sharpest()
            name = f"{seen.title}, {seen.called(head)}, the sharpest"
            sharp = drawing(seen.weights[head], seen.rows, seen.columns, title=name, most=seen.top)
            drawn.append(figure(sharp, name=name))
    return prose(READING) + "\n".join(drawn[:LARGE]) if drawn else ""


def _small(looks: Looks) -> str:
    """Every head as a small picture, a line for each layer."""
    out, count = [STYLE], 0
    for seen in looks.maps:
        if seen.kind not in ATTENTION or count >= SMALL:
            continue
        named = [head.named for head in heads(Looks("", (seen,), ()))]
        weights = seen.dense()
        count += len(weights)
        small = "".join(
            thumbnail(weights[i], f"{seen.title}, {seen.called(i)}", f"{seen.called(i)}: {named[i]}", top=seen.top)
            for i in range(len(weights))
        )
        out.append(f"<h3>{escape(seen.title)}</h3>{_scale(seen)}<div class='heads'>{small}</div>")
    return "".join(out) if count else ""


def _scale(seen: Seen) -> str:
    """What the colors of small pictures stand for, which have no legend of their own."""
    return prose(f"All heads of this layer: no color is a weight of 0, full color is {seen.top:.3g}.", kind="soft")


def _gates(seen: Seen) -> str:
    """How far each gate is open at each token, in the mean, and every unit as a small picture."""
    title = f"{seen.title}: how far open, mean of {seen.weights.size(-1)} units"
    small = "".join(
        thumbnail(seen.weights[i].T, f"{seen.title}, {gate}", f"{gate}, unit by unit", width=160, top=1.0)
        for i, gate in enumerate(seen.gates)
    )
    axes = ("gate ↓", "token →")
    drawn = drawing(seen.weights.mean(-1), seen.gates, seen.rows, title=title, axes=axes, most=1.0)
    return STYLE + figure(drawn, name=title) + f'<div class="heads">{small}</div>'


def _channels(seen: Seen) -> str:
    """How much of each channel passes: the strongest and the weakest by number, and all as a strip."""
    values = seen.weights[0, 0]
    order = values.argsort(descending=True).tolist()
    most = ", ".join(f"{i} ({values[i]:.2f})" for i in order[:5])
    least = ", ".join(f"{i} ({values[i]:.2f})" for i in order[-5:])
    strip = thumbnail(values[None], seen.title, f"{len(order)} channels", width=320).replace(
        "height:320px", "height:28px"
    )
    return (
        f"<h3>{escape(seen.title)}</h3>"
        + STYLE
        + f'<div class="heads">{strip}</div>'
        + prose(f"Most of channel {most}; least of {least}.", kind="soft")
    )
