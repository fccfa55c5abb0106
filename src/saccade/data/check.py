"""What a person should know of their data before a model learns it: counts, lengths, what repeats, what leaks."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.item import Example, Role, several
from saccade.data.long import Long
from saccade.data.split import GOLD, Splits

RARE = 5  # examples of a class in train, below which it is hardly learnt
SHARES = (50, 90, 99, 100)
SHOWN = 12  # classes listed


@dataclass
class Facts:
    """Everything by split; `lines` is for a person, `as_dict` for a program."""

    rows: dict[str, int]
    skipped: dict[str, int]
    labels: dict[str, dict[str, int]] = field(default_factory=dict)
    lengths: dict[str, dict[str, float]] = field(default_factory=dict)
    unit: str = "words"
    limit: int | None = None
    truncated: dict[str, float] = field(default_factory=dict)
    duplicates: dict[str, int] = field(default_factory=dict)
    conflicts: int = 0
    overlap: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        found = [f"  {line}" for line in self.said]
        for split, count in self.rows.items():
            bad = self.skipped.get(split, 0)
            found.append(f"{split:6} {count:,} records" + (f", {bad:,} skipped" if bad else ""))
            found += [f"       {text}" for text in self._of(split)]
        if self.conflicts:
            found.append(f"{self.conflicts:,} inputs stand there with different labels")
        found += [f"{count:,} inputs of {pair}" for pair, count in self.overlap.items() if count]
        return found + [f"warning: {text}" for text in self.warnings]

    def _of(self, split: str) -> Iterable[str]:
        if counts := self.labels.get(split):
            shown = [f"{name} {count:,}" for name, count in list(counts.items())[:SHOWN]]
            more = f" and {len(counts) - SHOWN:,} more" if len(counts) > SHOWN else ""
            yield f"{len(counts):,} labels: {', '.join(shown)}{more}"
        if found := self.lengths.get(split):
            shown = ", ".join(f"{name} {value:,.0f}" for name, value in found.items())
            yield f"length in {self.unit}: {shown}"
        if self.limit is not None and split in self.truncated:
            yield f"{self.truncated[split]:.1%} are longer than {self.limit:,} and will be cut off there"
        if self.duplicates.get(split):
            yield f"{self.duplicates[split]:,} records are repeated"


def examine(
    splits: Splits,
    roles: Sequence[Role],
    *,
    lengths: Callable[[Example], int] | None = None,
    limit: int | None = None,
) -> Facts:
    """Count, measure and compare; `lengths` says how long an example is for the model, otherwise words are counted."""
    tables = splits.tables()
    facts = Facts(
        {split: len(table.examples) for split, table in tables.items()},
        {split: len(table.bad) for split, table in tables.items()},
        unit="words" if lengths is None else "tokens",
        limit=limit,
        said=list(splits.said),
    )
    measure = lengths or words_in(roles)
    for split, table in tables.items():
        shown = table.examples.some if isinstance(table.examples, Long) else table.examples
        facts.labels[split] = _labels(shown, roles)
        sizes = np.array([measure(example) for example in shown] if measure else [], dtype=np.int64)
        if sizes.size:
            facts.lengths[split] = _spread(sizes)
            if limit is not None:
                facts.truncated[split] = float((sizes > limit).mean())
    if not any(role.kind == "line" for role in roles):  # running text repeats itself and may
        _compare(facts, {split: table.examples for split, table in tables.items()}, roles)
    facts.warnings += _warnings(facts, roles)
    return facts


def words_in(roles: Sequence[Role]) -> Callable[[Example], int] | None:
    """The number of words of the longest input; None where there are no words to count."""
    names = [role.name for role in roles if role.kind in ("text", "line")]
    if any(role.kind == "words" for role in roles):
        return lambda example: len(example["words"])
    if not names:
        return None
    return lambda example: max(len(text.split()) for name in names for text in several(example[name]))


def _spread(sizes: np.ndarray) -> dict[str, float]:
    """The least length that so many per cent of the examples do not exceed."""
    found = np.percentile(sizes, SHARES, method="inverted_cdf")
    names = [f"{share}%" if share < 100 else "longest" for share in SHARES]
    return {name: float(value) for name, value in zip(names, found, strict=True)}


def _labels(examples: Sequence[Example], roles: Sequence[Role]) -> dict[str, int]:
    """The labels from the most to the least frequent; of tags, the types of spans."""
    counts: Counter[str] = Counter()
    for role in roles:
        if role.kind == "label":
            counts.update(example[role.name] for example in examples)
        elif role.kind == "labels":
            counts.update(name for example in examples for name in example[role.name])
        elif role.kind == "tags":
            tags = [tag for example in examples for tag in example[role.name]]
            spans = [tag[2:] for tag in tags if tag.startswith("B-")]
            counts.update(spans or (tag for tag in tags if tag != "O"))
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def inputs(roles: Sequence[Role]) -> list[str]:
    """The roles that a model sees: what is no gold; of a pair without gold, all but the last."""
    names = [role.name for role in roles if role.kind not in GOLD]
    return names if len(names) < len(roles) or len(names) == 1 else names[:-1]


def _compare(facts: Facts, splits: Mapping[str, Sequence[Example]], roles: Sequence[Role]) -> None:
    seen, gold = inputs(roles), [role.name for role in roles if role.kind in GOLD]
    marks = {split: [_mark(example, seen) for example in examples] for split, examples in splits.items()}
    golds: dict[Hashable, set[Hashable]] = defaultdict(set)
    for split, examples in splits.items():
        whole = [role.name for role in roles]
        facts.duplicates[split] = len(examples) - len({_mark(example, whole) for example in examples})
        for example, mark in zip(examples, marks[split], strict=True):
            golds[mark].add(_mark(example, gold))
    facts.conflicts = sum(len(found) > 1 for found in golds.values()) if gold else 0
    names = list(splits)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            held = set(marks[one])
            facts.overlap[f"{other} stand in {one} too"] = sum(mark in held for mark in marks[other])


def _mark(example: Example, names: Sequence[str]) -> bytes:
    made = hashlib.blake2b(digest_size=12)
    for name in names:
        value = example[name]
        raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
        if name == "image" and isinstance(value, str):  # a picture under another name is the same picture
            raw = Path(value).read_bytes()
        made.update(raw)
    return made.digest()


def _warnings(facts: Facts, roles: Sequence[Role]) -> list[str]:
    found, known = [], facts.labels.get("train", {})
    if any(role.kind in ("label", "labels") for role in roles):
        if len(known) == 1:
            found.append(f"train has one class, {next(iter(known))!r}: there is nothing to tell apart")
        total = sum(known.values())
        if len(known) > 1 and max(known.values()) > 0.95 * total:
            found.append(
                f"{max(known.values()) / total:.0%} of train is {next(iter(known))!r}: accuracy will say little"
            )
        if len(known) > 0.5 * facts.rows["train"] > 10:
            found.append(f"{len(known):,} labels for {facts.rows['train']:,} records: is this the column of labels?")
    rare = [name for name, count in known.items() if count < RARE]
    if rare and len(known) > 1:
        found.append(f"{len(rare):,} labels have fewer than {RARE} examples in train: {_some(rare)}")
    for split, counts in facts.labels.items():
        if missing := [name for name in counts if name not in known]:
            found.append(f"{split} has labels that train has not: {_some(missing)}")
    if known and all(name.isdecimal() for name in known) and len(known) <= max(map(int, known)) < 10 * len(known):
        holes = sorted(set(range(max(map(int, known)))) - set(map(int, known)) - {0})
        if holes:
            found.append(f"whole numbers as labels, with holes: {_some(map(str, holes))} do not occur")
    for pair, count in facts.overlap.items():
        split = pair.split()[0]
        if count > 0.01 * facts.rows[split]:
            found.append(f"{count / facts.rows[split]:.1%} of the inputs of {pair}: its score will flatter")
    return found


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8:,} more" if len(listed) > 8 else "")
