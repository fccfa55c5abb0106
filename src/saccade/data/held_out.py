"""Held-out data where there is no file for it: records chosen by a hash as dev and test, or a fold of cross-validation.

Dev chooses the checkpoint; test is scored once, at the end. Dev takes the smallest hashes and test the largest, so that a record
never moves from one to the other when records are added to the file.
"""

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from saccade.data.example import Example, Role, as_list
from saccade.errors import DataError, UsageError

DEV_SIZE = 0.1  # fraction of the records that is held out as dev
MIN_TEST_EXAMPLES = 200  # fewer would score with an interval of more than ±4 points at an accuracy of 90 %
MAX_FOLDS = 1000
GOLD_KINDS = ("label", "labels", "number", "tags", "answers")
GROUP_ROLE = Role("split_group", "label", shares_column=True)


@dataclass(frozen=True)
class HeldOut:
    """What to hold out of the training data where no file is given for it; stored with the settings of a run."""

    test_size: float = 0.0  # fraction of the records for test; 0 holds out dev alone
    group_by: str = ""  # column whose equal values stay in one split; "" groups by equal inputs
    fold: str = ""  # cross-validation: the fold that is the test set, such as 2/5

    def __post_init__(self) -> None:
        if not 0 <= self.test_size <= 0.5:
            raise UsageError(f"train.test_size is {self.test_size}; it must be from 0 to 0.5, such as 0.1.")
        index, count = self.fold_numbers
        if self.fold and not (1 <= index <= count and 2 <= count <= MAX_FOLDS):
            raise UsageError(f"train.fold is {self.fold!r}; write the fold and the number of folds, such as 2/5.")

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> "HeldOut":
        """From the table [train] of a run; a run that records nothing held out dev alone."""
        names = ("test_size", "group_by", "fold")
        return cls(**{name: settings[name] for name in names if name in settings})

    @property
    def fold_numbers(self) -> tuple[int, int]:
        """The fold, counted from 1, and the number of folds; zeros without cross-validation."""
        found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", self.fold)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def roles(self) -> tuple[Role, ...]:
        """The role to read beside those of the task: that of the groups."""
        return (GROUP_ROLE,) if self.group_by else ()

    @property
    def columns(self) -> dict[str, str]:
        return {GROUP_ROLE.name: self.group_by} if self.group_by else {}


DEV_ONLY = HeldOut()


@dataclass(frozen=True)
class HeldOutExamples:
    """Examples divided into train, dev and test, with a note that says how; None is a split that there is not."""

    train: list[Example]
    dev: list[Example] | None
    test: list[Example] | None
    note: str
    test_size: float = 0.0  # fraction held out as test; 0 if there is no test set, or if it is a fold


def split_by_hash(
    examples: Sequence[Example], roles: Sequence[Role], plan: HeldOut, *, seed: int = 0, needs_dev: bool = True
) -> HeldOutExamples:
    """Divide examples by a hash of their group: the input, or the value of a column, so that equal groups stay together."""
    role = next((role for role in roles if role.kind not in GOLD_KINDS), roles[0])
    hashes = _hash_groups(examples, role, plan, seed)
    index, count = plan.fold_numbers
    in_test: Collection[bytes] = ()
    if count:
        in_test = _choose_fold(hashes, [_stratification_labels(e, roles) for e in examples], index, count)
    rest = [digest for digest in hashes if digest not in in_test]
    in_dev = _choose_dev(rest) if needs_dev else set[bytes]()
    if needs_dev and not in_dev:
        reason = "all inputs are the same" if len(hashes) > 1 else "there is one record"
        return HeldOutExamples(list(examples), None, None, f"No dev file, and {reason}: dev is the training data.")
    if not count and needs_dev:
        in_test = _choose_test(hashes, in_dev, plan.test_size)
    parts: dict[str, list[Example]] = {"train": [], "dev": [], "test": []}
    for example, digest in zip(examples, hashes, strict=True):
        parts["dev" if digest in in_dev else "test" if digest in in_test else "train"].append(example)
    key = f"column {plan.group_by}" if plan.group_by else role.name
    note = _describe_parts({name: len(part) for name, part in parts.items()}, key, plan)
    test_size = plan.test_size if parts["test"] and not count else 0.0
    return HeldOutExamples(parts["train"], parts["dev"] if needs_dev else None, parts["test"] or None, note, test_size)


