"""Looks told in lines and in JSON: the answer, each head in a word with its strongest links, and what else was asked."""

import json
from collections.abc import Sequence

from saccade.explain.axis import Token
from saccade.explain.faithfulness import Faithfulness
from saccade.explain.head_stats import HeadStats, compute_head_stats, compute_map_head_stats, find_strongest_links
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.word_alignment import Alignment
from saccade.render.svg import display_width, format_token

MAX_HEADS_SHOWN = 40  # heads in a summary
MAX_TOKEN_COLUMNS = 14  # columns of a token


def format_summary(attention_maps: AttentionMaps) -> list[str]:
    """The answer, and a line for each head: what it does, and its strongest links."""
    said = [
        f"answer: {attention_maps.answer}"
        if attention_maps.answer
        else f"no answer: {attention_maps.no_answer_reason or 'none was given'}"
    ]
    said += format_truncations(attention_maps)
    lines = [
        _format_head(seen, place, head)
        for seen in attention_maps.maps
        if seen.kind in ATTENTION_KINDS
        for place, head in enumerate(compute_map_head_stats(seen))
    ]
    said += lines[-MAX_HEADS_SHOWN:] if len(lines) > MAX_HEADS_SHOWN else lines
    if len(lines) > MAX_HEADS_SHOWN:
        said.insert(
            len(said) - MAX_HEADS_SHOWN,
            f"the last {MAX_HEADS_SHOWN} of {len(lines)} heads; --layer and --head choose others, --json has all",
        )
    return said + [_format_gates_or_channels(seen) for seen in attention_maps.maps if seen.kind in ("gate", "channel")]


def format_truncations(attention_maps: AttentionMaps) -> list[str]:
    """What was left out of the text that was read or written, a line each; nothing where all of it is there."""
    lines = []
    if attention_maps.truncated_input_tokens:
        tokens = "token was" if attention_maps.truncated_input_tokens == 1 else "tokens were"
        lines.append(
            f"cut: the text is longer than the model can read, so its last {attention_maps.truncated_input_tokens:,} {tokens} not read"
        )
    if attention_maps.truncated_at is not None:
        full = (
            attention_maps.max_output_tokens is not None
            and attention_maps.truncated_at >= attention_maps.max_output_tokens
        )
        cure = "the most that the model has room for" if full else "--max-new-tokens sets how many it may write"
        lines.append(f"cut at {attention_maps.truncated_at} tokens: the text did not end by itself; {cure}")
    return lines


def _format_head(attention_map: AttentionMap, head_index: int, head: HeadStats) -> str:
    strongest = ", ".join(
        f"{format_token(a, MAX_TOKEN_COLUMNS)} → {format_token(b, MAX_TOKEN_COLUMNS)} {weight:.2f}"
        for a, b, weight in find_strongest_links(attention_map, head_index)
    )
    name = f"{attention_map.title}, {attention_map.head_name(head_index)}"
    return f"{name}{' ' * max(1, 34 - display_width(name))}{head.label:<35}{strongest}"


def _format_gates_or_channels(attention_map: AttentionMap) -> str:
    """Gates and channels in the mean."""
    parts = (
        [f"{attention_map.head_name(i)} {attention_map.weights[i].mean():.2f}" for i in range(len(attention_map.heads))]
        if attention_map.gates
        else []
    )
    if not parts:
        parts = [
            f"{attention_map.weights.size(-1)} channels, {attention_map.weights.min():.2f} to {attention_map.weights.max():.2f}"
        ]
    return (
        f"{attention_map.title:<34}open in the mean: {', '.join(parts)}"
        if attention_map.gates
        else f"{attention_map.title:<34}{parts[0]}"
    )


def to_json(attention_maps: AttentionMaps, alignment: Alignment | None, faithfulness: list[Faithfulness]) -> str:
    axes = {}
    for seen in attention_maps.maps:
        axes.setdefault(seen.query.kind, _tokens_to_json(seen.query.tokens))
        axes.setdefault(seen.key.kind, _tokens_to_json(seen.key.tokens))
    said = {
        "model": attention_maps.model,
        "answer": attention_maps.answer,
        "generated_text": attention_maps.generated_text,
        "no_answer_reason": attention_maps.no_answer_reason,
        "truncated_at": attention_maps.truncated_at,
        "truncated_input_tokens": attention_maps.truncated_input_tokens,
        "texts": attention_maps.texts,
        "tokens": axes,
        "heads": [_head_to_json(head) for head in compute_head_stats(attention_maps)],
    }
    if alignment is not None:
        said["alignment"] = {"pharaoh": alignment.to_pharaoh(), "source": alignment.source, "target": alignment.target}
    if faithfulness:
        said["faithfulness"] = [vars(one) | {"label": one.label} for one in faithfulness]
    return json.dumps(said, ensure_ascii=False)


def _head_to_json(head: HeadStats) -> dict[str, object]:
    """A head as JSON can hold it: what is no number is null."""
    where: dict[str, object] = {
        "side": head.side,
        "layer": head.layer,
        "kind": head.kind,
        "head": head.head,
        "label": head.label,
    }
    numbers: dict[str, object] = {key: None if value != value else value for key, value in vars(head.metrics).items()}
    return where | numbers


def _tokens_to_json(tokens: Sequence[Token]) -> list[dict[str, object]]:
    return [
        {"name": token.name, "start": token.span[0], "end": token.span[1], "text_index": token.text_index}
        for token in tokens
    ]


def format_extra_lines(alignment: Alignment | None, faithfulness: list[Faithfulness]) -> list[str]:
    """What else was asked, in lines."""
    lines = [str(one) for one in faithfulness]
    if alignment is not None:
        pairs = ", ".join(f"{alignment.source[s]} → {alignment.target[t]}" for s, t in sorted(alignment.links))
        lines += [f"alignment by {alignment.alignment_head}: {pairs}", alignment.to_pharaoh()]
    return lines
