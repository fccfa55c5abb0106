"""Tunes in ABC by a few rules, with bars that add up.

A tune has two parts of four bars, each repeated. Each bar has a chord of the key, and the last one the first chord; the first
note of a bar is of its chord, the others go on by a step or two or leap to another note of the chord; the third bar takes up the
rhythm of the first. The melody stays within an octave and a half and ends on the key's own note. Metres are 4/4, 3/4 and 6/8,
keys those of fiddlers.
"""

from random import Random

from saccade.data.example import Example
from saccade.data.samples.base import Sample, draw_distinct, make_random

NOTE_LETTERS = "CDEFGAB"
KEYS = {"G": 4, "D": 1, "A": 5, "C": 0, "F": 3, "Em": 2, "Am": 5, "Dm": 1}  # the step of the key's own note above C
RHYTHMS = {  # eighths that fill a bar
    "4/4": [(2, 2, 2, 2), (2, 1, 1, 2, 2), (3, 1, 2, 2), (4, 2, 2), (1, 1, 2, 1, 1, 2), (2, 2, 4), (3, 1, 3, 1)],
    "3/4": [(2, 2, 2), (2, 1, 1, 2), (4, 2), (3, 1, 2), (2, 4), (1, 1, 1, 1, 2)],
    "6/8": [(3, 3), (2, 1, 2, 1), (1, 1, 1, 1, 1, 1), (2, 1, 3), (1, 1, 1, 2, 1), (3, 2, 1)],
}
LAST_BAR_RHYTHMS = {"4/4": [(6, 2), (4, 4), (8,)], "3/4": [(6,), (4, 2)], "6/8": [(6,), (3, 3)]}
CHORD_PROGRESSIONS = [
    (0, 3, 4, 0),
    (0, 4, 3, 0),
    (0, 5, 4, 0),
    (0, 0, 4, 0),
    (3, 0, 4, 0),
    (0, 3, 0, 0),
]  # steps above the key's note
MIN_STEP, MAX_STEP = -2, 9  # steps above C
MELODY_STEPS = (-2, -1, -1, -1, 1, 1, 1, 2)


def make(count: int, seed: int) -> list[Example]:
    """Examples with a `text`: one tune, with the empty line that ends it."""
    random = make_random("tunes", seed)
    return draw_distinct("tunes", lambda: {"text": _draw_tune(random)}, count, key=lambda row: row["text"])


def _draw_tune(random: Random) -> str:
    key, metre = random.choice(list(KEYS)), random.choice(list(RHYTHMS))
    parts = [_draw_part(random, KEYS[key], metre) for _ in range(2)]
    return f"X:1\nM:{metre}\nL:1/8\nK:{key}\n" + "".join(f"|:{part}:|\n" for part in parts) + "\n"


def _draw_part(random: Random, key_step: int, metre: str) -> str:
    rhythms = [random.choice(RHYTHMS[metre]) for _ in range(2)]
    rhythms += [rhythms[0], random.choice(LAST_BAR_RHYTHMS[metre])]
    now, bars = key_step + random.choice((0, 2, 4)), list[str]()
    for chord, rhythm in zip(random.choice(CHORD_PROGRESSIONS), rhythms, strict=True):
        bar = ""
        for place, length in enumerate(rhythm):
            now = _draw_next_step(random, now, key_step + chord, strong=place == 0)
            if chord == 0 and len(bars) == 3 and place == len(rhythm) - 1:
                now = min(
                    (step for step in range(MIN_STEP, MAX_STEP + 1) if (step - key_step) % 7 == 0),
                    key=lambda s: abs(s - now),
                )
            bar += to_abc_note(now) + (str(length) if length > 1 else "")
        bars.append(bar)
    return "|".join(bars)


def _draw_next_step(random: Random, now: int, root: int, *, strong: bool) -> int:
    """The nearest note of the chord or the one after it where the beat is strong; otherwise mostly a step."""
    chord = [step for step in range(MIN_STEP, MAX_STEP + 1) if (step - root) % 7 in (0, 2, 4)]
    if strong or random.random() < 0.2:
        return random.choice(sorted(chord, key=lambda step: (abs(step - now), step))[:2])
    return min(max(now + random.choice(MELODY_STEPS), MIN_STEP), MAX_STEP)


def to_abc_note(step: int) -> str:
    """A step above C as ABC writes it.

    >>> [to_abc_note(step) for step in (-1, 0, 7, 15)]
    ['B,', 'C', 'c', "d'"]
    """
    letter, octave = NOTE_LETTERS[step % 7], step // 7
    return letter + "," * -octave if octave < 1 else letter.lower() + "'" * (octave - 1)


SAMPLE = Sample("tunes", "tunes in ABC notation, two parts of four bars", ("language",), make, 4_000)
