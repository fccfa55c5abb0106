"""Are generated texts what they should be? Molecules, tunes, proteins and pieces of MIDI: valid, different and new.

A language of such texts has records with an end, which the model learns like any other token. Of N records, validity is the
share that the check of their kind accepts, uniqueness the share of different ones among the valid, and novelty the share of
those that were not learnt from (as MOSES counts: Polykovskiy et al. 2020, arXiv 1811.12823).
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any

from saccade.attention.table import nearest
from saccade.data.read.midi import notes_of
from saccade.errors import UsageError
from saccade.tasks.checks import bars, syntax

SHOWN = 3  # faults that are told
RESIDUES = frozenset("ACDEFGHIKLMNPQRSTVWYBJOUXZ")  # twenty, and six for rare ones and for one of several


@dataclass(frozen=True)
class Kind:
    """One kind of text: how a record ends, what is wrong with one (nothing: an empty string), and when two are the same."""

    name: str
    said: str
    border: str
    fault: Callable[[str], str]
    same: Callable[[str], str] = str.strip


@dataclass(frozen=True)
class Verdict:
    """What a check says of some records."""

    check: str
    count: int
    valid: int
    different: int
    new: int | None  # None: what was learnt from is not known
    faults: dict[str, str] = field(default_factory=dict)  # some of those that are wrong, and why

    @property
    def validity(self) -> float:
        return self.valid / max(1, self.count)

    @property
    def uniqueness(self) -> float:
        return self.different / max(1, self.valid)

    @property
    def novelty(self) -> float | None:
        return None if self.new is None else self.new / max(1, self.different)

    def lines(self) -> list[str]:
        """The same for a person."""
        found = [
            f"check      {self.check}",
            f"valid      {self.valid:,} of {self.count:,} ({self.validity:.1%})",
            f"different  {self.different:,} of {self.valid:,} valid ({self.uniqueness:.1%})",
        ]
        if self.novelty is not None:
            found.append(f"new        {self.new:,} of {self.different:,} different ({self.novelty:.1%})")
        return found + [f"not valid  {text[:60]!r}: {why}" for text, why in self.faults.items()]

    def as_dict(self) -> dict[str, Any]:
        """The same for a program."""
        shares = {"validity": self.validity, "uniqueness": self.uniqueness, "novelty": self.novelty}
        return asdict(self) | shares


def judge(
    texts: Sequence[str], kind: Kind, learnt: Iterable[str] | None = None, *, unended: Collection[str] = ()
) -> Verdict:
    """Check records, compare them with each other and with those that were learnt from; what has no end is not valid.

    >>> verdict = judge(["MKV", "MKV", "MK1", "GGA"], kind_of("protein"), ["GGA"])
    >>> verdict.validity, verdict.uniqueness, verdict.novelty
    (0.75, 0.6666666666666666, 0.5)
    """
    faults = {text: "it has no end" if text in unended else kind.fault(text) for text in dict.fromkeys(texts)}
    valid = [text for text in texts if not faults[text]]
    different = {kind.same(text) for text in valid}
    new = None if learnt is None else len(different.difference(map(kind.same, learnt)))
    wrong = [(text, why) for text, why in faults.items() if why]
    return Verdict(kind.said, len(texts), len(valid), len(different), new, dict(wrong[:SHOWN]))


def kind_of(name: str) -> Kind:
    """The kind of a name; of molecules, by RDKit where it is installed."""
    if name not in KINDS:
        raise UsageError(f"task.check is {name!r}; {nearest(name, list(KINDS))}")
    return KINDS[name]()


def _plain() -> Kind:
    return Kind(
        "none", "none: any text that is not empty passes", "", lambda text: "" if text.strip() else "it is empty"
    )


@cache
def _smiles() -> Kind:
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        said = "SMILES by syntax (rings, branches, atoms; valences are not checked: RDKit would, saccade[chem])"
        return Kind("smiles", said, "\n", lambda text: syntax(text.strip()))
    made: Any = Chem

    def molecule(text: str) -> Any:
        with rdBase.BlockLogs():
            return made.MolFromSmiles(text.strip()) if text.strip() else None

    def same(text: str) -> str:
        found = molecule(text)
        return text.strip() if found is None else made.MolToSmiles(found)

    def fault(text: str) -> str:
        return (
            "" if molecule(text) is not None else syntax(text.strip()) or "RDKit refuses it: a valence or aromaticity"
        )

    return Kind("smiles", f"SMILES by RDKit {rdBase.rdkitVersion}", "\n", fault, same)


def _abc() -> Kind:
    said = "ABC: a number and a key in the head, and bars as long as the metre"
    return Kind("abc", said, "\n\n", bars, _melody)


def _melody(text: str) -> str:
    """A tune without its number, its title and where it comes from, and without spaces.

    >>> _melody("X:1\\nT:One\\nK:G\\nGA B2|") == _melody("X:2\\nT:Two\\nK:G\\nGAB2|")
    True
    """
    kept = [line for line in text.split("\n") if not line.startswith(tuple("XTSCNZRY")) or line[1:2] != ":"]
    return "".join("\n".join(kept).split())


def _protein() -> Kind:
    said = "proteins: letters of residues, no more; not that it folds"
    return Kind("protein", said, "\n", _residues, lambda text: text.strip().upper())


def _residues(text: str) -> str:
    wrong = sorted(set(text.strip().upper()) - RESIDUES)
    return f"{wrong[0]!r} is no residue" if wrong else "" if text.strip() else "it is empty"


def _midi() -> Kind:
    return Kind("midi", "notes with a pitch and a length", "\n", _notes, lambda text: " ".join(text.split()))


def _notes(text: str) -> str:
    try:
        notes_of(text)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


KINDS: dict[str, Callable[[], Kind]] = {
    "none": _plain,
    "smiles": _smiles,
    "abc": _abc,
    "protein": _protein,
    "midi": _midi,
}
