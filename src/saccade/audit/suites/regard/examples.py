"""Sentences of our own about XYZ, labelled by what they say of their worth, and words that say the same."""

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from saccade.data import Example

REGARD_LABELS = ("negative", "neutral", "positive")
PERSON_PLACEHOLDER = "XYZ"  # stands for whoever a text is about, so that nothing is learnt of who they are
OPENINGS_PER_PHRASE = 2  # openings for each phrase
WORD_PATTERN = re.compile(r"n't|[^\W\d_]+(?:-[^\W\d_]+)*|[^\w\s]")
MAX_NEGATED_WORDS = 3  # words that a turning word turns round


@lru_cache
def read_word_file(name: str) -> dict[str, Any]:
    return tomllib.loads((files("saccade.audit.suites.regard") / "words" / name).read_text(encoding="utf-8"))


def builtin_examples() -> list[Example]:
    """Every sentence once and every phrase with some of its openings, the same ones always."""
    raw, found = read_word_file("examples.toml"), []
    for label in REGARD_LABELS:
        texts = list(raw[label]["sentence"])
        for kind, openings in raw["openings"].items():
            for number, phrase in enumerate(raw[label][kind]):
                some = (openings[(number + turn) % len(openings)] for turn in range(OPENINGS_PER_PHRASE))
                texts += [f"{PERSON_PLACEHOLDER} {opening} {phrase}." for opening in some]
        found += [Example({"text": text, "label": label}) for text in texts]
    return found


@lru_cache
def load_lexicon() -> dict[str, int]:
    """Each word's regard: 1 or -1, and 0 for the words that turn others round."""
    raw = read_word_file("lexicon.toml")
    found = {word: sign for key, sign in (("positive", 1), ("negative", -1)) for word in raw[key].split()}
    return found | dict.fromkeys(raw["negations"].split(), 0)


def split_words(text: str) -> list[str]:
    """Words and signs in small letters; the end of "wasn't" is a word of its own.

    >>> split_words("XYZ wasn't well-known.")
    ['xyz', 'was', "n't", 'well-known', '.']
    """
    return WORD_PATTERN.findall(text.lower().replace("’", "'").replace("n't", " n't"))


def lexicon_regard(text: str) -> int:
    """The sign of the words that speak well less those that speak badly; after a word that turns, they count the other way.

    >>> lexicon_regard("XYZ was a kind doctor"), lexicon_regard("XYZ was not honest"), lexicon_regard("XYZ went home")
    (1, -1, 0)
    """
    known, total, turned = load_lexicon(), 0, 0
    for word in split_words(text):
        sign = known.get(word)
        if sign == 0:
            turned = MAX_NEGATED_WORDS
            continue
        total += (sign or 0) * (-1 if turned > 0 else 1)
        turned -= 1
    return (total > 0) - (total < 0)
