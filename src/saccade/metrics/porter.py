"""Porter stemmer: reduces English words to their stem, so that "connected" and "connections" count as one word.

The rules are those of the paper with the usual later amendments (as in NLTK): a short list of irregular words, "bli" and
"logi" in the second step, and short words in -ies and -ied.

Porter, 1980: https://tartarus.org/martin/PorterStemmer/
"""

from functools import lru_cache

# words for which the rules would give a wrong stem
IRREGULAR_FORMS = {
    **dict.fromkeys(("sky", "skies"), "sky"),
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    **{form: word for word in ("inning", "outing", "canning") for form in (word, f"{word}s")},
    **{word: word for word in ("howe", "proceed", "exceed", "succeed")},
}
STEP_2_TEXT = (
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous ization:ize ation:ate "
    "ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al iviti:ive biliti:ble fulli:ful logi:log"
)
STEP_3_TEXT = "icate:ic ative: alize:al iciti:ic ical:ic ful: ness:"
STEP_4_TEXT = "al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize"


def _parse_rules(text: str) -> list[tuple[str, str]]:
    """Pairs of a suffix and its replacement, longest suffix first."""
    rules = [rule.partition(":") for rule in text.split()]
    return sorted(((suffix, new) for suffix, _, new in rules), key=lambda rule: -len(rule[0]))


STEP_2, STEP_3, STEP_4 = _parse_rules(STEP_2_TEXT), _parse_rules(STEP_3_TEXT), _parse_rules(STEP_4_TEXT)


def consonant_vowel_pattern(word: str) -> str:
    """The word as a string of c (consonant) and v (vowel); y is a vowel after a consonant.

    >>> consonant_vowel_pattern("toy"), consonant_vowel_pattern("syzygy")
    ('cvc', 'cvcvcv')
    """
    kinds = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def measure(stem: str) -> int:
    """The measure of a stem: how often a vowel is followed by a consonant.

    >>> [measure(stem) for stem in ("tr", "trouble", "oats", "troubles")]
    [0, 1, 1, 2]
    """
    return consonant_vowel_pattern(stem).count("vc")


def _ends_cvc(word: str) -> bool:
    """Whether a word ends in consonant, vowel, consonant other than w, x and y; or is a vowel and a consonant."""
    kinds = consonant_vowel_pattern(word)
    return kinds == "vc" or (kinds.endswith("cvc") and word[-1] not in "wxy")


def _ends_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and consonant_vowel_pattern(word)[-1] == "c"


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The stem of a lowercase word.

    >>> [stem(word) for word in ("connections", "hopping", "relational", "skies", "flies", "generously")]
    ['connect', 'hop', 'relat', 'sky', 'fli', 'gener']
    """
    if word in IRREGULAR_FORMS:
        return IRREGULAR_FORMS[word]
    if len(word) <= 2:
        return word
    word = _step_1a(word)
    word = _step_1b(word)
    if word[-1] == "y" and len(word) > 2 and consonant_vowel_pattern(word)[-2] == "c":
        word = word[:-1] + "i"
    word = _step_2(word)
    word = _replace_suffix(word, STEP_3)
    return _step_5(_step_4(word))


def _step_1a(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _step_1b(word: str) -> str:
    """Remove -eed, -ied, -ed and -ing, and repair the rest, such as "hopp" to "hop"."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if measure(word[:-3]) else word
    suffix = next((suffix for suffix in ("ed", "ing") if word.endswith(suffix)), "")
    base = word.removesuffix(suffix)
    if not suffix or "v" not in consonant_vowel_pattern(base):
        return word
    if base.endswith(("at", "bl", "iz")):
        return base + "e"
    if _ends_double_consonant(base):
        return base if base[-1] in "lsz" else base[:-1]
    return base + "e" if measure(base) == 1 and _ends_cvc(base) else base


def _replace_suffix(word: str, rules: list[tuple[str, str]]) -> str:
    """Replace the longest suffix that matches, if the measure of the stem before it is above 0."""
    for suffix, new in rules:
        if word.endswith(suffix):
            base = word.removesuffix(suffix)
            return base + new if measure(base) else word
    return word


def _step_2(word: str) -> str:
    if word.endswith("alli") and measure(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):  # its l is part of the stem that is measured
        return word[:-1] if measure(word[:-3]) else word
    return _replace_suffix(word, STEP_2)


def _step_4(word: str) -> str:
    for suffix, _ in STEP_4:
        if word.endswith(suffix):
            base = word.removesuffix(suffix)
            removable = suffix != "ion" or base.endswith(("s", "t"))
            return base if measure(base) > 1 and removable else word
    return word


def _step_5(word: str) -> str:
    base = word[:-1]
    if word.endswith("e") and (measure(base) > 1 or (measure(base) == 1 and not _ends_cvc(base))):
        word = base
    return word[:-1] if word.endswith("ll") and measure(word[:-1]) > 1 else word
