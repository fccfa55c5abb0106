"""Summaries of attention maps as lines of text and as JSON: the prediction, each head with its label and its largest weights."""

import json
from collections.abc import Sequence

from saccade.explain.axis import Token
from saccade.explain.faithfulness import Faithfulness
from saccade.explain.head_stats import HeadStats, compute_head_stats, compute_map_head_stats, find_strongest_links
from saccade.explain.maps import ATTENTION_KINDS, AttentionMap, AttentionMaps
from saccade.explain.word_alignment import Alignment
from saccade.render.svg import display_width, format_token

MAX_HEADS_SHOWN = 40
MAX_TOKEN_COLUMNS = 14


def format_summary(attention_maps: AttentionMaps) -> list[str]:
    """The prediction, and a line for each head: its label and its largest weights."""
    lines = [
        f"prediction: {attention_maps.answer}"
        if attention_maps.answer
        else f"no prediction: {attention_maps.no_answer_reason or 'the reason is unknown'}"
    ]
    lines += format_truncations(attention_maps)
    heads = [
        _format_head(m, index, head)
        for m in attention_maps.maps
        if m.kind in ATTENTION_KINDS
        for index, head in enumerate(compute_map_head_stats(m))
    ]
    if len(heads) > MAX_HEADS_SHOWN:
        lines.append(
            f"the last {MAX_HEADS_SHOWN} of {len(heads)} heads; --layer and --head choose others, --json has all"
        )
    lines += heads[-MAX_HEADS_SHOWN:]
    return lines + [_format_gates_or_channels(m) for m in attention_maps.maps if m.kind in ("gate", "channel")]


def format_truncations(attention_maps: AttentionMaps) -> list[str]:
    """A line if the input was truncated, and a line if the output was; empty if neither was."""
    lines = []
    if count := attention_maps.truncated_input_tokens:
        tokens = "token was" if count == 1 else "tokens were"
        lines.append(f"truncated: the input is longer than the model allows; its last {count:,} {tokens} not read")
    if attention_maps.truncated_at is not None:
        limit = attention_maps.max_output_tokens
        is_full = limit is not None and attention_maps.truncated_at >= limit
        reason = "the maximum length of the model" if is_full else "--max-new-tokens sets the limit"
        lines.append(f"truncated: generation stopped after {attention_maps.truncated_at} tokens; {reason}")
    return lines


def _format_head(attention_map: AttentionMap, head_index: int, head: HeadStats) -> str:
    strongest = ", ".join(
        f"{format_token(a, MAX_TOKEN_COLUMNS)} → {format_token(b, MAX_TOKEN_COLUMNS)} {weight:.2f}"
        for a, b, weight in find_strongest_links(attention_map, head_index)
    )
    name = f"{attention_map.title}, {attention_map.head_name(head_index)}"
    return f"{name}{' ' * max(1, 34 - display_width(name))}{head.label:<34} {strongest}"


def _format_gates_or_channels(attention_map: AttentionMap) -> str:
    """The mean of each gate, or the range of the channel weights."""
    weights = attention_map.weights
    if attention_map.gates:
        means = (f"{attention_map.head_name(i)} {weights[i].mean():.2f}" for i in range(len(attention_map.heads)))
        return f"{attention_map.title:<34}mean activation: {', '.join(means)}"
    return f"{attention_map.title:<34}{weights.size(-1)} channels, {weights.min():.2f} to {weights.max():.2f}"


def to_json(attention_maps: AttentionMaps, alignment: Alignment | None, faithfulness: list[Faithfulness]) -> str:
    axes = {}
    for m in attention_maps.maps:
        axes.setdefault(m.query.kind, _tokens_to_json(m.query.tokens))
        axes.setdefault(m.key.kind, _tokens_to_json(m.key.tokens))
    content = {
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
        content["alignment"] = {
            "pharaoh": alignment.to_pharaoh(),
            "source": alignment.source,
            "target": alignment.target,
        }
    if faithfulness:
        content["faithfulness"] = [vars(one) | {"label": one.label} for one in faithfulness]
    return json.dumps(content, ensure_ascii=False)


def _head_to_json(head: HeadStats) -> dict[str, object]:
    """The statistics of a head; nan becomes null."""
    location: dict[str, object] = {
        "side": head.side,
        "layer": head.layer,
        "kind": head.kind,
        "head": head.head,
        "label": head.label,
    }
    numbers: dict[str, object] = {key: None if value != value else value for key, value in vars(head.metrics).items()}
    return location | numbers


def _tokens_to_json(tokens: Sequence[Token]) -> list[dict[str, object]]:
    return [
        {"name": token.name, "start": token.span[0], "end": token.span[1], "text_index": token.text_index}
        for token in tokens
    ]


def format_extra_lines(alignment: Alignment | None, faithfulness: list[Faithfulness]) -> list[str]:
    """The faithfulness of each head and the word alignment, as lines."""
    lines = [str(one) for one in faithfulness]
    if alignment is not None:
        pairs = ", ".join(f"{alignment.source[s]} → {alignment.target[t]}" for s, t in sorted(alignment.links))
        lines += [f"alignment by {alignment.alignment_head}: {pairs}", alignment.to_pharaoh()]
    return lines
