"""Which word became which: alignments read off attention, in Pharaoh's format, and how far they are from gold ones.

    found = align(looks)                        # 0-0 1-2 2-1: word of the source - word of the target
    best = best_head(model, pairs, gold)        # the head with the lowest alignment error rate on some sentences
    align(looks, best)

A word is what stands between spaces; in a script without spaces it is a token, or the character that several tokens make up.
Each word that was written is linked to the word that the head looked at most. A decoder may look at a word's source while it
writes the word, or one step later when it reads it again: `Where.later` says which.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from saccade.errors import ModelError, UsageError
from saccade.explain.look import look
from saccade.explain.maps import AttentionMap, AttentionMaps
from saccade.models.model import Model

AlignmentLinks = frozenset[tuple[int, int]]  # (word of the source, word of the target), from 0


@dataclass(frozen=True)
class AlignmentHead:
    """A layer and a head of the attention across, None for the mean of all; `later` is one step after a word was written."""

    layer: int
    head: int | None = None
    is_shifted: bool = False

    def __str__(self) -> str:
        head = "mean of the heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}{', one step later' if self.is_shifted else ''}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """Words of both sides, their links, and the weights behind them (target words, source words)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: AlignmentLinks
    weights: Tensor
    alignment_head: AlignmentHead

    def to_pharaoh(self) -> str:
        """The links as a line: 0-0 1-2 2-1."""
        return format_pharaoh(self.links)


def align_words(attention_maps: AttentionMaps, alignment_head: AlignmentHead | None = None) -> Alignment:
    """The words of a translation linked to those of its source, by one head, or by the sharpest of the last layer."""
    maps = [m for m in attention_maps.maps if m.kind == "cross" and len(m.key) and m.key.kind == "input"]
    if not maps:
        raise ModelError(
            f"{attention_maps.model} has no attention from what it writes to what it reads, so nothing is aligned."
        )
    if alignment_head is None:
        alignment_head = AlignmentHead(maps[-1].layer, maps[-1].heads[_find_sharpest_head(maps[-1])])
    seen = next((m for m in maps if m.layer == alignment_head.layer), None)
    if seen is None:
        raise UsageError(
            f"There is no layer {alignment_head.layer} that looks across; there are {[m.layer for m in maps]}."
        )
    weights = _head_weights(seen, alignment_head)
    read, parts = seen.key.group_words(attention_maps.texts)
    wrote, words = seen.query.group_words(attention_maps.texts)
    weights = _merge_subwords(weights, parts, words)  # (target words, source words)
    rows = [i for i, special in enumerate(wrote.special_tokens_mask) if not special]
    columns = [j for j, special in enumerate(read.special_tokens_mask) if not special]
    weights = weights[rows][:, columns]
    links = frozenset((int(weights[i].argmax()), i) for i in range(len(rows))) if columns else frozenset()
    names = [tuple(axis.names[i] for i in kept) for axis, kept in ((read, columns), (wrote, rows))]
    return Alignment(names[0], names[1], links, weights, alignment_head)


def _find_sharpest_head(attention_map: AttentionMap) -> int:
    """The head that gives the most weight to one token of the text."""
    real = torch.tensor([not special for special in attention_map.key.special_tokens_mask])
    return int((attention_map.to_dense() * real).amax(-1).mean(-1).argmax())


def _head_weights(attention_map: AttentionMap, alignment_head: AlignmentHead) -> Tensor:
    """The weights of one head (Q, K), moved up by a step where a token is looked for when it is read again."""
    if alignment_head.head is not None and alignment_head.head not in attention_map.heads:
        raise UsageError(
            f"{attention_map.title} has the heads {list(attention_map.heads)}; asked for {alignment_head.head}."
        )
    weights = (
        attention_map.mean
        if alignment_head.head is None
        else attention_map.to_dense()[attention_map.heads.index(alignment_head.head)]
    )
    return torch.cat([weights[1:], weights[-1:]]) if alignment_head.is_shifted else weights


def _merge_subwords(weights: Tensor, columns: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> Tensor:
    """Tokens to words: sums over the parts of a word that is looked at, means over the parts of one that looks."""
    summed = torch.stack([weights[:, list(group)].sum(1) for group in columns], 1)
    return torch.stack([summed[list(group)].mean(0) for group in rows])


def choose_best_head(
    model: Model, pairs: Sequence[tuple[str, str]], gold: Sequence[str], *, layers: Sequence[int] | None = None
) -> tuple[AlignmentHead, float]:
    """The layer, head and step with the lowest alignment error rate on sentences whose alignments are known, and that rate."""
    if len(pairs) != len(gold) or not pairs:
        raise UsageError(
            f"{len(pairs)} pairs of sentences and {len(gold)} alignments came; one alignment each is needed."
        )
    looks = [look(model, pair, layers=layers) for pair in pairs]
    across = [m for m in looks[0].maps if m.kind == "cross"]
    tried = [
        AlignmentHead(m.layer, head, later) for m in across for head in (*m.heads, None) for later in (False, True)
    ]
    right = [parse_pharaoh(line) for line in gold]
    rates = [alignment_error_rate([align_words(one, where).links for one in looks], right) for where in tried]
    if not rates:
        raise ModelError(f"{model.family.name} has no attention from what it writes to what it reads.")
    best = min(range(len(rates)), key=rates.__getitem__)
    return tried[best], rates[best]


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
    maybe = possible or sure
    if not len(predicted) == len(sure) == len(maybe):
        raise UsageError(
            f"{len(predicted)} alignments, {len(sure)} sure and {len(maybe)} possible ones; one each is needed."
        )
    hits = sum(len(a & s) + len(a & (p | s)) for a, s, p in zip(predicted, sure, maybe, strict=True))
    whole = sum(len(a) + len(s) for a, s in zip(predicted, sure, strict=True))
    return 1 - hits / whole if whole else 0.0


def format_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links in the order of the source.

    >>> format_pharaoh({(2, 1), (0, 0), (1, 2)})
    '0-0 1-2 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def parse_pharaoh(line: str) -> AlignmentLinks:
    """The links of a line; what is no pair of numbers is named.

    >>> sorted(parse_pharaoh("0-0 1-2"))
    [(0, 0), (1, 2)]
    """
    links = []
    for word in line.split():
        source, dash, target = word.partition("-")
        if not (dash and source.isascii() and source.isdigit() and target.isascii() and target.isdigit()):
            raise UsageError(f"{word!r} is no link; a link is two numbers with a dash between them, such as 0-2.")
        links.append((int(source), int(target)))
    return frozenset(links)
