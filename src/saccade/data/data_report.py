"""Data report: label counts, text lengths, duplicates, conflicting labels, and leakage between splits, before training."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.example import Example, Role, as_list
from saccade.data.held_out import GOLD_KINDS
from saccade.data.label_checks import describe_many_labels, describe_similar_labels
from saccade.data.read.media_files import MEDIA
from saccade.data.splits import Splits
from saccade.data.streaming.text import StreamedExamples

MIN_EXAMPLES_PER_CLASS = 5  # classes with fewer training examples get a warning
PERCENTILES = (50, 90, 99, 100)
MAX_LABELS_SHOWN = 12


@dataclass
class DataReport:
    """Statistics of a dataset by split; `to_lines` formats them as text, `as_dict` as a dictionary."""

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
        lines = [f"  {line}" for line in self.notes]
        for split, count in self.record_counts.items():
            skipped = self.skipped_counts.get(split, 0)
            lines.append(f"{split:6} {count:,} records" + (f", {skipped:,} skipped" if skipped else ""))
            lines += [f"       {text}" for text in self._describe_split(split)]
        if self.conflict_count:
            lines.append(f"{self.conflict_count:,} inputs have conflicting labels")
        lines += [f"{count:,} inputs of {pair}" for pair, count in self.overlap_counts.items() if count]
        return lines + [f"warning: {text}" for text in self.warnings]

    def _describe_split(self, split: str) -> Iterable[str]:
        if counts := self.label_counts.get(split):
            shown = [f"{name} {count:,}" for name, count in list(counts.items())[:MAX_LABELS_SHOWN]]
            more = f" and {len(counts) - MAX_LABELS_SHOWN:,} more" if len(counts) > MAX_LABELS_SHOWN else ""
            yield f"{len(counts):,} labels: {', '.join(shown)}{more}"
        if percentiles := self.length_percentiles.get(split):
            shown = ", ".join(f"{name} {value:,.0f}" for name, value in percentiles.items())
            yield f"length in {self.length_unit}: {shown}"
        if self.max_length is not None and split in self.truncated_fractions:
            yield f"{self.truncated_fractions[split]:.1%} are longer than {self.max_length:,} tokens and will be truncated"
        if self.duplicate_counts.get(split):
            yield f"{self.duplicate_counts[split]:,} records are duplicates"


def inspect_data(
    splits: Splits,
    roles: Sequence[Role],
    *,
    measure_length: Callable[[Example], int] | None = None,
    max_length: int | None = None,
) -> DataReport:
    """Make the report of a dataset; `measure_length` counts the tokens of an example, without it words are counted."""
    tables = splits.as_dict()
    report = DataReport(
        {split: len(table.examples) for split, table in tables.items()},
        {split: len(table.rejects) for split, table in tables.items()},
        length_unit="words" if measure_length is None else "tokens",
        max_length=max_length,
        notes=list(splits.notes),
    )
    measure = measure_length or make_word_counter(roles)
    for split, table in tables.items():
        examples = table.examples.sample if isinstance(table.examples, StreamedExamples) else table.examples
        report.label_counts[split] = _count_labels(examples, roles)
        sizes = np.array([measure(example) for example in examples] if measure else [], dtype=np.int64)
        if sizes.size:
            report.length_percentiles[split] = _compute_percentiles(sizes)
            if max_length is not None:
                report.truncated_fractions[split] = float((sizes > max_length).mean())
    if not any(role.kind == "line" for role in roles):  # in running text, repeated lines are normal
        _count_repeats(report, {split: table.examples for split, table in tables.items()}, roles)
    report.warnings += _find_warnings(report, roles)
    return report


def make_word_counter(roles: Sequence[Role]) -> Callable[[Example], int] | None:
    """A function that counts the words of the longest input of an example; None for data without words."""
    names = [role.name for role in roles if role.kind in ("text", "line")]
    if any(role.kind == "words" for role in roles):
        return lambda example: len(example["words"])
    if not names:
        return None
    return lambda example: max(len(text.split()) for name in names for text in as_list(example[name]))


def _compute_percentiles(sizes: np.ndarray) -> dict[str, float]:
    """Percentiles of the lengths, by name: 50%, 90%, 99% and longest."""
    values = np.percentile(sizes, PERCENTILES, method="inverted_cdf")
    names = [f"{percent}%" if percent < 100 else "longest" for percent in PERCENTILES]
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _count_labels(examples: Sequence[Example], roles: Sequence[Role]) -> dict[str, int]:
    """The count of each label, most frequent first; for tags, of each type of span."""
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
    """The roles that are input to a model: all but the gold; where no role is gold, all but the last."""
    names = [role.name for role in roles if role.kind not in GOLD_KINDS]
    return names if len(names) < len(roles) or len(names) == 1 else names[:-1]


def _count_repeats(report: DataReport, splits: Mapping[str, Sequence[Example]], roles: Sequence[Role]) -> None:
    inputs, gold = list_input_roles(roles), [role.name for role in roles if role.kind in GOLD_KINDS]
    hashes = {split: [_hash_example(example, inputs) for example in examples] for split, examples in splits.items()}
    golds: dict[Hashable, set[Hashable]] = defaultdict(set)
    names = [role.name for role in roles]
    for split, examples in splits.items():
        report.duplicate_counts[split] = len(examples) - len({_hash_example(example, names) for example in examples})
        for example, digest in zip(examples, hashes[split], strict=True):
            golds[digest].add(_hash_example(example, gold))
    report.conflict_count = sum(len(values) > 1 for values in golds.values()) if gold else 0
    for first, second in combinations(splits, 2):
        known = set(hashes[first])
        report.overlap_counts[f"{second} also occur in {first}"] = sum(digest in known for digest in hashes[second])


def _hash_example(example: Example, names: Sequence[str]) -> bytes:
    digest = hashlib.blake2b(digest_size=12)
    for name in names:
        value = example[name]
        raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
        if name in MEDIA and isinstance(value, str):  # a copy of a file under another name is a duplicate
            raw = Path(value).read_bytes()
        digest.update(raw)
    return digest.digest()


def _find_warnings(report: DataReport, roles: Sequence[Role]) -> list[str]:
    warnings, known = [], report.label_counts.get("train", {})
    if any(role.kind in ("label", "labels") for role in roles):
        if len(known) == 1:
            warnings.append(f"train has a single class, {next(iter(known))!r}, so there is nothing to learn")
        total = sum(known.values())
        if len(known) > 1 and max(known.values()) > 0.95 * total:
            warnings.append(
                f"imbalanced classes: {max(known.values()) / total:.0%} of train is {next(iter(known))!r}, so accuracy will say "
                "little"
            )
        if question := describe_many_labels(known):
            warnings.append(question)
    all_labels = sum((Counter(counts) for counts in report.label_counts.values()), Counter[str]())
    if similar := describe_similar_labels(all_labels):
        warnings.append(similar)
    rare = [name for name, count in known.items() if count < MIN_EXAMPLES_PER_CLASS]
    if rare and len(known) > 1:
        warnings.append(
            f"{len(rare):,} labels have fewer than {MIN_EXAMPLES_PER_CLASS} examples in train: {_join_names(rare)}"
        )
    for split, counts in report.label_counts.items():
        if missing := [name for name in counts if name not in known]:
            warnings.append(f"{split} has labels that do not occur in train: {_join_names(missing)}")
    if known and all(name.isdecimal() for name in known) and len(known) <= max(map(int, known)) < 10 * len(known):
        gaps = sorted(set(range(max(map(int, known)))) - set(map(int, known)) - {0})
        if gaps:
            warnings.append(f"the labels are integers with gaps: {_join_names(map(str, gaps))} do not occur")
    for pair, count in report.overlap_counts.items():
        split = pair.split()[0]
        if count > 0.01 * report.record_counts[split]:
            warnings.append(
                f"leakage: {count / report.record_counts[split]:.1%} of the inputs of {pair}, so its score will be too high"
            )
    return warnings


def _join_names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:8]) + (f" and {len(listed) - 8:,} more" if len(listed) > 8 else "")
