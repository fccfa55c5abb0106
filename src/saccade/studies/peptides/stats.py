"""What can be counted in peptides: length, charge, greasy residues, composition, and how near they are to ones that are known."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHARGES = {"K": 1, "R": 1, "D": -1, "E": -1}  # near pH 7, where histidine has hardly any
HISTOGRAM_BIN = 5  # residues between the bars of a histogram of lengths
HYDROPHOBIC = frozenset("AILMFVWC")  # what water avoids


@dataclass(frozen=True)
class PeptideStats:
    """What some peptides are like, each number a mean over peptides or over residues."""

    count: int
    mean_length: float
    length_q05: float  # the length below which a twentieth of them lies
    length_q95: float  # and above which
    mean_charge: float  # of a peptide
    hydrophobic_fraction: float  # the share of residues that water avoids
    composition: dict[str, float]  # the share of each residue


def compute_stats(peptides: Sequence[str]) -> PeptideStats:
    """
    >>> found = compute_stats(["KKLL", "DA"])
    >>> found.mean_length, found.mean_charge, found.hydrophobic_fraction, found.composition["K"]
    (3.0, 0.5, 0.5, 0.3333333333333333)
    """
    if not any(peptides):
        raise ValueError(f"There is nothing to count in {len(peptides)} peptides; at least one residue is needed.")
    lengths = np.array([len(peptide) for peptide in peptides])
    low, high = np.quantile(lengths, [0.05, 0.95])
    counts = Counter("".join(peptides))
    every = sum(counts.values())
    return PeptideStats(
        len(peptides),
        float(lengths.mean()),
        float(low),
        float(high),
        sum(CHARGES.get(letter, 0) * count for letter, count in counts.items()) / len(peptides),
        sum(counts[letter] for letter in sorted(HYDROPHOBIC)) / every,
        {letter: counts[letter] / every for letter in RESIDUES},
    )


def length_histogram(peptides: Sequence[str]) -> list[float]:
    """The share of peptides that are 0 to 4 residues long, 5 to 9, and so on.

    >>> length_histogram(["KKLL", "GIGKF", "GIGKFLH", "AC"])
    [0.5, 0.5]
    """
    counts = np.bincount([len(peptide) // HISTOGRAM_BIN for peptide in peptides])
    return (counts / counts.sum()).tolist()


def composition_distance(one: PeptideStats, other: PeptideStats) -> float:
    """The share of residues that would have to be others for two compositions to be the same (total variation).

    >>> composition_distance(compute_stats(["AAAA"]), compute_stats(["AAAC"]))
    0.25
    """
    return sum(abs(one.composition[letter] - other.composition[letter]) for letter in RESIDUES) / 2


def shuffle_residues(peptides: Sequence[str], seed: int) -> list[str]:
    """The same residues of each peptide in another order: length, charge and composition stay, the sequence is gone.

    >>> [sorted(peptide) for peptide in shuffle_residues(["GIGK", "A"], 0)]
    [['G', 'G', 'I', 'K'], ['A']]
    """
    draw = random.Random(seed)
    return ["".join(draw.sample(peptide, len(peptide))) for peptide in peptides]


def nearest_similarity(peptides: Sequence[str], references: Sequence[str]) -> list[float]:
    """How like each peptide is to the most like of those that are known: 1 is the same, 0 has no residue in its place.

    The least number of residues to put in, take out or exchange, over the length of the longer of the two.

    >>> nearest_similarity(["GIGKF", "KKKK"], ["GIGK", "LLLL"])
    [0.8, 0.25]
    """
    if not references:
        raise ValueError("No peptides are known to compare with; give at least one.")
    lengths = np.array([len(one) for one in references])
    table = np.full((lengths.max(), len(references)), -1, np.int16)  # (L, N) letters, padded with what no letter is
    for column, one in zip(table.T, references, strict=True):
        column[: len(one)] = [ord(letter) for letter in one]
    longer = lambda peptide: np.maximum(np.maximum(lengths, len(peptide)), 1)
    return [float((1 - _edit_distances(peptide, table, lengths) / longer(peptide)).max()) for peptide in peptides]


def _edit_distances(peptide: str, table: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Levenshtein's distance of one peptide to many at once, (N,)."""
    before = np.repeat(np.arange(len(table) + 1, dtype=np.int16)[:, None], len(lengths), axis=1)  # (L + 1, N)
    for place, letter in enumerate(peptide, 1):
        now = np.full_like(before, place)
        np.minimum(before[:-1] + (table != ord(letter)), before[1:] + 1, out=now[1:])  # exchanged, or taken out
        for above, row in pairwise(now):
            np.minimum(row, above + 1, out=row)  # or put in
        before = now
    return before[lengths, np.arange(len(lengths))]
