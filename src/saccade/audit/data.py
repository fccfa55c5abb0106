"""The suite `data`: what a model learns from: languages, lengths, repeats, groups, and what stands beside them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from saccade.audit.groups import LEAST, Seen, bonds, look
from saccade.audit.stats import of_sums, share
from saccade.audit.suite import Figure, Finding, Grid, Subject, Suite
from saccade.data import Example, Splits, examine
from saccade.data.item import several
from saccade.data.long import Long
from saccade.tasks.task import Task
from saccade.text.languages import languages, served, shares

MOST = 50_000  # texts that are looked at
FEW = 20  # texts of a side below which nothing is said of it
BOUND = 8  # words that are shown beside a side
LABELS = 6
SHOWN = 2  # texts of a side among the examples
LONG = 240  # letters of a text that are shown
WRITTEN = ("text", "texts", "line", "words")
BASELINE = (
    "Two sides that are named equally often have a share of 0.5, and labels that do not depend on the side have a difference of "
    "0. Neither has to be so for data to be good: what matters is whether you know it, and whether it fits the use. The text "
    "that the tokenizer is tried on takes as many tokens in a language it serves as well as English: 1."
)
LIMITS = (
    "Languages are told by script and small words: short texts often cannot be told (about one in six of Tatoeba's sentences of "
    "six words), about 1 in 200 is taken for a near language, and others than those listed are not known at all. Groups are "
    "found by a list of words, in English, and in German and French where that is safe; who is meant but not named, and who "
    "wrote the texts, is not seen. A word that stands beside a group is a hint to read the texts, not a finding about them."
)


class Data(Suite):
    name = "data"
    said = "the training data: languages, lengths, repeats, groups that are named, what stands beside them, labels by group"
    reads = ("splits",)

    def unfit(self, task: Task) -> str:
        if any(role.kind in WRITTEN for role in task.roles(())):
            return ""
        return "it reads texts, and the data of this task have none"

    def run(self, subject: Subject) -> Finding:
        assert subject.splits is not None, "a suite that reads splits is given them"
        rows = _rows(subject.splits)[:MOST]
        parts = [_parts(subject.task, example) for example in rows]
        texts = [" ".join(some) for some in parts]
        found = shares(
            part for some in parts for part in some if part.strip()
        )  # source and target are in two languages
        total = sum(found.values())
        codes = [code for code, count in found.items() if code and count >= 0.05 * total] or ["en"]
        seen, words, count = look(texts, codes, subject.told)
        figures: list[Figure] = [share(f"texts in {_name(next(iter(found), ''))}", _are(found))] if total else []
        for one in seen:
            figures += _balance(one, [_labels(example) for example in rows])
        figures += _repeated(texts)
        grids = [_languages(found), *_served(subject), *_terms(seen), *_bonds(seen, words, count)]
        facts = replace(examine(subject.splits, subject.task.roles(())), said=[])
        notes = [" ".join(line.split()) for line in facts.lines() if not line.endswith(" 0 records")] + _few(seen)
        more = len(subject.splits.train.examples) - len(texts)
        if more > 0:
            notes.append(f"{more:,} further texts were not looked at.")
        return Finding(self.name, tuple(figures), BASELINE, LIMITS, tuple(grids), _examples(seen, texts), tuple(notes))


def _rows(splits: Splits) -> list[Example]:
    examples = splits.train.examples
    return list(examples.some if isinstance(examples, Long) else examples)


def _parts(task: Task, example: Example) -> list[str]:
    """All that is written in an example, role by role."""
    parts: list[str] = []
    for role in task.roles(()):
        if role.kind in WRITTEN and role.name in example:
            value = example[role.name]
            parts += [" ".join(value)] if role.kind == "words" else several(value)
    return parts


def _labels(example: Example) -> list[str]:
    if "labels" in example:
        return list(example["labels"])
    return [str(example["label"])] if isinstance(example.values.get("label"), str) else []


def _name(code: str) -> str:
    return languages()[code].name if code else "a language that cannot be told"


def _are(found: dict[str, int]) -> np.ndarray:
    """Which texts are in the commonest language, as a row of noughts and ones in no order."""
    most = next(iter(found.values()))
    return np.repeat([True, False], [most, sum(found.values()) - most])


def _languages(found: dict[str, int]) -> Grid:
    total = sum(found.values())
    rows = tuple((_name(code), f"{count:,}", f"{count / total:.1%}") for code, count in found.items())
    return Grid("Languages found", ("language", "texts", "share"), rows)


def _repeated(texts: Sequence[str]) -> Iterator[Figure]:
    """How many texts say again what an earlier one says."""
    seen: set[str] = set()
    again = [text in seen or bool(seen.add(text)) for text in texts if text.strip()]
    if again:
        yield share("texts that repeat an earlier one", again)


def _examples(seen: Sequence[Seen], texts: Sequence[str]) -> Grid:
    """A few texts that name one side alone, evenly drawn; where there are none, a few texts."""
    rows = []
    for one, side in ((one, side) for one in seen for side in (0, 1)):
        mine = [text for text, sides in zip(texts, one.texts, strict=True) if sides == {side}]
        rows += [(one.dimension.name, one.dimension.sides[side], _short(text)) for text in _some(mine, SHOWN)]
    if rows:
        return Grid("Texts that name one side alone", ("dimension", "side", "text"), tuple(rows))
    written = [text for text in texts if text.strip()]
    return Grid("Some of the texts", ("text",), tuple((_short(text),) for text in _some(written, 3 * SHOWN)))


def _some(texts: Sequence[str], count: int) -> list[str]:
    return list(texts[:: max(1, len(texts) // count)][:count])


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= LONG else flat[: LONG - 1] + "…"


def _served(subject: Subject) -> Iterator[Grid]:
    """What the tokenizer needs for each language, the worst served first."""
    tokenizer = None if subject.model is None else subject.model.tokenizer
    if tokenizer is None:
        return
    rows = tuple(
        (
            one.language.name,
            f"{one.tokens:,}",
            "–" if one.per_word is None else f"{one.per_word:.2f}",
            f"{one.times:.2f}",
            f"{one.unknown:.1%}",
        )
        for one in reversed(served(tokenizer))
    )
    heads = ("language", "tokens", "tokens a word", "times English", "unknown")
    yield Grid("One short text in many languages: whom the tokenizer serves, the worst first", heads, rows)


def _balance(seen: Seen, labels: Sequence[list[str]]) -> Iterator[Figure]:
    """How often either side is named, and how labels differ between texts that name one side alone."""
    alone = [next(iter(sides)) if len(sides) == 1 else None for sides in seen.texts]
    counts = Counter(side for side in alone if side is not None)
    left, right = seen.dimension.sides
    name = seen.dimension.name + ("" if seen.dimension.language == "en" else f" ({seen.dimension.language})")
    if sum(counts.values()) < FEW:
        return
    first = [side == 0 for side in alone if side is not None]
    yield share(f"{name}: {left}, of texts that name one side alone", first, baseline=0.5)
    if min(counts[0], counts[1]) < FEW or not any(labels):
        return
    common = Counter(label for some in labels for label in some).most_common(LABELS)
    for label, _ in common[: 1 if len(common) == 2 else LABELS]:
        units = np.array(
            [_unit(side, label in some) for side, some in zip(alone, labels, strict=True) if side is not None]
        )
        yield of_sums(f"{name}: label {label!r}, {left} minus {right}", _difference, units, baseline=0.0)


def _unit(side: int, held: bool) -> list[float]:
    """A row for `_difference`: hits and count of the first side, then of the other."""
    hit = float(held)
    return [hit, 1.0, 0.0, 0.0] if side == 0 else [0.0, 0.0, hit, 1.0]


def _difference(sums: np.ndarray) -> np.ndarray:
    """The share of one side less that of the other; 0 where a draw has none of one side."""
    both = np.maximum(sums[:, [1, 3]], 1)
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), sums[:, 0] / both[:, 0] - sums[:, 2] / both[:, 1], 0.0)


def _terms(seen: Sequence[Seen]) -> Iterator[Grid]:
    """Which group terms there are, and how often."""
    rows = tuple(
        (one.dimension.name, one.dimension.sides[side], f"{terms.total():,}", _listed(terms))
        for one in seen
        for side, terms in enumerate(one.terms)
        if terms
    )
    if rows:
        yield Grid("Groups that are named", ("dimension", "side", "times", "by these words"), rows)


def _listed(terms: Counter[str]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in terms.most_common(BOUND))


def _bonds(seen: Sequence[Seen], words: Counter[str], total: int) -> Iterator[Grid]:
    """The words that stand beside a side the most, by PMI."""
    rows = []
    for one in seen:
        for side in (0, 1):
            found = bonds(one, side, words, total)[:BOUND]
            told = ", ".join(f"{bond.word} ({bond.count}, {bond.bits:+.1f} bits)" for bond in found)
            if told:
                rows.append((one.dimension.name, one.dimension.sides[side], told))
    if rows:
        title = f"What stands beside them more often than chance (PMI, at least {LEAST} times)"
        yield Grid(title, ("dimension", "side", "words"), tuple(rows))


def _few(seen: Sequence[Seen]) -> list[str]:
    named = [one for one in seen if sum(len(sides) == 1 for sides in one.texts) < FEW]
    told = ", ".join(one.dimension.name for one in named)
    return [f"Fewer than {FEW} texts name one side alone: {told}."] if told else []
