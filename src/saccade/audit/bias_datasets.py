"""Bias test sets for language models: the built-in sentence pairs, CrowS-Pairs and StereoSet; the format is detected."""

import csv
import gzip
import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from saccade.errors import DataError

GAP_MARKER = "BLANK"


@dataclass(frozen=True)
class SentencePair:
    """Two sentences that differ in the group that they are about; the first one states a stereotype."""

    bias_type: str
    stereotype: str
    anti_stereotype: str


@dataclass(frozen=True)
class SentenceTriple:
    """An item of StereoSet: a context, and three sentences that follow it or fill its gap: stereotype, opposite, unrelated."""

    bias_type: str
    target: str
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str

    @property
    def has_gap(self) -> bool:
        """Whether the three sentences fill a gap in the context; otherwise they follow it."""
        return GAP_MARKER in self.context


@cache
def _read_builtin() -> str:
    return (files("saccade.audit.suites") / "stereotypes.tsv").read_text(encoding="utf-8")


def builtin_pairs() -> list[SentencePair]:
    """The sentence pairs of the package."""
    return [SentencePair(*line.split("\t")) for line in _read_builtin().splitlines()[1:]]


def builtin_digest() -> str:
    """The SHA-256 of the built-in sentence pairs."""
    return hashlib.sha256(_read_builtin().encode()).hexdigest()


def read_sentences(paths: Sequence[Path]) -> tuple[list[SentencePair], list[SentenceTriple]]:
    """Read the sentence pairs and triples of some files, in any of the supported formats."""
    pairs: list[SentencePair] = []
    triples: list[SentenceTriple] = []
    for path in paths:
        text = _read_text(path)
        if text.lstrip().startswith("{"):
            triples += _parse_stereoset(text, path)
        else:
            pairs += _parse_pairs(text, path)
    return pairs, triples


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        hint = "give CrowS-Pairs (CSV), StereoSet (JSON), or tab-separated bias_type, stereotype, anti_stereotype"
        raise DataError(f"cannot be read ({error})", file=path, hint=hint) from None


def _parse_pairs(text: str, path: Path) -> list[SentencePair]:
    """Parse CrowS-Pairs, where `stereo_antistereo` tells which sentence is the stereotype, or the columns of `SentencePair`."""
    delimiter = "\t" if "\t" in text.split("\n", 1)[0] else ","
    rows = csv.DictReader(text.splitlines(), delimiter=delimiter)
    columns = set(rows.fieldnames or ())
    crows_columns = {"sent_more", "sent_less", "stereo_antistereo", "bias_type"}
    pair_columns = {"bias_type", "stereotype", "anti_stereotype"}
    if pair_columns <= columns:
        return [SentencePair(row["bias_type"], row["stereotype"], row["anti_stereotype"]) for row in rows]
    if not crows_columns <= columns:
        hint = f"name the columns {', '.join(sorted(crows_columns))} as CrowS-Pairs does, or {', '.join(sorted(pair_columns))}"
        got = ", ".join(sorted(columns))
        raise DataError("unknown format of sentence pairs", file=path, line=1, value=got, hint=hint)
    # `sent_more` is about the disadvantaged group, and is a stereotype or the opposite of one
    return [_parse_crows_row(row, path, line) for line, row in enumerate(rows, 2)]


def _parse_crows_row(row: dict[str, Any], path: Path, line: int) -> SentencePair:
    more, less, direction = row["sent_more"], row["sent_less"], row["stereo_antistereo"]
    if direction not in ("stereo", "antistereo"):
        column = "stereo_antistereo"
        raise DataError("neither stereo nor antistereo", file=path, line=line, column=column, value=direction)
    return SentencePair(row["bias_type"], *((more, less) if direction == "stereo" else (less, more)))


def _parse_stereoset(text: str, path: Path) -> list[SentenceTriple]:
    """Parse StereoSet as published (one JSON object), or as JSON lines."""
    try:
        lines = text.strip().splitlines()
        published = json.loads(text) if len(lines) == 1 or lines[0].strip() == "{" else {}
        if "data" in published:
            return [_parse_published_item(item) for items in published["data"].values() for item in items]
        return [_parse_flat_item(json.loads(line)) for line in lines]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        message = f"not in the format of StereoSet ({type(error).__name__}: {error})"
        raise DataError(message, file=path, hint="give its dev.json, or JSON lines with its fields") from None


def _parse_published_item(raw: dict[str, Any]) -> SentenceTriple:
    by_label = {sentence["gold_label"]: sentence["sentence"] for sentence in raw["sentences"]}
    sentences = (by_label[label] for label in ("stereotype", "anti-stereotype", "unrelated"))
    return SentenceTriple(raw["bias_type"], raw["target"], raw["context"], *sentences)


def _parse_flat_item(raw: dict[str, Any]) -> SentenceTriple:
    fields = ("bias_type", "target", "context", "stereotype", "anti-stereotype", "unrelated")
    return SentenceTriple(*(raw[field] for field in fields))


def list_bias_types(items: Iterable[SentencePair | SentenceTriple]) -> list[str]:
    """The bias types of some items, each once, in their order."""
    return list(dict.fromkeys(item.bias_type for item in items))
