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
from saccade.explain.looks import Looks, Seen
from saccade.models.model import Model

Links = frozenset[tuple[int, int]]  # (word of the source, word of the target), from 0


@dataclass(frozen=True)
class Where:
    """A layer and a head of the attention across, None for the mean of all; `later` is one step after a word was written."""

    layer: int
    head: int | None = None
    later: bool = False

    def __str__(self) -> str:
        head = "mean of the heads" if self.head is None else f"head {self.head}"
        return f"layer {self.layer}, {head}{', one step later' if self.later else ''}"


@dataclass(frozen=True, eq=False)
class Alignment:
    """Words of both sides, their links, and the weights behind them (target words, source words)."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: Links
    weights: Tensor
    where: Where

    def pharaoh(self) -> str:
        """The links as a line: 0-0 1-2 2-1."""
        return write_pharaoh(self.links)


def align(looks: Looks, where: Where | None = None) -> Alignment:
    """The words of a translation linked to those of its source, by one head, or by the sharpest of the last layer."""
    maps = [m for m in looks.maps if m.kind == "across" and len(m.key) and m.key.of == "read"]
    if not maps:
        raise ModelError(f"{looks.model} has no attention from what it writes to what it reads, so nothing is aligned.")
    if where is None:
        where = Where(maps[-1].layer, maps[-1].heads[_sharpest(maps[-1])])
    seen = next((m for m in maps if m.layer == where.layer), None)
    if seen is None:
        raise UsageError(f"There is no layer {where.layer} that looks across; there are {[m.layer for m in maps]}.")
    weights = _of_head(seen, where)
    read, parts = seen.key.words(looks.texts)
    wrote, words = seen.query.words(looks.texts)
    weights = _gathered(weights, parts, words)  # (target words, source words)
    rows = [i for i, special in enumerate(wrote.special) if not special]
    columns = [j for j, special in enumerate(read.special) if not special]
    weights = weights[rows][:, columns]
    links = frozenset((int(weights[i].argmax()), i) for i in range(len(rows))) if columns else frozenset()
    names = [tuple(axis.names[i] for i in kept) for axis, kept in ((read, columns), (wrote, rows))]
    return Alignment(names[0], names[1], links, weights, where)


def _sharpest(seen: Seen) -> int:
    """The head that gives the most weight to one token of the text."""
    real = torch.tensor([not special for special in seen.key.special])
    return int((seen.dense() * real).amax(-1).mean(-1).argmax())


def _of_head(seen: Seen, where: Where) -> Tensor:
    """The weights of one head (Q, K), moved up by a step where a token is looked for when it is read again."""
    if where.head is not None and where.head not in seen.heads:
        raise UsageError(f"{seen.title} has the heads {list(seen.heads)}; asked for {where.head}.")
    weights = seen.mean if where.head is None else seen.dense()[seen.heads.index(where.head)]
    return torch.cat([weights[1:], weights[-1:]]) if where.later else weights


def _gathered(weights: Tensor, columns: Sequence[Sequence[int]], rows: Sequence[Sequence[int]]) -> Tensor:
    """Tokens to words: sums over the parts of a word that is looked at, means over the parts of one that looks."""
    summed = torch.stack([weights[:, list(group)].sum(1) for group in columns], 1)
    return torch.stack([summed[list(group)].mean(0) for group in rows])


def best_head(
    model: Model, pairs: Sequence[tuple[str, str]], gold: Sequence[str], *, layers: Sequence[int] | None = None
) -> tuple[Where, float]:
    """The layer, head and step with the lowest alignment error rate on sentences whose alignments are known, and that rate."""
    if len(pairs) != len(gold) or not pairs:
        raise UsageError(
            f"{len(pairs)} pairs of sentences and {len(gold)} alignments came; one alignment each is needed."
        )
    looks = [look(model, pair, layers=layers) for pair in pairs]
    across = [m for m in looks[0].maps if m.kind == "across"]
    tried = [Where(m.layer, head, later) for m in across for head in (*m.heads, None) for later in (False, True)]
    right = [read_pharaoh(line) for line in gold]
    rates = [aer([align(one, where).links for one in looks], right) for where in tried]
    if not rates:
        raise ModelError(f"{model.family.name} has no attention from what it writes to what it reads.")
    best = min(range(len(rates)), key=rates.__getitem__)
    return tried[best], rates[best]


def aer(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None) -> float:
    """The alignment error rate over sentences: 1 - (|A and S| + |A and P|) / (|A| + |S|) (Och & Ney 2003).

    >>> aer([frozenset({(0, 0), (1, 1)})], [frozenset({(0, 0)})], [frozenset({(1, 1)})])
    0.0
    >>> aer([frozenset({(0, 1)})], [frozenset({(0, 0)})])
    1.0
    """
    maybe = possible or sure
    if not len(found) == len(sure) == len(maybe):
        raise UsageError(
            f"{len(found)} alignments, {len(sure)} sure and {len(maybe)} possible ones; one each is needed."
        )
    hits = sum(len(a & s) + len(a & (p | s)) for a, s, p in zip(found, sure, maybe, strict=True))
    whole = sum(len(a) + len(s) for a, s in zip(found, sure, strict=True))
    return 1 - hits / whole if whole else 0.0


def write_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """Links in the order of the source.

    >>> write_pharaoh({(2, 1), (0, 0), (1, 2)})
    '0-0 1-2 2-1'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def read_pharaoh(line: str) -> Links:
    """The links of a line; what is no pair of numbers is named.

    >>> sorted(read_pharaoh("0-0 1-2"))
    [(0, 0), (1, 2)]
    """
    links = []
    for word in line.split():
        source, dash, target = word.partition("-")
        if not (dash and source.isascii() and source.isdigit() and target.isascii() and target.isdigit()):
            raise UsageError(f"{word!r} is no link; a link is two numbers with a dash between them, such as 0-2.")
        links.append((int(source), int(target)))
    return frozenset(links)
