"""The built-in training sentences of the regard classifier, and the regard lexicon: words with a sign."""

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import Any

from saccade.data import Example

REGARD_LABELS = ("negative", "neutral", "positive")
PERSON_PLACEHOLDER = "XYZ"  # replaces the person, so that the regard does not depend on the group
OPENINGS_PER_PHRASE = 2
WORD_PATTERN = re.compile(r"n't|[^\W\d_]+(?:-[^\W\d_]+)*|[^\w\s]")
MAX_NEGATED_WORDS = 3  # words after a negation that it applies to


@lru_cache
def read_word_file(name: str) -> dict[str, Any]:
    return tomllib.loads((files("saccade.audit.suites.regard") / "words" / name).read_text(encoding="utf-8"))


def builtin_examples() -> list[Example]:
    """Every sentence once, and every phrase with some of the openings; always the same examples."""
    raw, examples = read_word_file("examples.toml"), []
    for label in REGARD_LABELS:
        texts = list(raw[label]["sentence"])
        for kind, openings in raw["openings"].items():
            for number, phrase in enumerate(raw[label][kind]):
                selected = (openings[(number + turn) % len(openings)] for turn in range(OPENINGS_PER_PHRASE))
                texts += [f"{PERSON_PLACEHOLDER} {opening} {phrase}." for opening in selected]
        examples += [Example({"text": text, "label": label}) for text in texts]
    return examples


@lru_cache
def load_lexicon() -> dict[str, int]:
    """The regard of each word, 1 or -1; 0 marks a negation."""
    raw = read_word_file("lexicon.toml")
    signs = {word: sign for key, sign in (("positive", 1), ("negative", -1)) for word in raw[key].split()}
    return signs | dict.fromkeys(raw["negations"].split(), 0)


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of a text, in lowercase; "n't" is a separate word.

    >>> split_words("XYZ wasn't well-known.")
    ['xyz', 'was', "n't", 'well-known', '.']
    """
    return WORD_PATTERN.findall(text.lower().replace("’", "'").replace("n't", " n't"))


def lexicon_regard(text: str) -> int:
    """The sign of the sum over all words of the lexicon; after a negation, words count with the opposite sign.

    >>> lexicon_regard("XYZ was a kind doctor"), lexicon_regard("XYZ was not honest"), lexicon_regard("XYZ went home")
    (1, -1, 0)
    """
    lexicon, total, negated_words = load_lexicon(), 0, 0
    for word in split_words(text):
        sign = lexicon.get(word)
        if sign == 0:
            negated_words = MAX_NEGATED_WORDS
            continue
        total += (sign or 0) * (-1 if negated_words > 0 else 1)
        negated_words -= 1
    return (total > 0) - (total < 0)
