"""Porter's stemmer: English words cut back to a stem, so that "connected" and "connections" count as one word.

The rules are those of the paper with the later amendments that are in general use (NLTK has the same): a short list of words
that the rules would spoil, "bli" and "logi" in the second step, and short words in -ies and -ied.

Porter, 1980: https://tartarus.org/martin/PorterStemmer/
"""

from functools import lru_cache

# what the rules would make of these words is no stem
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
    """Endings and what takes their place, the longer before those that they end in."""
    found = [rule.partition(":") for rule in text.split()]
    return sorted(((end, new) for end, _, new in found), key=lambda rule: -len(rule[0]))


STEP_2, STEP_3, STEP_4 = _parse_rules(STEP_2_TEXT), _parse_rules(STEP_3_TEXT), _parse_rules(STEP_4_TEXT)


def consonant_vowel_pattern(word: str) -> str:
    """The word as a row of c and v; a y is a vowel after a consonant.

    >>> consonant_vowel_pattern("toy"), consonant_vowel_pattern("syzygy")
    ('cvc', 'cvcvcv')
    """
    kinds = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and kinds.endswith("c"))
        kinds += "v" if vowel else "c"
    return kinds


def measure(stem: str) -> int:
    """How often a vowel is followed by a consonant.

    >>> [measure(stem) for stem in ("tr", "trouble", "oats", "troubles")]
    [0, 1, 1, 2]
    """
    return consonant_vowel_pattern(stem).count("vc")


def _ends_cvc(word: str) -> bool:
    """Ends in consonant, vowel, consonant other than w, x and y; or is a vowel and a consonant."""
    kinds = consonant_vowel_pattern(word)
    return kinds == "vc" or (kinds.endswith("cvc") and word[-1] not in "wxy")


def _ends_double_consonant(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and consonant_vowel_pattern(word)[-1] == "c"


@lru_cache(maxsize=100_000)
def stem(word: str) -> str:
    """The stem of a word in lower case.

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
    """-eed, -ied, -ed and -ing; and what is left is made whole again."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if measure(word[:-3]) else word
    end = next((end for end in ("ed", "ing") if word.endswith(end)), "")
    left = word.removesuffix(end)
    if not end or "v" not in consonant_vowel_pattern(left):
        return word
    if left.endswith(("at", "bl", "iz")):
        return left + "e"
    if _ends_double_consonant(left):
        return left if left[-1] in "lsz" else left[:-1]
    return left + "e" if measure(left) == 1 and _ends_cvc(left) else left


def _replace_suffix(word: str, rules: list[tuple[str, str]]) -> str:
    """The longest ending that there is decides: replaced after a stem with a measure, and left alone after none."""
    for end, new in rules:
        if word.endswith(end):
            left = word.removesuffix(end)
            return left + new if measure(left) else word
    return word


def _step_2(word: str) -> str:
    if word.endswith("alli") and measure(word[:-4]):
        return _step_2(word[:-2])
    if word.endswith("logi"):  # its l belongs to the stem that is measured
        return word[:-1] if measure(word[:-3]) else word
    return _replace_suffix(word, STEP_2)


def _step_4(word: str) -> str:
    for end, _ in STEP_4:
        if word.endswith(end):
            left = word.removesuffix(end)
            apart = end != "ion" or left.endswith(("s", "t"))
            return left if measure(left) > 1 and apart else word
    return word


def _step_5(word: str) -> str:
    left = word[:-1]
    if word.endswith("e") and (measure(left) > 1 or (measure(left) == 1 and not _ends_cvc(left))):
        word = left
    return word[:-1] if word.endswith("ll") and measure(word[:-1]) > 1 else word
