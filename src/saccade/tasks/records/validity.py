"""Validity, uniqueness and novelty of generated records: molecules (SMILES), tunes (ABC), proteins and MIDI.

Records end with a separator, which the model learns like any other token. Validity is the fraction of records that pass the
check of their format, uniqueness the fraction of distinct records among the valid ones, and novelty the fraction of distinct
records that are not in the training data (as in MOSES: Polykovskiy et al. 2020, arXiv 1811.12823).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from saccade.data.read.midi import parse_notes
from saccade.errors import UsageError
from saccade.suggest import suggest
from saccade.tasks.records import check_abc_tune, check_smiles

MAX_FAULTS_SHOWN = 3  # invalid records in a report
RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWYBJOUXZ")  # the twenty standard amino acids, and six rare or ambiguous codes


@dataclass(frozen=True)
class RecordFormat:
    """The format of a record: its separator, its check (returns a fault or ""), and its canonical form for comparison."""

    name: str
    description: str
    separator: str
    find_fault: Callable[[str], str]
    canonicalize: Callable[[str], str] = str.strip


@dataclass(frozen=True)
class ValidityReport:
    """The result of the check of some records."""

    format_description: str
    count: int
    valid: int
    unique: int
    novel: int | None  # None: the training data are not available
    faults: dict[str, str] = field(default_factory=dict)  # some invalid records with their faults

    @property
    def validity(self) -> float:
        return self.valid / max(1, self.count)

    @property
    def uniqueness(self) -> float:
        return self.unique / max(1, self.valid)

    @property
    def novelty(self) -> float | None:
        return None if self.novel is None else self.novel / max(1, self.unique)

    def to_lines(self) -> list[str]:
        """The report as lines of text."""
        lines = [
            f"check      {self.format_description}",
            f"valid      {self.valid:,} of {self.count:,} ({self.validity:.1%})",
            f"unique     {self.unique:,} of {self.valid:,} valid ({self.uniqueness:.1%})",
        ]
        if self.novelty is not None:
            lines.append(f"novel      {self.novel:,} of {self.unique:,} unique ({self.novelty:.1%})")
        return lines + [f"invalid    {text[:60]!r}: {fault}" for text, fault in self.faults.items()]

    def as_dict(self) -> dict[str, Any]:
        """The report as a dictionary, with the three fractions."""
        fractions = {"validity": self.validity, "uniqueness": self.uniqueness, "novelty": self.novelty}
        return asdict(self) | fractions


def check_validity(
    texts: Sequence[str],
    record_format: RecordFormat,
    training_texts: Iterable[str] | None = None,
    *,
    unfinished: Collection[str] = (),
) -> ValidityReport:
    """Measure validity, uniqueness and novelty of records; unfinished ones are invalid.

    >>> report = check_validity(["MKV", "MKV", "MK1", "GGA"], get_record_format("protein"), ["GGA"])
    >>> report.validity, report.uniqueness, report.novelty
    (0.75, 0.6666666666666666, 0.5)
    """
    faults = {
        text: "it is unfinished" if text in unfinished else record_format.find_fault(text)
        for text in dict.fromkeys(texts)
    }
    valid = [text for text in texts if not faults[text]]
    unique = {record_format.canonicalize(text) for text in valid}
    novel = None if training_texts is None else len(unique.difference(map(record_format.canonicalize, training_texts)))
    invalid = [(text, fault) for text, fault in faults.items() if fault]
    return ValidityReport(
        record_format.description, len(texts), len(valid), len(unique), novel, dict(invalid[:MAX_FAULTS_SHOWN])
    )


def get_record_format(name: str) -> RecordFormat:
    """The record format with this name; SMILES are checked by RDKit if it is installed."""
    if name not in RECORD_FORMATS:
        raise UsageError(f"task.record_format is {name!r}; {suggest(name, list(RECORD_FORMATS))}")
    return RECORD_FORMATS[name]()


def _any_text() -> RecordFormat:
    return RecordFormat(
        "none", "none: any text that is not empty is valid", "", lambda text: "" if text.strip() else "it is empty"
    )


@cache
def _smiles() -> RecordFormat:
    try:
        from rdkit import Chem, rdBase  # pyright: ignore[reportMissingImports]
    except ImportError:
        description = (
            "SMILES syntax (atoms, branches, rings; valences are not checked, which needs RDKit: saccade[chem])"
        )
        return RecordFormat("smiles", description, "\n", lambda text: check_smiles(text.strip()))
    chem: Any = Chem

    def molecule(text: str) -> Any:
        with rdBase.BlockLogs():
            return chem.MolFromSmiles(text.strip()) if text.strip() else None

    def canonical_smiles(text: str) -> str:
        parsed = molecule(text)
        return text.strip() if parsed is None else chem.MolToSmiles(parsed)

    def find_fault(text: str) -> str:
        if molecule(text) is not None:
            return ""
        return check_smiles(text.strip()) or "RDKit rejects it: valence or aromaticity"

    return RecordFormat("smiles", f"SMILES by RDKit {rdBase.rdkitVersion}", "\n", find_fault, canonical_smiles)


def _abc() -> RecordFormat:
    description = "ABC: a header with number and key, and bars that match the meter"
    return RecordFormat("abc", description, "\n\n", check_abc_tune, _extract_melody)


def _extract_melody(text: str) -> str:
    """A tune without its number, title and source, and without spaces.

    >>> _extract_melody("X:1\\nT:One\\nK:G\\nGA B2|") == _extract_melody("X:2\\nT:Two\\nK:G\\nGAB2|")
    True
    """
    lines = [line for line in text.split("\n") if not line.startswith(tuple("XTSCNZRY")) or line[1:2] != ":"]
    return "".join("\n".join(lines).split())


def _protein() -> RecordFormat:
    description = "proteins: only letters of residues; folding is not checked"
    return RecordFormat("protein", description, "\n", _check_residues, lambda text: text.strip().upper())


def _check_residues(text: str) -> str:
    unknown = sorted(set(text.strip().upper()) - RESIDUES)
    return f"{unknown[0]!r} is not a residue" if unknown else "" if text.strip() else "it is empty"


def _midi() -> RecordFormat:
    return RecordFormat(
        "midi", "notes with a pitch and a length", "\n", _check_notes, lambda text: " ".join(text.split())
    )


def _check_notes(text: str) -> str:
    try:
        parse_notes(text)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


RECORD_FORMATS: dict[str, Callable[[], RecordFormat]] = {
    "none": _any_text,
    "smiles": _smiles,
    "abc": _abc,
    "protein": _protein,
    "midi": _midi,
}
