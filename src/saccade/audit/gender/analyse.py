"""The gender of a noun phrase: what the noun itself says, else its article, else an adjective beside it.

The feminine is the marked form: a feminine article before a noun without a feminine of its own ("la designer") makes the
phrase feminine. Words whose gender says nothing of the person ("die Wache", "la victime") and phrases that show none
("l'analyste") are neutral.
"""

from collections.abc import Sequence

from saccade.audit.gender.lexicon import Gender, Kind, Language

REACH = 3  # words before a noun among which its article is sought
DATIVE = frozenset(["mit", "von", "bei", "zu", "nach", "aus", "seit", "gegenüber", "außer"])
STEMS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "dies", "jed", "jen")  # of articles that take endings
HIS = frozenset(["zum", "vom", "beim", "im", "am", "den", "ein", "kein", "mein", "dein", "sein", "ihr"])
ARTICLES = HIS | {"der", "die", "das", "dem", "des", "zur"}
MALE_ENDINGS = ("en", "em", "es")  # of an article: einen, diesem, keines
OPENERS = frozenset([",", ";", "weil", "dass", "ob", "wenn", "als", "und", "oder", "aber", "denn"])


def gender_of(language: Language, words: Sequence[str], place: int, kind: Kind | None) -> Gender:
    """The gender of the phrase whose noun stands at `place`; `kind` is what the lexicon says of the noun, None if unknown.

    >>> from saccade.audit.gender.lexicon import language
    >>> gender_of(language("fr"), ["La", "nouvelle", "secrétaire", "part"], 2, "both")
    'female'
    >>> gender_of(language("de"), ["mit", "der", "Angestellten"], 2, "declined")
    'female'
    """
    kind = kind or language.guess(words[place]) or "both"
    if kind == "neutral" or kind == "female":
        return kind
    if language.code == "de":
        return _german(words, place, kind)
    said = _article(language, words, place) or _adjective(language, words, place)
    if kind == "male":
        return "female" if said == "female" and language.guess(words[place]) != "male" else "male"
    return "male" if said == "male" else "female" if said == "female" else "neutral"


def is_led(language: Language, words: Sequence[str], place: int) -> bool:
    """Whether an article stands before a word, with adjectives at most between: then it can be a person's noun."""
    for before in range(place - 1, max(-1, place - 1 - REACH), -1):
        low = words[before].lower()
        if low in language.articles or (language.code == "de" and _is_article(low)):
            return True
        if low not in language.adjectives and language.code != "de":
            return False
    return False


def _article(language: Language, words: Sequence[str], place: int) -> str | None:
    """What the article before a noun says; only adjectives may stand between."""
    for before in range(place - 1, max(-1, place - 1 - REACH), -1):
        low = words[before].lower()
        if low in language.articles:
            said = language.articles[low]
            ambiguous = low in ("son", "mon", "ton") and words[before + 1][0].lower() in "aeiouhéèêâîôœ"
            return None if said == "both" or ambiguous else said
        if low not in language.adjectives:
            return None
    return None


def _adjective(language: Language, words: Sequence[str], place: int) -> str | None:
    """What an adjective right before or right after the noun says."""
    for beside in (place - 1, place + 1):
        if 0 <= beside < len(words) and (said := language.adjectives.get(words[beside].lower())) in ("male", "female"):
            return said
    return None


def _german(words: Sequence[str], place: int, kind: Kind) -> Gender:
    """German articles and endings; where the case is needed, it is guessed from what stands before."""
    if kind == "male":
        return "male"
    noun = words[place].lower()
    article = next(
        (words[at].lower() for at in range(place - 1, max(-1, place - 1 - REACH), -1) if _is_article(words[at])), ""
    )
    if kind == "declined" and noun.endswith("er"):
        return "male"  # ein Angestellter
    if article in HIS:
        return "male"
    if article == "zur":
        return "female"
    if article == "der":
        if kind == "declined":
            return "male" if noun.endswith("e") else "female"
        return "female" if _is_dative(words, place) else "male"
    if article == "die" or article.endswith(("e", "er")):
        return "female"
    return "male" if article.endswith(MALE_ENDINGS) else "neutral"


def _is_article(word: str) -> bool:
    low = word.lower()
    if low in ARTICLES:
        return True
    return any(low.startswith(stem) and low[len(stem) :] in ("e", "er", "en", "em", "es") for stem in STEMS)


def _is_dative(words: Sequence[str], place: int) -> bool:
    """Whether "der" before the noun is a woman's dative or genitive, not a man's nominative: not at the head of a clause."""
    at = next(at for at in range(place - 1, -1, -1) if words[at].lower() == "der")
    if at == 0 or words[at - 1].lower() in OPENERS:
        return False
    if words[at - 1].lower() in DATIVE or words[at - 1][0].isupper():  # "mit der CEO", "das Büro der CEO"
        return True
    # a clause that begins with somebody else has its subject already
    begin = next((n for n in range(at - 1, -1, -1) if words[n] in (",", ";")), -1)
    return any(
        word.lower() in ("der", "die", "das", "ein", "eine", "er", "sie", "jemand") for word in words[begin + 1 : at]
    )
