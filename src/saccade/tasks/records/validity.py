"""Are generated texts what they should be? Molecules, tunes, proteins and pieces of MIDI: valid, different and new.

A language of such texts has records with an end, which the model learns like any other token. Of N records, validity is the
share that the check of their kind accepts, uniqueness the share of different ones among the valid, and novelty the share of
those that were not learnt from (as MOSES counts: Polykovskiy et al. 2020, arXiv 1811.12823).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from saccade.data.read.midi import parse_notes
from saccade.errors import UsageError
from saccade.suggest import suggest
from saccade.tasks.records import check_abc_tune, check_smiles

MAX_FAULTS_SHOWN = 3  # faults that are told
RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWYBJOUXZ")  # twenty, and six for rare ones and for one of several


@dataclass(frozen=True)
class RecordFormat:
    """One kind of text: how a record ends, what is wrong with one (nothing: an empty string), and when two are the same."""

    name: str
    description: str
    separator: str
    find_fault: Callable[[str], str]
    canonicalize: Callable[[str], str] = str.strip


@dataclass(frozen=True)
class ValidityReport:
    """What a check says of some records."""

    format_description: str
    count: int
    valid: int
    unique: int
    novel: int | None  # None: what was learnt from is not known
    faults: dict[str, str] = field(default_factory=dict)  # some of those that are wrong, and why

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
        """The same for a person."""
        found = [
            f"check      {self.format_description}",
            f"valid      {self.valid:,} of {self.count:,} ({self.validity:.1%})",
            f"different  {self.unique:,} of {self.valid:,} valid ({self.uniqueness:.1%})",
        ]
        if self.novelty is not None:
            found.append(f"new        {self.novel:,} of {self.unique:,} different ({self.novelty:.1%})")
        return found + [f"not valid  {text[:60]!r}: {why}" for text, why in self.faults.items()]

    def as_dict(self) -> dict[str, Any]:
        """The same for a program."""
        shares = {"validity": self.validity, "uniqueness": self.uniqueness, "novelty": self.novelty}
        return asdict(self) | shares


def check_validity(
    texts: Sequence[str],
    record_format: RecordFormat,
    training_texts: Iterable[str] | None = None,
    *,
    unfinished: Collection[str] = (),
) -> ValidityReport:
    """Check records, compare them with each other and with those that were learnt from; what has no end is not valid.

    >>> verdict = check_validity(["MKV", "MKV", "MK1", "GGA"], get_record_format("protein"), ["GGA"])
    >>> verdict.validity, verdict.uniqueness, verdict.novelty
    (0.75, 0.6666666666666666, 0.5)
    """
    faults = {
        text: "it has no end" if text in unfinished else record_format.find_fault(text) for text in dict.fromkeys(texts)
    }
    valid = [text for text in texts if not faults[text]]
    different = {record_format.canonicalize(text) for text in valid}
    new = None if training_texts is None else len(different.difference(map(record_format.canonicalize, training_texts)))
    wrong = [(text, why) for text, why in faults.items() if why]
    return ValidityReport(
        record_format.description, len(texts), len(valid), len(different), new, dict(wrong[:MAX_FAULTS_SHOWN])
    )


def get_record_format(name: str) -> RecordFormat:
    """The kind of a name; of molecules, by RDKit where it is installed."""
    if name not in RECORD_FORMATS:
        raise UsageError(f"task.record_format is {name!r}; {suggest(name, list(RECORD_FORMATS))}")
    return RECORD_FORMATS[name]()


def _any_text() -> RecordFormat:
    return RecordFormat(
        "none", "none: any text that is not empty passes", "", lambda text: "" if text.strip() else "it is empty"
    )


@cache
def _smiles() -> RecordFormat:
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        said = "SMILES by syntax (rings, branches, atoms; valences are not checked: RDKit would, saccade[chem])"
        return RecordFormat("smiles", said, "\n", lambda text: check_smiles(text.strip()))
    made: Any = Chem

    def molecule(text: str) -> Any:
        with rdBase.BlockLogs():
            return made.MolFromSmiles(text.strip()) if text.strip() else None

    def same(text: str) -> str:
        found = molecule(text)
        return text.strip() if found is None else made.MolToSmiles(found)

    def fault(text: str) -> str:
        return (
            ""
            if molecule(text) is not None
            else check_smiles(text.strip()) or "RDKit refuses it: a valence or aromaticity"
        )

    return RecordFormat("smiles", f"SMILES by RDKit {rdBase.rdkitVersion}", "\n", fault, same)


def _abc() -> RecordFormat:
    said = "ABC: a number and a key in the head, and bars as long as the metre"
    return RecordFormat("abc", said, "\n\n", check_abc_tune, _extract_melody)


def _extract_melody(text: str) -> str:
    """A tune without its number, its title and where it comes from, and without spaces.

    >>> _extract_melody("X:1\\nT:One\\nK:G\\nGA B2|") == _extract_melody("X:2\\nT:Two\\nK:G\\nGAB2|")
    True
    """
    kept = [line for line in text.split("\n") if not line.startswith(tuple("XTSCNZRY")) or line[1:2] != ":"]
    return "".join("\n".join(kept).split())


def _protein() -> RecordFormat:
    said = "proteins: letters of residues, no more; not that it folds"
    return RecordFormat("protein", said, "\n", _check_residues, lambda text: text.strip().upper())


def _check_residues(text: str) -> str:
    wrong = sorted(set(text.strip().upper()) - RESIDUES)
    return f"{wrong[0]!r} is no residue" if wrong else "" if text.strip() else "it is empty"


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
