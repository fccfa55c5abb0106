"""Test sentences for language models: a set of our own, CrowS-Pairs' and StereoSet's, told apart by what is in the file."""

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
    """Two sentences that differ in the group; the first says what prejudice says."""

    bias_type: str
    stereotype: str
    anti_stereotype: str


@dataclass(frozen=True)
class SentenceTriple:
    """StereoSet's: a context (with a gap, or a sentence before), what fills or follows it, and a thing that makes no sense."""

    bias_type: str
    target: str
    context: str
    stereotype: str
    anti_stereotype: str
    unrelated: str

    @property
    def has_gap(self) -> bool:
        """Whether the three fill a gap; otherwise they follow the context."""
        return GAP_MARKER in self.context


@cache
def _read_builtin() -> str:
    return (files("saccade.audit.suites") / "stereotypes.tsv").read_text(encoding="utf-8")


def builtin_pairs() -> list[SentencePair]:
    """The pairs that come with the package."""
    return [SentencePair(*line.split("\t")) for line in _read_builtin().splitlines()[1:]]


def builtin_digest() -> str:
    """Their hash."""
    return hashlib.sha256(_read_builtin().encode()).hexdigest()


def read_sentences(paths: Sequence[Path]) -> tuple[list[SentencePair], list[SentenceTriple]]:
    """The sentences of files, each in the form that is found in it."""
    pairs: list[SentencePair] = []
    triples: list[SentenceTriple] = []
    for path in paths:
        text = _read_text(path)
        found = _parse_stereoset(text, path) if text.lstrip().startswith("{") else _parse_pairs(text, path)
        for one in found:
            (pairs if isinstance(one, SentencePair) else triples).append(one)  # type: ignore[arg-type]
    return pairs, triples


def _read_text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        cure = "give a file of CrowS-Pairs (CSV) or StereoSet (JSON), or our own form: bias_type, stereotype, anti_stereotype with tabs"
        raise DataError(f"cannot be read ({error})", file=path, hint=cure) from None


def _parse_pairs(text: str, path: Path) -> list[SentencePair]:
    """CrowS-Pairs, where `stereo_antistereo` says which of the two is the stereotype; or bias_type, stereotype and
    anti_stereotype."""
    mark = "\t" if "\t" in text.split("\n", 1)[0] else ","
    rows = csv.DictReader(text.splitlines(), delimiter=mark)
    names = set(rows.fieldnames or ())
    crows, plain = (
        {"sent_more", "sent_less", "stereo_antistereo", "bias_type"},
        {"bias_type", "stereotype", "anti_stereotype"},
    )
    if not (crows <= names or plain <= names):
        cure = f"name the columns {', '.join(sorted(crows))} as CrowS-Pairs does, or {', '.join(sorted(plain))}"
        raise DataError("no known form of sentence pairs", file=path, line=1, value=", ".join(sorted(names)), hint=cure)
    if plain <= names:
        return [SentencePair(row["bias_type"], row["stereotype"], row["anti_stereotype"]) for row in rows]
    # `sent_more` is about the disadvantaged group, and is a stereotype or the opposite of one
    return [_parse_crows_row(row, path, number) for number, row in enumerate(rows, 2)]


def _parse_crows_row(row: dict[str, Any], path: Path, line: int) -> SentencePair:
    more, less, way = row["sent_more"], row["sent_less"], row["stereo_antistereo"]
    if way not in ("stereo", "antistereo"):
        raise DataError("neither stereo nor antistereo", file=path, line=line, column="stereo_antistereo", value=way)
    return SentencePair(row["bias_type"], *((more, less) if way == "stereo" else (less, more)))


def _parse_stereoset(text: str, path: Path) -> list[SentenceTriple]:
    """StereoSet as published (one object with all), or one JSON object a line."""
    try:
        lines = text.strip().splitlines()
        whole = json.loads(text) if len(lines) == 1 or lines[0].strip() == "{" else {}
        if "data" in whole:
            return [_parse_published_item(one) for part in whole["data"].values() for one in part]
        return [_parse_flat_item(json.loads(line)) for line in lines]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        what = f"no StereoSet in a form that is known ({type(error).__name__}: {error})"
        raise DataError(what, file=path, hint="give its dev.json, or one object a line with its fields") from None


def _parse_published_item(raw: dict[str, Any]) -> SentenceTriple:
    by = {one["gold_label"]: one["sentence"] for one in raw["sentences"]}
    return SentenceTriple(
        raw["bias_type"], raw["target"], raw["context"], by["stereotype"], by["anti-stereotype"], by["unrelated"]
    )


def _parse_flat_item(raw: dict[str, Any]) -> SentenceTriple:
    names = ("bias_type", "target", "context", "stereotype", "anti-stereotype", "unrelated")
    return SentenceTriple(*(raw[name] for name in names))


def list_bias_types(found: Iterable[SentencePair | SentenceTriple]) -> list[str]:
    """The kinds of prejudice, in their order."""
    return list(dict.fromkeys(one.bias_type for one in found))
