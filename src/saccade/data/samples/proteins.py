"""Sequences of residues that look like proteins and are none.

How often each residue occurs is that of UniProtKB/Swiss-Prot, in per cent. A sequence begins with M and is a row of helices,
strands and turns, each of which prefers some residues: the frequencies times the preferences of Chou and Fasman
(1978, https://doi.org/10.1146/annurev.bi.47.070178.001343). How long a stretch lasts is left to chance: at each residue it ends
with the share that `ENDS` gives.
"""

from functools import cache
from random import Random

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

RESIDUE_TABLE = """
A  8.25  1.42  0.83  0.66
R  5.53  0.98  0.93  0.95
N  4.06  0.67  0.89  1.56
D  5.46  1.01  0.54  1.46
C  1.38  0.70  1.19  1.19
Q  3.93  1.11  1.10  0.98
E  6.72  1.51  0.37  0.74
G  7.07  0.57  0.75  1.56
H  2.27  1.00  0.87  0.95
I  5.91  1.08  1.60  0.47
L  9.65  1.21  1.30  0.59
K  5.80  1.16  0.74  1.01
M  2.41  1.45  1.05  0.60
F  3.86  1.13  1.38  0.60
P  4.74  0.57  0.55  1.52
S  6.65  0.77  0.75  1.43
T  5.36  0.83  1.19  0.96
W  1.10  1.08  1.37  0.96
Y  2.92  0.69  1.47  1.14
V  6.86  1.06  1.70  0.50
"""  # residue, how often in per cent, and how it is liked in a helix, a strand and a turn
_columns = list(zip(*(line.split() for line in RESIDUE_TABLE.strip().splitlines()), strict=True))
RESIDUES = "".join(_columns[0])
FREQUENCIES, *_preference_columns = (tuple(map(float, column)) for column in _columns[1:])
PREFERENCES: dict[str, tuple[float, ...]] = dict(zip(("helix", "strand", "turn"), _preference_columns, strict=True))
PREFERENCE_EXPONENT = 2.0  # the power to which preferences are raised, so that stretches can be told apart
END_PROBABILITIES = {"helix": 1 / 11, "strand": 1 / 6, "turn": 1 / 4}
MIN_RESIDUES, MAX_RESIDUES = 40, 160


@cache
def compute_residue_probabilities(state: str) -> tuple[float, ...]:
    """How likely each residue is in a helix, a strand or a turn; they sum to one."""
    made = [often * liked**PREFERENCE_EXPONENT for often, liked in zip(FREQUENCIES, PREFERENCES[state], strict=True)]
    return tuple(weight / sum(made) for weight in made)


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `text`: one sequence, its newline kept."""
    random = make_random("proteins", seed)
    return draw_distinct(
        "proteins", lambda: {"text": _draw_sequence(random) + "\n"}, count, key=lambda row: row["text"]
    )


def _draw_sequence(random: Random) -> str:
    length, state, made = random.randint(MIN_RESIDUES, MAX_RESIDUES), random.choice(list(END_PROBABILITIES)), "M"
    while len(made) < length:
        made += random.choices(RESIDUES, compute_residue_probabilities(state))[0]
        if random.random() < END_PROBABILITIES[state]:
            # between two stretches with an order stands a turn, and after a turn one of the two
            state = random.choice(["helix", "strand"]) if state == "turn" else "turn"
    return made


SAMPLE = Sample("proteins", "protein sequences as strings of residues", ("language",), make, 4_000)
