"""Looks told in lines and in JSON: the answer, each head in a word with its strongest links, and what else was asked."""

import json
from collections.abc import Sequence

from saccade.explain.agreement import Agreement
from saccade.explain.align import Alignment
from saccade.explain.axis import Token
from saccade.explain.heads import Head, heads, heads_of, links
from saccade.explain.looks import ATTENTION, Looks, Seen
from saccade.explain.svg import columns, readable

LINES = 40  # heads in a summary
WIDE = 14  # columns of a token


def summary(found: Looks) -> list[str]:
    """The answer, and a line for each head: what it does, and its strongest links."""
    said = [f"answer: {found.answer}" if found.answer else f"no answer: {found.no_answer or 'none was given'}"]
    said += cuts(found)
    lines = [
        _head_line(seen, place, head)
        for seen in found.maps
        if seen.kind in ATTENTION
        for place, head in enumerate(heads_of(seen))
    ]
    said += lines[-LINES:] if len(lines) > LINES else lines
    if len(lines) > LINES:
        said.insert(
            len(said) - LINES,
            f"the last {LINES} of {len(lines)} heads; --layer and --head choose others, --json has all",
        )
    return said + [_other_line(seen) for seen in found.maps if seen.kind in ("gate", "channel")]


def cuts(found: Looks) -> list[str]:
    """What was left out of the text that was read or written, a line each; nothing where all of it is there."""
    lines = []
    if found.unread:
        tokens = "token was" if found.unread == 1 else "tokens were"
        lines.append(f"cut: the text is longer than the model can read, so its last {found.unread:,} {tokens} not read")
    if found.cut is not None:
        full = found.room is not None and found.cut >= found.room
        cure = "the most that the model has room for" if full else "--length sets how many it may write"
        lines.append(f"cut at {found.cut} tokens: the text did not end by itself; {cure}")
    return lines


def _head_line(seen: Seen, place: int, head: Head) -> str:
    strongest = ", ".join(
        f"{readable(a, WIDE)} → {readable(b, WIDE)} {weight:.2f}" for a, b, weight in links(seen, place)
    )
    name = f"{seen.title}, {seen.called(place)}"
    return f"{name}{' ' * max(1, 34 - columns(name))}{head.named:<35}{strongest}"


def _other_line(seen: Seen) -> str:
    """Gates and channels in the mean."""
    parts = [f"{seen.called(i)} {seen.weights[i].mean():.2f}" for i in range(len(seen.heads))] if seen.gates else []
    if not parts:
        parts = [f"{seen.weights.size(-1)} channels, {seen.weights.min():.2f} to {seen.weights.max():.2f}"]
    return f"{seen.title:<34}open in the mean: {', '.join(parts)}" if seen.gates else f"{seen.title:<34}{parts[0]}"


def as_json(found: Looks, aligned: Alignment | None, agreed: list[Agreement]) -> str:
    axes = {}
    for seen in found.maps:
        axes.setdefault(seen.query.of, _tokens(seen.query.tokens))
        axes.setdefault(seen.key.of, _tokens(seen.key.tokens))
    said = {
        "model": found.model,
        "answer": found.answer,
        "written": found.written,
        "no_answer": found.no_answer,
        "cut": found.cut,
        "unread": found.unread,
        "texts": found.texts,
        "tokens": axes,
        "heads": [_head_object(head) for head in heads(found)],
    }
    if aligned is not None:
        said["alignment"] = {"pharaoh": aligned.pharaoh(), "source": aligned.source, "target": aligned.target}
    if agreed:
        said["agreement"] = [vars(one) | {"label": one.label} for one in agreed]
    return json.dumps(said, ensure_ascii=False)


def _head_object(head: Head) -> dict[str, object]:
    """A head as JSON can hold it: what is no number is null."""
    where: dict[str, object] = {
        "side": head.side,
        "layer": head.layer,
        "kind": head.kind,
        "head": head.head,
        "named": head.named,
    }
    numbers: dict[str, object] = {key: None if value != value else value for key, value in vars(head.numbers).items()}
    return where | numbers


def _tokens(tokens: Sequence[Token]) -> list[dict[str, object]]:
    return [{"name": token.name, "start": token.span[0], "end": token.span[1], "text": token.text} for token in tokens]


def more(aligned: Alignment | None, agreed: list[Agreement]) -> list[str]:
    """What else was asked, in lines."""
    lines = [str(one) for one in agreed]
    if aligned is not None:
        pairs = ", ".join(f"{aligned.source[s]} → {aligned.target[t]}" for s, t in sorted(aligned.links))
        lines += [f"alignment by {aligned.where}: {pairs}", aligned.pharaoh()]
    return lines
