"""Small molecules in SMILES, a line each, valid by construction.

A molecule is grown from fragments that each hang on one bond: chains, branches, groups such as an acid or an amide, rings of five
and six with or without heteroatoms, and aromatic rings, alone or two of them fused. A fragment has free places, where others hang
in turn, and none that would give an atom more bonds than it has. They look like drugs and are none.
"""

from random import Random

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

START_FRAGMENTS = [
    "",
    "",
    "C",
    "CC",
    "CC(C)",
    "CN(C)C(=O)",
    "CO",
    "CN",
    "O",
    "N",
    "F",
    "Cl",
    "Br",
    "FC(F)(F)",
    "N#C",
    "OC(=O)",
]
# {0} is the number of a ring, {1} that of a second one; R is a place where a fragment may hang, or nothing
END_FRAGMENTS = [
    "C",
    "CC",
    "C(C)C",
    "C(C)(C)C",
    "F",
    "Cl",
    "Br",
    "O",
    "OC",
    "N",
    "NC",
    "N(C)C",
    "C#N",
    "C(F)(F)F",
    "C(=O)O",
    "C(N)=O",
]
END_FRAGMENTS += ["C(C)=O", "S(C)(=O)=O", "[N+](=O)[O-]"]
LINK_FRAGMENTS = [
    "CR",
    "CCR",
    "C(C)R",
    "OR",
    "OCR",
    "NR",
    "N(C)R",
    "C(=O)R",
    "C(=O)NR",
    "NC(=O)R",
    "C(=O)OR",
    "CNR",
    "SR",
    "S(=O)(=O)NR",
]
LINK_FRAGMENTS += ["C=CR", "C#CR", "CC(O)R", "C(R)(R)R", "N(R)R", "CC(R)R"]
RING_FRAGMENTS = [
    "c{0}ccccc{0}R",
    "c{0}ccc(R)cc{0}",
    "c{0}cc(R)cc(R)c{0}",
    "c{0}cccc(R)c{0}R",
    "c{0}ccncc{0}R",
    "c{0}ccc(R)nc{0}",
    "c{0}cnc(R)nc{0}",
    "c{0}csc(R)n{0}",
    "c{0}ccc(R)s{0}",
    "c{0}ccc(R)o{0}",
    "c{0}cc(R)[nH]n{0}",
    "c{0}cnn(C(R))c{0}",
    "c{0}ccc{1}ccccc{1}c{0}R",
    "c{0}ccc{1}[nH]c(R)cc{1}c{0}",
    "c{0}cc{1}ccccc{1}nc{0}R",
    "C{0}CCCCC{0}R",
    "C{0}CC(R)C{0}",
    "C{0}CC{0}R",
    "C{0}CCN(R)CC{0}",
    "N{0}CCN(R)CC{0}",
    "N{0}CCOCC{0}R",
    "N{0}CCCC{0}R",
    "C{0}CCOC{0}R",
    "C{0}C=CCCC{0}R",
]
MAX_FRAGMENT_DEPTH = 4  # fragments that hang on one another


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `text`: one molecule, its newline kept."""
    random = make_random("molecules", seed)

    def draw() -> dict[str, str]:
        body = _fill_fragment(random, random.choice(RING_FRAGMENTS), MAX_FRAGMENT_DEPTH, "")
        start = random.choice(
            START_FRAGMENTS[:6] if body.startswith("N") else START_FRAGMENTS
        )  # no halogen on a nitrogen
        return {"text": f"{start}{body}\n"}

    return draw_distinct("molecules", draw, count, key=lambda row: row["text"])


def _fill_fragment(random: Random, template: str, depth: int, used_ring_numbers: str) -> str:
    """A fragment with its free places filled; its rings get the least numbers that are not `taken` by rings around it."""
    made = template.format(*[number for number in "123456789" if number not in used_ring_numbers][:2])
    while "R" in made:
        there = made.index("R")
        still = "".join(number for number in "123456789" if made[:there].count(number) % 2)
        filled = _draw_substituent(random, depth - 1, used_ring_numbers + still)
        if there + 1 == len(made):
            made = made[:there] + filled
        else:  # in brackets: empty ones are taken away
            made = made[: there - 1] + (f"({filled})" if filled else "") + made[there + 2 :]
    return made


def _draw_substituent(random: Random, depth: int, used_ring_numbers: str) -> str:
    chance = random.random()
    if not depth or chance < 0.4:
        return random.choice(END_FRAGMENTS)
    if chance < 0.55:
        return ""
    return _fill_fragment(
        random, random.choice(LINK_FRAGMENTS if chance < 0.85 else RING_FRAGMENTS), depth, used_ring_numbers
    )


SAMPLE = Sample("molecules", "small molecules as SMILES strings, one per line", ("language",), make, 10_000)
