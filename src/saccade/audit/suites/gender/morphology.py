"""The gender of a noun phrase, by the noun itself, else by its article, else by an adjacent adjective.

The feminine is the marked form: a feminine article before a noun without a separate feminine form ("la designer") makes the
phrase feminine. Nouns whose grammatical gender is independent of the person ("die Wache", "la victime"), and phrases that show
no gender ("l'analyste"), are neutral.
"""

from collections.abc import Sequence

from saccade.audit.suites.gender.lexicon import Gender, GenderLexicon, NounKind

MAX_ARTICLE_DISTANCE = 3  # an article is searched among this many words before the noun
DATIVE_PREPOSITIONS = frozenset(["mit", "von", "bei", "zu", "nach", "aus", "seit", "gegenüber", "außer"])
# of German articles that take endings
ARTICLE_STEMS = ("ein", "kein", "mein", "dein", "sein", "ihr", "unser", "dies", "jed", "jen")
MASCULINE_ARTICLES = frozenset(["zum", "vom", "beim", "im", "am", "den", "ein", "kein", "mein", "dein", "sein", "ihr"])
GERMAN_ARTICLES = MASCULINE_ARTICLES | {"der", "die", "das", "dem", "des", "zur"}
MASCULINE_ARTICLE_ENDINGS = ("en", "em", "es")  # as in einen, diesem, keines
CLAUSE_OPENERS = frozenset([",", ";", "weil", "dass", "ob", "wenn", "als", "und", "oder", "aber", "denn"])


def phrase_gender(language: GenderLexicon, words: Sequence[str], position: int, kind: NounKind | None) -> Gender:
    """The gender of the phrase whose noun is at `position`; `kind` is that of the noun in the lexicon, None if unknown.

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
    gender = _article_gender(language, words, position) or _adjective_gender(language, words, position)
    if kind == "male":
        return "female" if gender == "female" and language.guess_kind(words[position]) != "male" else "male"
    return "male" if gender == "male" else "female" if gender == "female" else "neutral"


def has_article(language: GenderLexicon, words: Sequence[str], position: int) -> bool:
    """Whether an article precedes a word, with only adjectives in between, so that the word can be a noun for a person."""
    for before in range(position - 1, max(-1, position - 1 - MAX_ARTICLE_DISTANCE), -1):
        lower = words[before].lower()
        if lower in language.articles or (language.code == "de" and _is_article(lower)):
            return True
        if lower not in language.adjectives and language.code != "de":
            return False
    return False


def _article_gender(language: GenderLexicon, words: Sequence[str], position: int) -> str | None:
    """The gender of the article before a noun, with only adjectives in between; None if the article shows none."""
    for before in range(position - 1, max(-1, position - 1 - MAX_ARTICLE_DISTANCE), -1):
        lower = words[before].lower()
        if lower in language.articles:
            gender = language.articles[lower]
            ambiguous = lower in ("son", "mon", "ton") and words[before + 1][0].lower() in "aeiouhéèêâîôœ"
            return None if gender == "both" or ambiguous else gender
        if lower not in language.adjectives:
            return None
    return None


def _adjective_gender(language: GenderLexicon, words: Sequence[str], position: int) -> str | None:
    """The gender of the adjective directly before or after the noun."""
    for i in (position - 1, position + 1):
        if 0 <= i < len(words) and (gender := language.adjectives.get(words[i].lower())) in ("male", "female"):
            return gender
    return None


def _german_gender(words: Sequence[str], position: int, kind: NounKind) -> Gender:
    """The gender by German articles and endings; the case, if it matters, is guessed from the words before."""
    if kind == "male":
        return "male"
    noun = words[position].lower()
    before = words[max(0, position - MAX_ARTICLE_DISTANCE) : position][::-1]
    article = next((word.lower() for word in before if _is_article(word)), "")
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
    lower = word.lower()
    if lower in GERMAN_ARTICLES:
        return True
    return any(lower.startswith(stem) and lower[len(stem) :] in ("e", "er", "en", "em", "es") for stem in ARTICLE_STEMS)


def _is_dative(words: Sequence[str], position: int) -> bool:
    """Whether "der" before the noun is a feminine dative or genitive, and not a masculine nominative at the start of a clause."""
    der = next(i for i in range(position - 1, -1, -1) if words[i].lower() == "der")
    if der == 0 or words[der - 1].lower() in CLAUSE_OPENERS:
        return False
    if (
        words[der - 1].lower() in DATIVE_PREPOSITIONS or words[der - 1][0].isupper()
    ):  # "mit der CEO", "das Büro der CEO"
        return True
    # a clause with an earlier article or pronoun already has a subject
    start = next((i for i in range(der - 1, -1, -1) if words[i] in (",", ";")), -1)
    subjects = ("der", "die", "das", "ein", "eine", "er", "sie", "jemand")
    return any(word.lower() in subjects for word in words[start + 1 : der])
