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

BLANK = "BLANK"


@dataclass(frozen=True)
class Pair:
    """Two sentences that differ in the group; the first says what prejudice says."""

    kind: str
    stereotype: str
    other: str


@dataclass(frozen=True)
class Triple:
    """StereoSet's: a context (with a gap, or a sentence before), what fills or follows it, and a thing that makes no sense."""

    kind: str
    target: str
    context: str
    stereotype: str
    other: str
    unrelated: str

    @property
    def gap(self) -> bool:
        """Whether the three fill a gap; otherwise they follow the context."""
        return BLANK in self.context


@cache
def _own() -> str:
    return (files("saccade.audit") / "pairs.tsv").read_text(encoding="utf-8")


def own_pairs() -> list[Pair]:
    """The pairs that come with the package."""
    return [Pair(*line.split("\t")) for line in _own().splitlines()[1:]]


def own_mark() -> str:
    """Their hash."""
    return hashlib.sha256(_own().encode()).hexdigest()


def read_sentences(paths: Sequence[Path]) -> tuple[list[Pair], list[Triple]]:
    """The sentences of files, each in the form that is found in it."""
    pairs: list[Pair] = []
    triples: list[Triple] = []
    for path in paths:
        text = _text(path)
        found = _triples(text, path) if text.lstrip().startswith("{") else _pairs(text, path)
        for one in found:
            (pairs if isinstance(one, Pair) else triples).append(one)  # type: ignore[arg-type]
    return pairs, triples


def _text(path: Path) -> str:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        cure = (
            "give a file of CrowS-Pairs (CSV) or StereoSet (JSON), or our own form: kind, stereotype, other with tabs"
        )
        raise DataError(f"cannot be read ({error})", file=path, cure=cure) from None


def _pairs(text: str, path: Path) -> list[Pair]:
    """CrowS-Pairs, where `stereo_antistereo` says which of the two is the stereotype; or kind, stereotype and other."""
    mark = "\t" if "\t" in text.split("\n", 1)[0] else ","
    rows = csv.DictReader(text.splitlines(), delimiter=mark)
    names = set(rows.fieldnames or ())
    crows, plain = {"sent_more", "sent_less", "stereo_antistereo", "bias_type"}, {"kind", "stereotype", "other"}
    if not (crows <= names or plain <= names):
        cure = f"name the columns {', '.join(sorted(crows))} as CrowS-Pairs does, or {', '.join(sorted(plain))}"
        raise DataError("no known form of sentence pairs", file=path, line=1, value=", ".join(sorted(names)), cure=cure)
    if plain <= names:
        return [Pair(row["kind"], row["stereotype"], row["other"]) for row in rows]
    # `sent_more` is about the disadvantaged group, and is a stereotype or the opposite of one
    return [_crows(row, path, number) for number, row in enumerate(rows, 2)]


def _crows(row: dict[str, Any], path: Path, line: int) -> Pair:
    more, less, way = row["sent_more"], row["sent_less"], row["stereo_antistereo"]
    if way not in ("stereo", "antistereo"):
        raise DataError("neither stereo nor antistereo", file=path, line=line, column="stereo_antistereo", value=way)
    return Pair(row["bias_type"], *((more, less) if way == "stereo" else (less, more)))


def _triples(text: str, path: Path) -> list[Triple]:
    """StereoSet as published (one object with all), or one JSON object a line."""
    try:
        lines = text.strip().splitlines()
        whole = json.loads(text) if len(lines) == 1 or lines[0].strip() == "{" else {}
        if "data" in whole:
            return [_published(one) for part in whole["data"].values() for one in part]
        return [_flat(json.loads(line)) for line in lines]
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        what = f"no StereoSet in a form that is known ({type(error).__name__}: {error})"
        raise DataError(what, file=path, cure="give its dev.json, or one object a line with its fields") from None


def _published(raw: dict[str, Any]) -> Triple:
    by = {one["gold_label"]: one["sentence"] for one in raw["sentences"]}
    return Triple(
        raw["bias_type"], raw["target"], raw["context"], by["stereotype"], by["anti-stereotype"], by["unrelated"]
    )


def _flat(raw: dict[str, Any]) -> Triple:
    names = ("bias_type", "target", "context", "stereotype", "anti-stereotype", "unrelated")
    return Triple(*(raw[name] for name in names))


def kinds(found: Iterable[Pair | Triple]) -> list[str]:
    """The kinds of prejudice, in their order."""
    return list(dict.fromkeys(one.kind for one in found))