def _hash_groups(examples: Sequence[Example], role: Role, plan: HeldOut, seed: int) -> list[bytes]:
    if plan.group_by:
        return [_hash_value(example[GROUP_ROLE.name], seed) for example in examples]
    from saccade.data.read.media_files import MEDIA  # imports torch, which the help does without

    # of the path of a file only the folder and the name count, so that a directory that was moved is split as before
    shorten: Callable[[Any], Any] = (
        (lambda value: Path(value).parts[-2:] if isinstance(value, str) else value)
        if role.kind in MEDIA
        else (lambda value: value)
    )
    return [_hash_value(shorten(example[role.name]), seed) for example in examples]


def _hash_value(value: object, seed: int) -> bytes:
    raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(raw, digest_size=12, salt=seed.to_bytes(8, "little")).digest()


def _choose_dev(hashes: Sequence[bytes]) -> set[bytes]:
    """The groups of dev: those with the smallest hashes, up to a tenth of the records; empty if there is only one group."""
    counts = Counter(hashes)
    chosen = _fill(counts, sorted(counts)[:-1], max(1, round(DEV_SIZE * len(hashes))))
    if not chosen and len(counts) > 1:
        chosen = {min(counts, key=lambda digest: (counts[digest], digest))}
    return chosen


def _choose_test(hashes: Sequence[bytes], in_dev: Collection[bytes], test_size: float) -> set[bytes]:
    """The groups of test: those with the largest hashes; empty if dev or test would have fewer than MIN_TEST_EXAMPLES."""
    counts = Counter(hashes)
    others = sorted(counts.keys() - set(in_dev), reverse=True)
    chosen = _fill(counts, others[:-1], round(test_size * len(hashes)))
    enough = all(sum(counts[digest] for digest in part) >= MIN_TEST_EXAMPLES for part in (in_dev, chosen))
    return chosen if enough else set()


def _fill(counts: Mapping[bytes, int], order: Sequence[bytes], size: int) -> set[bytes]:
    """Groups in the given order until they have `size` records, without groups that are too large for that."""
    chosen, filled = set[bytes](), 0
    for digest in order:
        if filled >= size:
            break
        if filled + counts[digest] < 2 * size + 1:
            chosen.add(digest)
            filled += counts[digest]
    return chosen


def _stratification_labels(example: Example, roles: Sequence[Role]) -> list[str]:
    """The labels whose shares should be the same in every fold; empty for a gold that is not a label."""
    names = [role.name for role in roles if role.kind in ("label", "labels") and role.name != GROUP_ROLE.name]
    return [str(label) for name in names for label in as_list(example.values.get(name) or [])]


def _choose_fold(hashes: Sequence[bytes], labels: Sequence[Sequence[str]], index: int, count: int) -> set[bytes]:
    """The groups of one fold (from 1) of `count`, stratified by label.

    Groups are assigned from the largest to the smallest, each to the fold that has the smallest share of its labels so far.
    """
    sizes = Counter(hashes)
    if len(sizes) < count:
        raise DataError(
            f"{count} folds need at least {count} groups, and the data have {len(sizes):,}",
            hint="ask for fewer folds, or group by another column",
        )
    by_group: dict[bytes, Counter[str]] = defaultdict(Counter)
    for digest, names in zip(hashes, labels, strict=True):
        by_group[digest].update(names or [""])
    totals = sum(by_group.values(), Counter[str]())
    folds = [Counter[str]() for _ in range(count)]
    filled, chosen = [0] * count, set[bytes]()
    for digest in sorted(sizes, key=lambda digest: (-sizes[digest], digest)):
        group = by_group[digest]
        shares = [sum(n * fold[name] / totals[name] for name, n in group.items()) for fold in folds]
        best = min(range(count), key=lambda i: (shares[i], filled[i], i))
        folds[best].update(group)
        filled[best] += sizes[digest]
        if best == index - 1:
            chosen.add(digest)
    return chosen


def _describe_parts(sizes: Mapping[str, int], key: str, plan: HeldOut) -> str:
    dev, test, total = f"{sizes['dev']:,}", f"{sizes['test']:,}", f"{sum(sizes.values()):,}"
    index, count = plan.fold_numbers
    if count:
        held_out = f"; {dev} others are held out as dev" if sizes["dev"] else ""
        return f"Fold {index} of {count}, by {key}: {test} of {total} records are the test set{held_out}."
    if sizes["test"]:
        return (
            f"No dev or test file: of {total} records, {dev} are held out as dev, by which the checkpoint is chosen, and {test} "
            f"as test, which is scored once at the end; both by a hash of {key}."
        )
    note = f"No dev file: {dev} of {total} records, chosen by a hash of {key}, are held out as dev."
    if plan.test_size:
        note += (
            f" Dev and test need {MIN_TEST_EXAMPLES} records each, so there is no test set: the score will be that of the "
            "records by which the checkpoint is chosen."
        )
    return note
