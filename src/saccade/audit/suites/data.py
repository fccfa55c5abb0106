"""Audit of training data: languages, lengths, duplicates, mentions of groups, and the words that co-occur with them."""

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

MAX_TEXTS = 50_000  # most training examples that are audited
MIN_TEXTS_PER_SIDE = 20  # a side with fewer texts is not reported
MAX_WORDS_SHOWN = 8  # words shown for each side
MAX_LABELS = 6
MAX_TEXTS_SHOWN = 2  # example texts of each side
MAX_CHARACTERS_SHOWN = 240  # characters shown of a text
TEXT_ROLE_KINDS = ("text", "texts", "line", "words")
INTERPRETATION = (
    "If both sides are named equally often, the fraction is 0.5; if labels do not depend on the side, the difference is 0. Good "
    "data need not have these values: what matters is that you know them, and that they fit the intended use. If the tokenizer "
    "encodes a language as well as English, the same text has as many tokens: 1 times English."
)
LIMITATIONS = (
    "Languages are detected by script and stop words: many short texts remain undetected (one in six sentences of six words in "
    "Tatoeba), about 1 in 200 is mistaken for a related language, and only the supported languages are known. Groups are "
    "detected by a word list in English, and in German and French where words are unambiguous; people who are meant but not "
    "named, and the authors of the texts, are not covered. A word that co-occurs with a group is a reason to read the texts, not "
    "a result about them."
)


class DataSuite(Suite):
    name = "data"
    description = (
        "training data: languages, lengths, duplicates, groups, words that co-occur with them, labels by group"
    )
    requires = ("splits",)

    def not_applicable(self, task: Task) -> str:
        if any(role.kind in TEXT_ROLE_KINDS for role in task.roles(())):
            return ""
        return "it audits texts, and the data of this task contain none"

    def run(self, subject: AuditSubject) -> SuiteResult:
        assert subject.splits is not None, "the suite requires splits"
        train = _train_examples(subject.splits)[:MAX_TEXTS]
        parts = [_example_texts(subject.task, example) for example in train]
        texts = [" ".join(strings) for strings in parts]
        # each string by itself, because source and target are in two languages
        languages = count_languages(string for strings in parts for string in strings if string.strip())
        total = sum(languages.values())
        codes = [code for code, count in languages.items() if code and count >= 0.05 * total] or ["en"]
        groups, word_counts, word_total = count_groups(texts, codes, subject.on_progress)
        estimates: list[Estimate] = []
        if total:
            name = f"texts in {_language_name(next(iter(languages)))}"
            estimates.append(estimate_fraction(name, _commonest_language_hits(languages)))
        for group_counts in groups:
            estimates += _measure_balance(group_counts, [_example_labels(example) for example in train])
        estimates += _measure_duplicates(texts)
        tables = [
            _language_table(languages),
            *_tokenizer_table(subject),
            *_term_table(groups),
            *_association_table(groups, word_counts, word_total),
        ]
        report = replace(inspect_data(subject.splits, subject.task.roles(())), notes=[])
        notes = [" ".join(line.split()) for line in report.to_lines() if not line.endswith(" 0 records")]
        notes += _note_rare_dimensions(groups)
        remaining = len(subject.splits.train.examples) - len(texts)
        if remaining > 0:
            notes.append(f"{remaining:,} further texts were not audited.")
        examples = _example_table(groups, texts)
        return SuiteResult(
            self.name, tuple(estimates), INTERPRETATION, LIMITATIONS, tuple(tables), examples, tuple(notes)
        )


def _train_examples(splits: Splits) -> list[Example]:
    examples = splits.train.examples
    return list(examples.sample if isinstance(examples, StreamedExamples) else examples)


def _example_texts(task: Task, example: Example) -> list[str]:
    """All texts of an example, role by role."""
    texts: list[str] = []
    for role in task.roles(()):
        if role.kind in TEXT_ROLE_KINDS and role.name in example:
            value = example[role.name]
            texts += [" ".join(value)] if role.kind == "words" else as_list(value)
    return texts


def _example_labels(example: Example) -> list[str]:
    if "labels" in example:
        return list(example["labels"])
    return [str(example["label"])] if isinstance(example.values.get("label"), str) else []


def _language_name(code: str) -> str:
    return load_languages()[code].name if code else "an undetected language"


def _commonest_language_hits(languages: dict[str, int]) -> np.ndarray:
    """For each text, in no particular order, whether it is in the most frequent language."""
    most = next(iter(languages.values()))
    return np.repeat([True, False], [most, sum(languages.values()) - most])


def _language_table(languages: dict[str, int]) -> AuditTable:
    total = sum(languages.values())
    rows = tuple((_language_name(code), f"{count:,}", f"{count / total:.1%}") for code, count in languages.items())
    return AuditTable("Languages", ("language", "texts", "fraction"), rows)


def _measure_duplicates(texts: Sequence[str]) -> Iterator[Estimate]:
    """The fraction of texts that are identical to an earlier one."""
    seen: set[str] = set()
    is_duplicate = [text in seen or bool(seen.add(text)) for text in texts if text.strip()]
    if is_duplicate:
        yield estimate_fraction("duplicate texts", is_duplicate)


