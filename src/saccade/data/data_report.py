"""What a person should know of their data before a model learns it: counts, lengths, what repeats, what leaks."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.example import Example, Role, as_list
from saccade.data.splits import GOLD_KINDS, Splits
from saccade.data.streaming.text import StreamedExamples

MIN_EXAMPLES_PER_CLASS = 5  # examples of a class in train, below which it is hardly learnt
PERCENTILES = (50, 90, 99, 100)
MAX_LABELS_SHOWN = 12  # classes listed


@dataclass
class DataReport:
    """Everything by split; `lines` is for a person, `as_dict` for a program."""

    record_counts: dict[str, int]
    skipped_counts: dict[str, int]
    label_counts: dict[str, dict[str, int]] = field(default_factory=dict)
    length_percentiles: dict[str, dict[str, float]] = field(default_factory=dict)
    length_unit: str = "words"
    max_length: int | None = None
    truncated_fractions: dict[str, float] = field(default_factory=dict)
    duplicate_counts: dict[str, int] = field(default_factory=dict)
    conflict_count: int = 0
    overlap_counts: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_lines(self) -> list[str]:
        found = [f"  {line}" for line in self.notes]
        for split, count in self.record_counts.items():
            bad = self.skipped_counts.get(split, 0)
            found.append(f"{split:6} {count:,} records" + (f", {bad:,} skipped" if bad else ""))
            found += [f"       {text}" for text in self._describe_split(split)]
        if self.conflict_count:
            found.append(f"{self.conflict_count:,} inputs stand there with different labels")
        found += [f"{count:,} inputs of {pair}" for pair, count in self.overlap_counts.items() if count]
        return found + [f"warning: {text}" for text in self.warnings]

    def _describe_split(self, split: str) -> Iterable[str]:
        if counts := self.label_counts.get(split):
            shown = [f"{name} {count:,}" for name, count in list(counts.items())[:MAX_LABELS_SHOWN]]
            more = f" and {len(counts) - MAX_LABELS_SHOWN:,} more" if len(counts) > MAX_LABELS_SHOWN else ""
            yield f"{len(counts):,} labels: {', '.join(shown)}{more}"
        if found := self.length_percentiles.get(split):
            shown = ", ".join(f"{name} {value:,.0f}" for name, value in found.items())
            yield f"length in {self.length_unit}: {shown}"
        if self.max_length is not None and split in self.truncated_fractions:
            yield f"{self.truncated_fractions[split]:.1%} are longer than {self.max_length:,} and will be cut off there"
        if self.duplicate_counts.get(split):
            yield f"{self.duplicate_counts[split]:,} records are repeated"


def inspect_data(
    splits: Splits,
    roles: Sequence[Role],
    *,
    measure_length: Callable[[Example], int] | None = None,
    max_length: int | None = None,
) -> DataReport:
    """Count, measure and compare; `measure_length` says how long an example is for the model, otherwise words are counted."""
    tables = splits.as_dict()
    facts = DataReport(
        {split: len(table.examples) for split, table in tables.items()},
        {split: len(table.rejects) for split, table in tables.items()},
        length_unit="words" if measure_length is None else "tokens",
        max_length=max_length,
        notes=list(splits.notes),
    )
    measure = measure_length or make_word_counter(roles)
    for split, table in tables.items():
        shown = table.examples.sample if isinstance(table.examples, StreamedExamples) else table.examples
        facts.label_counts[split] = _count_labels(shown, roles)
        sizes = np.array([measure(example) for example in shown] if measure else [], dtype=np.int64)
        if sizes.size:
            facts.length_percentiles[split] = _compute_percentiles(sizes)
            if max_length is not None:
                facts.truncated_fractions[split] = float((sizes > max_length).mean())
    if not any(role.kind == "line" for role in roles):  # running text repeats itself and may
        _count_repeats(facts, {split: table.examples for split, table in tables.items()}, roles)
    facts.warnings += _find_warnings(facts, roles)
    return facts


def make_word_counter(roles: Sequence[Role]) -> Callable[[Example], int] | None:
    """The number of words of the longest input; None where there are no words to count."""
    names = [role.name for role in roles if role.kind in ("text", "line")]
    if any(role.kind == "words" for role in roles):
        return lambda example: len(example["words"])
    if not names:
        return None
    return lambda example: max(len(text.split()) for name in names for text in as_list(example[name]))


def _compute_percentiles(sizes: np.ndarray) -> dict[str, float]:
    """The least length that so many per cent of the examples do not exceed."""
    found = np.percentile(sizes, PERCENTILES, method="inverted_cdf")
    names = [f"{share}%" if share < 100 else "longest" for share in PERCENTILES]
    return {name: float(value) for name, value in zip(names, found, strict=True)}


def _count_labels(examples: Sequence[Example], roles: Sequence[Role]) -> dict[str, int]:
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


def list_input_roles(roles: Sequence[Role]) -> list[str]:
    """The roles that a model sees: what is no gold; of a pair without gold, all but the last."""
    names = [role.name for role in roles if role.kind not in GOLD_KINDS]
    return names if len(names) < len(roles) or len(names) == 1 else names[:-1]


def _count_repeats(report: DataReport, splits: Mapping[str, Sequence[Example]], roles: Sequence[Role]) -> None:
    seen, gold = list_input_roles(roles), [role.name for role in roles if role.kind in GOLD_KINDS]
    marks = {split: [_hash_example(example, seen) for example in examples] for split, examples in splits.items()}
    golds: dict[Hashable, set[Hashable]] = defaultdict(set)
    for split, examples in splits.items():
        whole = [role.name for role in roles]
        report.duplicate_counts[split] = len(examples) - len({_hash_example(example, whole) for example in examples})
        for example, mark in zip(examples, marks[split], strict=True):
            golds[mark].add(_hash_example(example, gold))
    report.conflict_count = sum(len(found) > 1 for found in golds.values()) if gold else 0
    names = list(splits)
    for i, one in enumerate(names):
        for other in names[i + 1 :]:
            held = set(marks[one])
            report.overlap_counts[f"{other} also occur in {one}"] = sum(mark in held for mark in marks[other])


def _hash_example(example: Example, names: Sequence[str]) -> bytes:
    made = hashlib.blake2b(digest_size=12)
    for name in names:
        value = example[name]
        raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
        if name == "image" and isinstance(value, str):  # a picture under another name is the same picture
            raw = Path(value).read_bytes()
        made.update(raw)
    return made.digest()


def _find_warnings(report: DataReport, roles: Sequence[Role]) -> list[str]:
    found, known = [], report.label_counts.get("train", {})
    if any(role.kind in ("label", "labels") for role in roles):
        if len(known) == 1:
            found.append(f"train has one class, {next(iter(known))!r}: there is nothing to tell apart")
        total = sum(known.values())
        if len(known) > 1 and max(known.values()) > 0.95 * total:
            found.append(
                f"{max(known.values()) / total:.0%} of train is {next(iter(known))!r}: accuracy will say little"
            )
        if len(known) > 0.5 * report.record_counts["train"] > 10:
            found.append(
                f"{len(known):,} labels for {report.record_counts['train']:,} records: is this the column of labels?"
            )
    rare = [name for name, count in known.items() if count < MIN_EXAMPLES_PER_CLASS]
    if rare and len(known) > 1:
        found.append(
            f"{len(rare):,} labels have fewer than {MIN_EXAMPLES_PER_CLASS} examples in train: {_join_names(rare)}"
        )
    for split, counts in report.label_counts.items():
        if missing := [name for name in counts if name not in known]:
            found.append(f"{split} has labels that train has not: {_join_names(missing)}")
    if known and all(name.isdecimal() for name in known) and len(known) <= max(map(int, known)) < 10 * len(known):
        holes = sorted(set(range(max(map(int, known)))) - set(map(int, known)) - {0})
        if holes:
            found.append(f"whole numbers as labels, with holes: {_join_names(map(str, holes))} do not occur")
    for pair, count in report.overlap_counts.items():
        split = pair.split()[0]
        if count > 0.01 * report.record_counts[split]:
            found.append(f"{count / report.record_counts[split]:.1%} of the inputs of {pair}: its score will flatter")
    return found


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8:,} more" if len(listed) > 8 else "")
