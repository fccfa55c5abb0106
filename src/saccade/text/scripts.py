"""Word segmentation for scripts without spaces between words (Chinese, Japanese, Thai, Lao, Khmer, Burmese, Tibetan).

Splitting at spaces, as BLEU and word alignment do, would make one word of a whole sentence in these scripts; here each of
their characters counts as a word.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

UNSPACED_RANGES = {
    "Han": "\u2e80-\u2fdf\u3005\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "Kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "Thai": "\u0e01-\u0e4e",
    "Lao": "\u0e81-\u0ece\u0edc-\u0edf",
    "Khmer": "\u1780-\u17d3\u17dc\u17dd",
    "Myanmar": "\u1000-\u103f\u1050-\u108f\uaa60-\uaa7f",
    "Tibetan": "\u0f00\u0f40-\u0fbc",
}
_SCRIPTS = {name: re.compile(f"[{ranges}]") for name, ranges in UNSPACED_RANGES.items()}
_UNSPACED = "".join(UNSPACED_RANGES.values())
UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_WORD_OR_CHARACTER = re.compile(f"[{_UNSPACED}]|[^\\s{_UNSPACED}]+")
MIN_UNSPACED_FRACTION = 0.25  # of letters and digits: a quotation or a name is not enough


def detect_unspaced_script(texts: Iterable[str]) -> str:
    """The script without spaces that makes up a notable fraction of the texts; "" if words are separated by spaces.

    >>> [detect_unspaced_script([text]) for text in ("一九九七年五月", "時は飛ぶ", "Tokyo (東京) is large.")]
    ['Han', 'Kana', '']
    """
    counts: Counter[str] = Counter()
    total = 0
    for text in texts:
        total += sum(map(str.isalnum, text))
        if UNSPACED_CHARACTER.search(text):
            counts.update({name: len(script.findall(text)) for name, script in _SCRIPTS.items()})
    if counts.total() < MIN_UNSPACED_FRACTION * max(1, total):
        return ""
    if counts["Kana"]:  # Japanese mixes both
        counts["Kana"] += counts.pop("Han", 0)
    return counts.most_common(1)[0][0]


def find_word_spans(text: str) -> list[tuple[int, int]]:
    """The (start, end) spans of the words: split at spaces, and in scripts without spaces each character with its marks.

    >>> [("Ann 住在東京。")[a:b] for a, b in find_word_spans("Ann 住在東京。")]
    ['Ann', '住', '在', '東', '京', '。']
    """
    spans: list[tuple[int, int]] = []
    for match in _WORD_OR_CHARACTER.finditer(text):
        start, end = match.span()
        is_mark = spans and spans[-1][1] == start and unicodedata.category(text[start]).startswith("M")
        if is_mark:  # a vowel sign or a tone mark belongs to the letter before it
            spans[-1] = spans[-1][0], end
        else:
            spans.append((start, end))
    return spans


def split_words(text: str) -> list[str]:
    """Split a text into the words of `find_word_spans`.

    >>> split_words("a rose"), split_words("กินข้าว")
    (['a', 'rose'], ['กิ', 'น', 'ข้', 'า', 'ว'])
    """
    return [text[start:end] for start, end in find_word_spans(text)]
