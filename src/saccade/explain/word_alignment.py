"""Word alignment by cross-attention, in Pharaoh format, and its alignment error rate.

    alignment = align_words(looks)                         # 0-0 1-2 2-1: source word - target word
    head, error_rate = choose_best_head(model, pairs, gold)  # the head with the lowest alignment error rate
    alignment = align_words(looks, head)

Words are separated by spaces; in scripts without spaces a word is a token, or the character that several tokens encode. Each
target word is linked to the source word to which the head attends most. Depending on the head, a decoder attends to the source
of a word when it generates the word, or one step later when the word is its input (`AlignmentHead.is_shifted`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError
from saccade.explain.look import look
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.models.model import Model

AlignmentLinks = frozenset[tuple[int, int]]  # (index of the source word, index of the target word)


@dataclass(frozen=True)
class AlignmentHead:
    """A layer and a head of cross-attention, None for the mean of all heads; a shifted head uses the weights of the next step."""

    layer: int
    head: int | None = None
    is_shifted: bool = False

    def __str__(self) -> str:
        head = "mean of the heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}{', shifted by one step' if self.is_shifted else ''}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """The words of source and target, their links, and the weights between them, (target words, source words)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: AlignmentLinks
    weights: Tensor
    alignment_head: AlignmentHead

    def to_pharaoh(self) -> str:
        """The links in Pharaoh format: 0-0 1-2 2-1."""
        return format_pharaoh(self.links)


def align_words(attention_maps: AttentionMaps, alignment_head: AlignmentHead | None = None) -> Alignment:
    """Link the words of a translation to those of its source, by one head; the default is the sharpest of the last layer."""
    maps = [m for m in attention_maps.maps if m.kind == "cross" and len(m.key) and m.key.kind == "input"]
    if not maps:
        raise ModelError(
            f"{attention_maps.model} has no cross-attention from its output to a text, so words cannot be aligned."
        )
    if alignment_head is None:
        alignment_head = AlignmentHead(maps[-1].layer, maps[-1].heads[_find_sharpest_head(maps[-1])])
    attention_map = next((m for m in maps if m.layer == alignment_head.layer), None)
    if attention_map is None:
        known = [m.layer for m in maps]
        raise UsageError(f"There is no cross-attention in layer {alignment_head.layer}; the layers are {known}.")
    weights = _head_weights(attention_map, alignment_head)
    source, source_groups = attention_map.key.group_words(attention_maps.texts)
    target, target_groups = attention_map.query.group_words(attention_maps.texts)
    weights = _merge_subwords(weights, source_groups, target_groups)  # (target words, source words)
    rows = [i for i, special in enumerate(target.special_tokens_mask) if not special]
    columns = [j for j, special in enumerate(source.special_tokens_mask) if not special]
    weights = weights[rows][:, columns]
    links = frozenset((int(weights[i].argmax()), i) for i in range(len(rows))) if columns else frozenset()
    source_words, target_words = (
        tuple(axis.names[i] for i in kept) for axis, kept in ((source, columns), (target, rows))
    )
    return Alignment(source_words, target_words, links, weights, alignment_head)


def _find_sharpest_head(attention_map: AttentionMap) -> int:
    """The index of the head with the highest mean of the largest weights on tokens of the text."""
    is_text = torch.tensor([not special for special in attention_map.key.special_tokens_mask])
    return int((attention_map.to_dense() * is_text).amax(-1).mean(-1).argmax())


def _head_weights(attention_map: AttentionMap, alignment_head: AlignmentHead) -> Tensor:
    """The weights of one head, (Q, K), moved up by one step if the head is shifted."""
    if alignment_head.head is not None and alignment_head.head not in attention_map.heads:
        raise UsageError(
            f"Head {alignment_head.head} does not exist; {attention_map.title} has the heads {list(attention_map.heads)}."
        )
    weights = (
        attention_map.mean
        if alignment_head.head is None
        else attention_map.to_dense()[attention_map.heads.index(alignment_head.head)]
    )
    return torch.cat([weights[1:], weights[-1:]]) if alignment_head.is_shifted else weights


def _merge_subwords(weights: Tensor, columns: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> Tensor:
    """Merge tokens into words: the sum over the tokens of a key word, the mean over the tokens of a query word."""
    summed = torch.stack([weights[:, list(group)].sum(1) for group in columns], 1)
    return torch.stack([summed[list(group)].mean(0) for group in rows])


def choose_best_head(
    model: Model, pairs: Sequence[tuple[str, str]], gold: Sequence[str], *, layers: Sequence[int] | None = None
) -> tuple[AlignmentHead, float]:
    """The head with the lowest alignment error rate on sentence pairs with gold alignments, and that rate."""
    if len(pairs) != len(gold) or not pairs:
        raise UsageError(
            f"Got {len(pairs)} sentence pairs and {len(gold)} alignments; give one alignment for each pair."
        )
    looks = [look(model, pair, layers=layers) for pair in pairs]
    cross = [m for m in looks[0].maps if m.kind == "cross"]
    heads = [
        AlignmentHead(m.layer, head, shifted) for m in cross for head in (*m.heads, None) for shifted in (False, True)
    ]
    gold_links = [parse_pharaoh(line) for line in gold]
    rates = [alignment_error_rate([align_words(one, head).links for one in looks], gold_links) for head in heads]
    if not rates:
        raise ModelError(f"{model.family.name} has no cross-attention, so words cannot be aligned.")
    best = min(range(len(rates)), key=rates.__getitem__)
    return heads[best], rates[best]


def alignment_error_rate(
    predicted: Sequence[AlignmentLinks],
    sure: Sequence[AlignmentLinks],
    possible: Sequence[AlignmentLinks] | None = None,
) -> float:
    """The alignment error rate over sentences: 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och & Ney 2003).

    >>> alignment_error_rate([frozenset({(0, 0), (1, 1)})], [frozenset({(0, 0)})], [frozenset({(1, 1)})])
    0.0
    >>> alignment_error_rate([frozenset({(0, 1)})], [frozenset({(0, 0)})])
    1.0
    """
    possible = possible or sure
    if not len(predicted) == len(sure) == len(possible):
        got = f"Got {len(predicted)} predicted, {len(sure)} sure and {len(possible)} possible alignments"
        raise UsageError(f"{got}; give one of each per sentence.")
    hits = sum(len(a & s) + len(a & (p | s)) for a, s, p in zip(predicted, sure, possible, strict=True))
    total = sum(len(a) + len(s) for a, s in zip(predicted, sure, strict=True))
    return 1 - hits / total if total else 0.0


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Format links in Pharaoh format, in the order of the source.

    >>> format_pharaoh({(2, 1), (0, 0), (1, 2)})
    '0-0 1-2 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def parse_pharaoh(line: str) -> AlignmentLinks:
    """Parse a line in Pharaoh format.

    >>> sorted(parse_pharaoh("0-0 1-2"))
    [(0, 0), (1, 2)]
    """
    links = []
    for word in line.split():
        source, dash, target = word.partition("-")
        if not (dash and source.isascii() and source.isdigit() and target.isascii() and target.isdigit()):
            raise UsageError(f"{word!r} is not a link in Pharaoh format; write two indices with a dash, such as 0-2.")
        links.append((int(source), int(target)))
    return frozenset(links)
