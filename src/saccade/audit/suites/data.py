"""The suite `data`: what a model learns from: languages, lengths, repeats, groups, and what stands beside them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from saccade.audit.groups import MIN_COOCCURRENCES, GroupCounts, count_groups, find_associations
from saccade.audit.stats import estimate_fraction, estimate_from_sums
from saccade.audit.suite import AuditSubject, AuditTable, Estimate, Suite, SuiteResult
from saccade.data import Example, Splits, inspect_data
from saccade.data.example import as_list
from saccade.data.streaming.text import StreamedExamples
from saccade.tasks.base import Task
from saccade.text.language_id import count_languages, load_languages, measure_tokenizer_coverage

MAX_TEXTS = 50_000  # texts that are looked at
MIN_TEXTS_PER_SIDE = 20  # texts of a side below which nothing is said of it
MAX_WORDS_SHOWN = 8  # words that are shown beside a side
MAX_LABELS = 6
MAX_TEXTS_SHOWN = 2  # texts of a side among the examples
MAX_CHARACTERS_SHOWN = 240  # letters of a text that are shown
TEXT_ROLE_KINDS = ("text", "texts", "line", "words")
INTERPRETATION = (
    "Two sides that are named equally often have a share of 0.5, and labels that do not depend on the side have a difference of "
    "0. Neither has to be so for data to be good: what matters is whether you know it, and whether it fits the use. The text "
    "that the tokenizer is tried on takes as many tokens in a language it serves as well as English: 1."
)
LIMITATIONS = (
    "Languages are told by script and small words: short texts often cannot be told (about one in six of Tatoeba's sentences of "
    "six words), about 1 in 200 is taken for a near language, and others than those listed are not known at all. Groups are "
    "found by a list of words, in English, and in German and French where that is safe; who is meant but not named, and who "
    "wrote the texts, is not seen. A word that stands beside a group is a hint to read the texts, not a finding about them."
)


class DataSuite(Suite):
    name = "data"
    description = "training data: languages, lengths, duplicates, mentions of groups, words that co-occur with them, labels by group"
    requires = ("splits",)

    def not_applicable(self, task: Task) -> str:
        if any(role.kind in TEXT_ROLE_KINDS for role in task.roles(())):
            return ""
        return "it reads texts, and the data of this task have none"

    def run(self, subject: AuditSubject) -> SuiteResult:
        assert subject.splits is not None, "a suite that reads splits is given them"
        rows = _train_examples(subject.splits)[:MAX_TEXTS]
        parts = [_example_texts(subject.task, example) for example in rows]
        texts = [" ".join(some) for some in parts]
        found = count_languages(
            part for some in parts for part in some if part.strip()
        )  # source and target are in two languages
        total = sum(found.values())
        codes = [code for code, count in found.items() if code and count >= 0.05 * total] or ["en"]
        seen, words, count = count_groups(texts, codes, subject.on_progress)
        figures: list[Estimate] = (
            [estimate_fraction(f"texts in {_language_name(next(iter(found), ''))}", _commonest_language_hits(found))]
            if total
            else []
        )
        for one in seen:
            figures += _measure_balance(one, [_example_labels(example) for example in rows])
        figures += _measure_repeats(texts)
        grids = [
            _language_table(found),
            *_tokenizer_table(subject),
            *_term_table(seen),
            *_association_table(seen, words, count),
        ]
        facts = replace(inspect_data(subject.splits, subject.task.roles(())), notes=[])
        notes = [
            " ".join(line.split()) for line in facts.to_lines() if not line.endswith(" 0 records")
        ] + _note_rare_dimensions(seen)
        more = len(subject.splits.train.examples) - len(texts)
        if more > 0:
            notes.append(f"{more:,} further texts were not looked at.")
        return SuiteResult(
            self.name,
            tuple(figures),
            INTERPRETATION,
            LIMITATIONS,
            tuple(grids),
            _example_table(seen, texts),
            tuple(notes),
        )


def _train_examples(splits: Splits) -> list[Example]:
    examples = splits.train.examples
    return list(examples.sample if isinstance(examples, StreamedExamples) else examples)


def _example_texts(task: Task, example: Example) -> list[str]:
    """All that is written in an example, role by role."""
    parts: list[str] = []
    for role in task.roles(()):
        if role.kind in TEXT_ROLE_KINDS and role.name in example:
            value = example[role.name]
            parts += [" ".join(value)] if role.kind == "words" else as_list(value)
    return parts


def _example_labels(example: Example) -> list[str]:
    if "labels" in example:
        return list(example["labels"])
    return [str(example["label"])] if isinstance(example.values.get("label"), str) else []


def _language_name(code: str) -> str:
    return load_languages()[code].name if code else "a language that cannot be told"


def _commonest_language_hits(found: dict[str, int]) -> np.ndarray:
    """Which texts are in the commonest language, as a row of noughts and ones in no order."""
    most = next(iter(found.values()))
    return np.repeat([True, False], [most, sum(found.values()) - most])


def _language_table(found: dict[str, int]) -> AuditTable:
    total = sum(found.values())
    rows = tuple((_language_name(code), f"{count:,}", f"{count / total:.1%}") for code, count in found.items())
    return AuditTable("Languages found", ("language", "texts", "share"), rows)


def _measure_repeats(texts: Sequence[str]) -> Iterator[Estimate]:
    """How many texts say again what an earlier one says."""
    seen: set[str] = set()
    again = [text in seen or bool(seen.add(text)) for text in texts if text.strip()]
    if again:
        yield estimate_fraction("texts that repeat an earlier one", again)


def _example_table(seen: Sequence[GroupCounts], texts: Sequence[str]) -> AuditTable:
    """A few texts that name one side alone, evenly drawn; where there are none, a few texts."""
    rows = []
    for one, side in ((one, side) for one in seen for side in (0, 1)):
        mine = [text for text, sides in zip(texts, one.text_sides, strict=True) if sides == {side}]
        rows += [
            (one.dimension.name, one.dimension.sides[side], _abbreviate(text))
            for text in _sample_evenly(mine, MAX_TEXTS_SHOWN)
        ]
    if rows:
        return AuditTable("Texts that name one side alone", ("dimension", "side", "text"), tuple(rows))
    written = [text for text in texts if text.strip()]
    return AuditTable(
        "Some of the texts",
        ("text",),
        tuple((_abbreviate(text),) for text in _sample_evenly(written, 3 * MAX_TEXTS_SHOWN)),
    )


def _sample_evenly(texts: Sequence[str], count: int) -> list[str]:
    return list(texts[:: max(1, len(texts) // count)][:count])


def _abbreviate(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CHARACTERS_SHOWN else flat[: MAX_CHARACTERS_SHOWN - 1] + "…"


def _tokenizer_table(subject: AuditSubject) -> Iterator[AuditTable]:
    """What the tokenizer needs for each language, the worst served first."""
    tokenizer = None if subject.model is None else subject.model.tokenizer
    if tokenizer is None:
        return
    rows = tuple(
        (
            one.language.name,
            f"{one.token_count:,}",
            "–" if one.tokens_per_word is None else f"{one.tokens_per_word:.2f}",
            f"{one.ratio_to_english:.2f}",
            f"{one.unknown_fraction:.1%}",
        )
        for one in reversed(measure_tokenizer_coverage(tokenizer))
    )
    heads = ("language", "tokens", "tokens a word", "times English", "unknown")
    yield AuditTable("One short text in many languages: whom the tokenizer serves, the worst first", heads, rows)


def _measure_balance(group_counts: GroupCounts, labels: Sequence[list[str]]) -> Iterator[Estimate]:
    """How often either side is named, and how labels differ between texts that name one side alone."""
    alone = [next(iter(sides)) if len(sides) == 1 else None for sides in group_counts.text_sides]
    counts = Counter(side for side in alone if side is not None)
    left, right = group_counts.dimension.sides
    name = group_counts.dimension.name + (
        "" if group_counts.dimension.language == "en" else f" ({group_counts.dimension.language})"
    )
    if sum(counts.values()) < MIN_TEXTS_PER_SIDE:
        return
    first = [side == 0 for side in alone if side is not None]
    yield estimate_fraction(f"{name}: {left}, of texts that name one side alone", first, baseline=0.5)
    if min(counts[0], counts[1]) < MIN_TEXTS_PER_SIDE or not any(labels):
        return
    common = Counter(label for some in labels for label in some).most_common(MAX_LABELS)
    for label, _ in common[: 1 if len(common) == 2 else MAX_LABELS]:
        units = np.array(
            [_side_counts(side, label in some) for side, some in zip(alone, labels, strict=True) if side is not None]
        )
        yield estimate_from_sums(
            f"{name}: label {label!r}, {left} minus {right}", _fraction_difference, units, baseline=0.0
        )


def _side_counts(side: int, is_hit: bool) -> list[float]:
    """A row for `_difference`: hits and count of the first side, then of the other."""
    hit = float(is_hit)
    return [hit, 1.0, 0.0, 0.0] if side == 0 else [0.0, 0.0, hit, 1.0]


def _fraction_difference(sums: np.ndarray) -> np.ndarray:
    """The share of one side less that of the other; 0 where a draw has none of one side."""
    both = np.maximum(sums[:, [1, 3]], 1)
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), sums[:, 0] / both[:, 0] - sums[:, 2] / both[:, 1], 0.0)


def _term_table(seen: Sequence[GroupCounts]) -> Iterator[AuditTable]:
    """Which group terms there are, and how often."""
    rows = tuple(
        (one.dimension.name, one.dimension.sides[side], f"{terms.total():,}", _format_counts(terms))
        for one in seen
        for side, terms in enumerate(one.term_counts)
        if terms
    )
    if rows:
        yield AuditTable("Groups that are named", ("dimension", "side", "times", "by these words"), rows)


def _format_counts(terms: Counter[str]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in terms.most_common(MAX_WORDS_SHOWN))


def _association_table(seen: Sequence[GroupCounts], words: Counter[str], total: int) -> Iterator[AuditTable]:
    """The words that stand beside a side the most, by PMI."""
    rows = []
    for one in seen:
        for side in (0, 1):
            found = find_associations(one, side, words, total)[:MAX_WORDS_SHOWN]
            told = ", ".join(f"{bond.word} ({bond.count}, {bond.pmi_bits:+.1f} bits)" for bond in found)
            if told:
                rows.append((one.dimension.name, one.dimension.sides[side], told))
    if rows:
        title = f"What stands beside them more often than chance (PMI, at least {MIN_COOCCURRENCES} times)"
        yield AuditTable(title, ("dimension", "side", "words"), tuple(rows))


def _note_rare_dimensions(seen: Sequence[GroupCounts]) -> list[str]:
    named = [one for one in seen if sum(len(sides) == 1 for sides in one.text_sides) < MIN_TEXTS_PER_SIDE]
    told = ", ".join(one.dimension.name for one in named)
    return [f"Fewer than {MIN_TEXTS_PER_SIDE} texts name one side alone: {told}."] if told else []
