"""The gender of a noun phrase: what the noun itself says, else its article, else an adjective beside it.

The feminine is the marked form: a feminine article before a noun without a feminine of its own ("la designer") makes the
phrase feminine. Words whose gender says nothing of the person ("die Wache", "la victime") and phrases that show none
("l'analyste") are neutral.
"""

from collections.abc import Sequence

from saccade.audit.suites.gender.lexicon import Gender, GenderLexicon, NounKind

MAX_ARTICLE_DISTANCE = 3  # words before a noun among which its article is sought
DATIVE_PREPOSITIONS = frozenset(["mit", "von", "bei", "zu", "nach", "aus", "seit", "gegenüber", "außer"])
ARTICLE_STEMS = (
    "ein",
    "kein",
    "mein",
    "dein",
    "sein",
    "ihr",
    "unser",
    "dies",
    "jed",
    "jen",
)  # of articles that take endings
MASCULINE_ARTICLES = frozenset(["zum", "vom", "beim", "im", "am", "den", "ein", "kein", "mein", "dein", "sein", "ihr"])
GERMAN_ARTICLES = MASCULINE_ARTICLES | {"der", "die", "das", "dem", "des", "zur"}
MASCULINE_ARTICLE_ENDINGS = ("en", "em", "es")  # of an article: einen, diesem, keines
CLAUSE_OPENERS = frozenset([",", ";", "weil", "dass", "ob", "wenn", "als", "und", "oder", "aber", "denn"])


def phrase_gender(language: GenderLexicon, words: Sequence[str], position: int, kind: NounKind | None) -> Gender:
    """The gender of the phrase whose noun stands at `place`; `kind` is what the lexicon says of the noun, None if unknown.

    >>> from saccade.audit.suites.gender.lexicon import load_lexicon
    >>> phrase_gender(load_lexicon("fr"), ["La", "nouvelle", "secrétaire", "part"], 2, "both")
    'female'
    >>> phrase_gender(load_lexicon("de"), ["mit", "der", "Angestellten"], 2, "declined")
    'female'
    """
    kind = kind or language.guess_kind(words[position]) or "both"
    if kind == "neutral" or kind == "female":
        return kind
    if language.code == "de":
        return _german_gender(words, position, kind)
    said = _article_gender(language, words, position) or _adjective_gender(language, words, position)
    if kind == "male":
        return "female" if said == "female" and language.guess_kind(words[position]) != "male" else "male"
    return "male" if said == "male" else "female" if said == "female" else "neutral"


def has_article(language: GenderLexicon, words: Sequence[str], position: int) -> bool:
    """Whether an article stands before a word, with adjectives at most between: then it can be a person's noun."""
    for before in range(position - 1, max(-1, position - 1 - MAX_ARTICLE_DISTANCE), -1):
        low = words[before].lower()
        if low in language.articles or (language.code == "de" and _is_article(low)):
            return True
        if low not in language.adjectives and language.code != "de":
            return False
    return False


def _article_gender(language: GenderLexicon, words: Sequence[str], position: int) -> str | None:
    """What the article before a noun says; only adjectives may stand between."""
    for before in range(position - 1, max(-1, position - 1 - MAX_ARTICLE_DISTANCE), -1):
        low = words[before].lower()
        if low in language.articles:
            said = language.articles[low]
            ambiguous = low in ("son", "mon", "ton") and words[before + 1][0].lower() in "aeiouhéèêâîôœ"
            return None if said == "both" or ambiguous else said
        if low not in language.adjectives:
            return None
    return None


def _adjective_gender(language: GenderLexicon, words: Sequence[str], position: int) -> str | None:
    """What an adjective right before or right after the noun says."""
    for beside in (position - 1, position + 1):
        if 0 <= beside < len(words) and (said := language.adjectives.get(words[beside].lower())) in ("male", "female"):
            return said
    return None


def _german_gender(words: Sequence[str], position: int, kind: NounKind) -> Gender:
    """German articles and endings; where the case is needed, it is guessed from what stands before."""
    if kind == "male":
        return "male"
    noun = words[position].lower()
    article = next(
        (
            words[at].lower()
            for at in range(position - 1, max(-1, position - 1 - MAX_ARTICLE_DISTANCE), -1)
            if _is_article(words[at])
        ),
        "",
    )
    if kind == "declined" and noun.endswith("er"):
        return "male"  # ein Angestellter
    if article in MASCULINE_ARTICLES:
        return "male"
    if article == "zur":
        return "female"
    if article == "der":
        if kind == "declined":
            return "male" if noun.endswith("e") else "female"
        return "female" if _is_dative(words, position) else "male"
    if article == "die" or article.endswith(("e", "er")):
        return "female"
    return "male" if article.endswith(MASCULINE_ARTICLE_ENDINGS) else "neutral"


def _is_article(word: str) -> bool:
    low = word.lower()
    if low in GERMAN_ARTICLES:
        return True
    return any(low.startswith(stem) and low[len(stem) :] in ("e", "er", "en", "em", "es") for stem in ARTICLE_STEMS)


def _is_dative(words: Sequence[str], position: int) -> bool:
    """Whether "der" before the noun is a woman's dative or genitive, not a man's nominative: not at the head of a clause."""
    at = next(at for at in range(position - 1, -1, -1) if words[at].lower() == "der")
    if at == 0 or words[at - 1].lower() in CLAUSE_OPENERS:
        return False
    if words[at - 1].lower() in DATIVE_PREPOSITIONS or words[at - 1][0].isupper():  # "mit der CEO", "das Büro der CEO"
        return True
    # a clause that begins with somebody else has its subject already
    begin = next((n for n in range(at - 1, -1, -1) if words[n] in (",", ";")), -1)
    return any(
        word.lower() in ("der", "die", "das", "ein", "eine", "er", "sie", "jemand") for word in words[begin + 1 : at]
    )
