"""Statistics of peptides: length, charge, hydrophobic residues, composition, and similarity to reference peptides."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
CHARGES = {"K": 1, "R": 1, "D": -1, "E": -1}  # near pH 7, where histidine is almost neutral
HISTOGRAM_BIN = 5  # bin width of the histogram of lengths, in residues
HYDROPHOBIC = frozenset("AILMFVWC")  # hydrophobic residues


@dataclass(frozen=True)
class PeptideStats:
    """Statistics of a set of peptides, averaged over peptides or over residues."""

    count: int
    mean_length: float
    length_q05: float  # 5 % quantile of the lengths
    length_q95: float  # 95 % quantile of the lengths
    mean_charge: float  # per peptide
    hydrophobic_fraction: float  # of all residues
    composition: dict[str, float]  # fraction of each residue


def compute_stats(peptides: Sequence[str]) -> PeptideStats:
    """
    >>> found = compute_stats(["KKLL", "DA"])
    >>> found.mean_length, found.mean_charge, found.hydrophobic_fraction, found.composition["K"]
    (3.0, 0.5, 0.5, 0.3333333333333333)
    """
    if not any(peptides):
        raise ValueError(f"The {len(peptides)} peptides have no residues; at least one is needed.")
    lengths = np.array([len(peptide) for peptide in peptides])
    low, high = np.quantile(lengths, [0.05, 0.95])
    counts = Counter("".join(peptides))
    total = sum(counts.values())
    return PeptideStats(
        len(peptides),
        float(lengths.mean()),
        float(low),
        float(high),
        sum(CHARGES.get(letter, 0) * count for letter, count in counts.items()) / len(peptides),
        sum(counts[letter] for letter in sorted(HYDROPHOBIC)) / total,
        {letter: counts[letter] / total for letter in RESIDUES},
    )


def length_histogram(peptides: Sequence[str]) -> list[float]:
    """The fraction of peptides with 0 to 4 residues, 5 to 9, and so on.

    >>> length_histogram(["KKLL", "GIGKF", "GIGKFLH", "AC"])
    [0.5, 0.5]
    """
    counts = np.bincount([len(peptide) // HISTOGRAM_BIN for peptide in peptides])
    return (counts / counts.sum()).tolist()


def composition_distance(one: PeptideStats, other: PeptideStats) -> float:
    """The total variation distance of two residue compositions.

    >>> composition_distance(compute_stats(["AAAA"]), compute_stats(["AAAC"]))
    0.25
    """
    return sum(abs(one.composition[letter] - other.composition[letter]) for letter in RESIDUES) / 2


def shuffle_residues(peptides: Sequence[str], seed: int) -> list[str]:
    """Each peptide with its residues shuffled, which keeps length, charge and composition but not the sequence.

    >>> [sorted(peptide) for peptide in shuffle_residues(["GIGK", "A"], 0)]
    [['G', 'G', 'I', 'K'], ['A']]
    """
    rng = random.Random(seed)
    return ["".join(rng.sample(peptide, len(peptide))) for peptide in peptides]


def nearest_similarity(peptides: Sequence[str], references: Sequence[str]) -> list[float]:
    """The similarity of each peptide to its nearest reference: 1 means equal, 0 that no residue matches.

    It is 1 minus the edit distance divided by the length of the longer peptide.

    >>> nearest_similarity(["GIGKF", "KKKK"], ["GIGK", "LLLL"])
    [0.8, 0.25]
    """
    if not references:
        raise ValueError("There are no reference peptides; give at least one.")
    lengths = np.array([len(reference) for reference in references])
    table = np.full((lengths.max(), len(references)), -1, np.int16)  # (L, N) character codes, padded with -1
    for column, reference in zip(table.T, references, strict=True):
        column[: len(reference)] = [ord(letter) for letter in reference]
    longer = lambda peptide: np.maximum(np.maximum(lengths, len(peptide)), 1)
    return [float((1 - _edit_distances(peptide, table, lengths) / longer(peptide)).max()) for peptide in peptides]


def _edit_distances(peptide: str, table: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The Levenshtein distances of one peptide to many references at once, (N,)."""
    previous = np.repeat(np.arange(len(table) + 1, dtype=np.int16)[:, None], len(lengths), axis=1)  # (L + 1, N)
    for position, letter in enumerate(peptide, 1):
        current = np.full_like(previous, position)
        np.minimum(
            previous[:-1] + (table != ord(letter)), previous[1:] + 1, out=current[1:]
        )  # substitution, or deletion
        for above, row in pairwise(current):
            np.minimum(row, above + 1, out=row)  # or insertion
        previous = current
    return previous[lengths, np.arange(len(lengths))]