def _example_table(groups: Sequence[GroupCounts], texts: Sequence[str]) -> AuditTable:
    """A few texts that name only one side, evenly sampled; if there are none, a few of all texts."""
    rows = []
    for one, side in ((one, side) for one in groups for side in (0, 1)):
        one_sided = [text for text, sides in zip(texts, one.text_sides, strict=True) if sides == {side}]
        sample = _sample_evenly(one_sided, MAX_TEXTS_SHOWN)
        rows += [(one.dimension.name, one.dimension.sides[side], _abbreviate(text)) for text in sample]
    if rows:
        return AuditTable("Texts that name only one side", ("dimension", "side", "text"), tuple(rows))
    sample = _sample_evenly([text for text in texts if text.strip()], 3 * MAX_TEXTS_SHOWN)
    return AuditTable("Some of the texts", ("text",), tuple((_abbreviate(text),) for text in sample))


def _sample_evenly(texts: Sequence[str], count: int) -> list[str]:
    return list(texts[:: max(1, len(texts) // count)][:count])


def _abbreviate(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CHARACTERS_SHOWN else flat[: MAX_CHARACTERS_SHOWN - 1] + "…"


def _tokenizer_table(subject: AuditSubject) -> Iterator[AuditTable]:
    """How well the tokenizer encodes each language, the worst first."""
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
    columns = ("language", "tokens", "tokens per word", "times English", "unknown tokens")
    yield AuditTable("Tokenizer coverage: one short text in many languages, the worst first", columns, rows)


def _measure_balance(group_counts: GroupCounts, labels: Sequence[list[str]]) -> Iterator[Estimate]:
    """The fraction of texts that name the first side, and how labels differ between texts that name only one side."""
    only_sides = [next(iter(sides)) if len(sides) == 1 else None for sides in group_counts.text_sides]
    counts = Counter(side for side in only_sides if side is not None)
    dimension = group_counts.dimension
    left, right = dimension.sides
    name = dimension.name + ("" if dimension.language == "en" else f" ({dimension.language})")
    if sum(counts.values()) < MIN_TEXTS_PER_SIDE:
        return
    is_first = [side == 0 for side in only_sides if side is not None]
    yield estimate_fraction(f"{name}: {left}, of texts that name only one side", is_first, baseline=0.5)
    if min(counts[0], counts[1]) < MIN_TEXTS_PER_SIDE or not any(labels):
        return
    common = Counter(label for text_labels in labels for label in text_labels).most_common(MAX_LABELS)
    for label, _ in common[: 1 if len(common) == 2 else MAX_LABELS]:
        sided_labels = zip(only_sides, labels, strict=True)
        units = np.array([_side_counts(side, label in given) for side, given in sided_labels if side is not None])
        metric = f"{name}: label {label!r}, {left} minus {right}"
        yield estimate_from_sums(metric, _fraction_difference, units, baseline=0.0)


def _side_counts(side: int, is_hit: bool) -> list[float]:
    """A row for `_fraction_difference`: hits and count of the first side, then of the other."""
    hit = float(is_hit)
    return [hit, 1.0, 0.0, 0.0] if side == 0 else [0.0, 0.0, hit, 1.0]


def _fraction_difference(sums: np.ndarray) -> np.ndarray:
    """The fraction of one side minus that of the other; 0 for a bootstrap sample without one of them."""
    counts = np.maximum(sums[:, [1, 3]], 1)
    return np.where((sums[:, 1] > 0) & (sums[:, 3] > 0), sums[:, 0] / counts[:, 0] - sums[:, 2] / counts[:, 1], 0.0)


def _term_table(groups: Sequence[GroupCounts]) -> Iterator[AuditTable]:
    """The group terms that occur, and how often."""
    rows = tuple(
        (one.dimension.name, one.dimension.sides[side], f"{terms.total():,}", _format_counts(terms))
        for one in groups
        for side, terms in enumerate(one.term_counts)
        if terms
    )
    if rows:
        yield AuditTable("Mentions of groups", ("dimension", "side", "mentions", "terms"), rows)


def _format_counts(terms: Counter[str]) -> str:
    return ", ".join(f"{word} {count:,}" for word, count in terms.most_common(MAX_WORDS_SHOWN))


def _association_table(groups: Sequence[GroupCounts], words: Counter[str], total: int) -> Iterator[AuditTable]:
    """The words with the highest PMI with each side."""
    rows = []
    for one in groups:
        for side in (0, 1):
            associations = find_associations(one, side, words, total)[:MAX_WORDS_SHOWN]
            cell = ", ".join(f"{word.word} ({word.count}, {word.pmi_bits:+.1f} bits)" for word in associations)
            if cell:
                rows.append((one.dimension.name, one.dimension.sides[side], cell))
    if rows:
        title = f"Words that co-occur with groups more often than by chance (PMI, at least {MIN_COOCCURRENCES} times)"
        yield AuditTable(title, ("dimension", "side", "words"), tuple(rows))


def _note_rare_dimensions(groups: Sequence[GroupCounts]) -> list[str]:
    rare = [one for one in groups if sum(len(sides) == 1 for sides in one.text_sides) < MIN_TEXTS_PER_SIDE]
    names = ", ".join(one.dimension.name for one in rare)
    return [f"Not reported, as fewer than {MIN_TEXTS_PER_SIDE} texts name only one side: {names}."] if names else []
