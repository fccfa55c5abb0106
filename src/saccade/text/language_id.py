"""Language identification by script and stopwords, and the tokenizer fertility for each language.

>>> [detect_language(text) for text in ("The cat sat on the mat.", "Die Katze saß auf der Matte.", "Кошка", "ok")]
['en', 'de', 'ru', '']
"""

import re
import tomllib
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from saccade.text.tokenizer import Tokenizer

WORD_PATTERN = re.compile(r"(?<!['’])\b[^\W\d_]+(?:['’][^\W\d_]+)?")  # the s of a lone 's is not a word
KANA_SCRIPTS = ("HIRAGANA", "KATAKANA")
MIN_WORD_WEIGHT = 1.0  # minimum total weight of the stopwords of the detected language
MIN_WEIGHT_RATIO = 1.3  # minimum ratio of that weight to the weight of the second-best language
UNSPACED_LANGUAGES = ("zh", "ja")  # written without spaces, so words are not counted
MAX_CHARACTERS_READ = 2_000  # the beginning of a text that is used to detect its language


@dataclass(frozen=True)
class Language:
    code: str
    name: str
    sample_text: str
    stopwords: frozenset[str] = frozenset()
    script: str = ""
    distinguishing_letters: str = ""  # letters that no other language of the same script has


@dataclass(frozen=True)
class TokenizerCoverage:
    """Fertility of a tokenizer on the same text in one language: tokens, tokens per word, and the ratio to English."""

    language: Language
    token_count: int
    tokens_per_word: float | None
    ratio_to_english: float
    unknown_fraction: float  # fraction of tokens that are the unknown token


@cache
def load_languages() -> dict[str, Language]:
    """The supported languages by code."""
    raw = tomllib.loads((files("saccade.text") / "languages.toml").read_text(encoding="utf-8"))
    return {
        code: Language(
            code,
            entry["name"],
            entry["text"],
            frozenset(entry.get("words", "").split()),
            entry.get("script", ""),
            entry.get("letters", ""),
        )
        for code, entry in raw.items()
    }


def get_stopwords(code: str) -> frozenset[str]:
    """The stopwords of a language; empty for an unknown code."""
    language = load_languages().get(code)
    return frozenset() if language is None else language.stopwords


def detect_language(text: str) -> str:
    """The language code of a text; "" if the language cannot be determined."""
    text = text[:MAX_CHARACTERS_READ]
    script = _detect_script(text)
    if script != "LATIN":
        languages = [
            language for language in load_languages().values() if language.script and language.script == script
        ]
        return next(
            (language.code for language in languages if set(language.distinguishing_letters) & set(text.lower())),
            languages[0].code if languages else "",
        )
    words = [word.lower().replace("’", "'") for word in WORD_PATTERN.findall(text)]
    weights: Counter[str] = Counter()
    for word in words:
        codes = _index_stopwords().get(word, ())
        weights.update(dict.fromkeys(codes, 1 / max(1, len(codes))))  # a stopword of many languages is weak evidence
    (best, weight), (_, second_weight) = [*weights.most_common(2), ("", 0.0), ("", 0.0)][:2]
    return best if weight >= MIN_WORD_WEIGHT and weight >= MIN_WEIGHT_RATIO * second_weight else ""


@cache
def _index_stopwords() -> dict[str, tuple[str, ...]]:
    """The codes of the languages that have each word as a stopword."""
    languages = load_languages()
    words = {word for language in languages.values() for word in language.stopwords}
    return {word: tuple(code for code, language in languages.items() if word in language.stopwords) for word in words}


def _detect_script(text: str) -> str:
    """The most frequent script of the letters; any kana makes a text Japanese."""
    counts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    if any(counts[kana] for kana in KANA_SCRIPTS):
        return KANA_SCRIPTS[0]
    return counts.most_common(1)[0][0].split("-")[0] if counts else ""


def count_languages(texts: Iterable[str]) -> dict[str, int]:
    """The number of texts in each language, the most frequent first."""
    return dict(Counter(map(detect_language, texts)).most_common())


def measure_tokenizer_coverage(tokenizer: Tokenizer) -> list[TokenizerCoverage]:
    """Measure the fertility of a tokenizer for each language; the worst is last."""
    english = max(1, len(tokenizer.encode(load_languages()["en"].sample_text, add_special_tokens=False).ids))
    rows = []
    for language in load_languages().values():
        ids = tokenizer.encode(language.sample_text, add_special_tokens=False).ids
        words = len(language.sample_text.split())
        per_word = None if language.code in UNSPACED_LANGUAGES else len(ids) / words
        unknown = sum(id == tokenizer.unk_id for id in ids) / max(1, len(ids))
        rows.append(TokenizerCoverage(language, len(ids), per_word, len(ids) / english, unknown))
    # a low token count is no advantage if the tokens are unknown
    return sorted(rows, key=lambda row: (max(row.unknown_fraction, 0.1), row.ratio_to_english))
