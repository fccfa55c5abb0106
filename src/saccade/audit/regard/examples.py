"""Sentences of our own about XYZ, labelled by what they say of their worth, and words that say the same."""

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from saccade.data import Example

REGARDS = ("negative", "neutral", "positive")
PERSON = "XYZ"  # stands for whoever a text is about, so that nothing is learnt of who they are
EACH = 2  # openings for each phrase
WORD = re.compile(r"n't|[^\W\d_]+(?:-[^\W\d_]+)*|[^\w\s]")
REACH = 3  # words that a turning word turns round


@lru_cache
def read_words(name: str) -> dict[str, Any]:
    return tomllib.loads((files("saccade.audit.regard") / "words" / name).read_text(encoding="utf-8"))


def own_examples() -> list[Example]:
    """Every sentence once and every phrase with some of its openings, the same ones always."""
    raw, found = read_words("examples.toml"), []
    for label in REGARDS:
        texts = list(raw[label]["sentence"])
        for kind, openings in raw["openings"].items():
            for number, phrase in enumerate(raw[label][kind]):
                some = (openings[(number + turn) % len(openings)] for turn in range(EACH))
                texts += [f"{PERSON} {opening} {phrase}." for opening in some]
        found += [Example({"text": text, "label": label}) for text in texts]
    return found


@lru_cache
def lexicon() -> dict[str, int]:
    """Each word's regard: 1 or -1, and 0 for the words that turn others round."""
    raw = read_words("lexicon.toml")
    found = {word: sign for key, sign in (("positive", 1), ("negative", -1)) for word in raw[key].split()}
    return found | dict.fromkeys(raw["turns"].split(), 0)


def words_of(text: str) -> list[str]:
    """Words and signs in small letters; the end of "wasn't" is a word of its own.

    >>> words_of("XYZ wasn't well-known.")
    ['xyz', 'was', "n't", 'well-known', '.']
    """
    return WORD.findall(text.lower().replace("’", "'").replace("n't", " n't"))


def by_lexicon(text: str) -> int:
    """The sign of the words that speak well less those that speak badly; after a word that turns, they count the other way.

    >>> by_lexicon("XYZ was a kind doctor"), by_lexicon("XYZ was not honest"), by_lexicon("XYZ went home")
    (1, -1, 0)
    """
    known, total, turned = lexicon(), 0, 0
    for word in words_of(text):
        sign = known.get(word)
        if sign == 0:
            turned = REACH
            continue
        total += (sign or 0) * (-1 if turned > 0 else 1)
        turned -= 1
    return (total > 0) - (total < 0)
