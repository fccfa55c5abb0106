"""What the simple methods of `saccade.baselines` reach on published data, for docs/baselines.md.

    python -m benchmarks.baselines DIR                     # a folder with sst2, polarity, wnut17, conll2002 and others
    python -m benchmarks.baselines DIR --only sst2 mr

Choices are made on the dev part; the test part is scored once. Seconds are of one process, with its imports.
"""

import argparse
import gzip
import json
import random
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np

from saccade import metrics
from saccade.baselines.compression import gzip_bits_per_byte
from saccade.baselines.ibm1 import WordDictionary
from saccade.baselines.kneser_ney import KneserNey
from saccade.baselines.lead_sentence import lead_sentence
from saccade.baselines.linear_text import fit_linear_classifier, fit_ridge
from saccade.baselines.ngram_classifier import NgramClassifier
from saccade.baselines.ngram_regressor import NgramRegressor
from saccade.baselines.pixels import NearestNeighbor, fit_linear_pixels
from saccade.baselines.sentence_match import SentenceMatcher
from saccade.baselines.tagger import PerceptronTagger, TagLookup, repair_bio

Result = tuple[str, str]  # the method, and its score on the test part
Labeled = tuple[list[tuple[str, ...]], list[str]]
BOOK_BYTES, BOOK_TEST_BYTES = 400_000, 40_000
MAX_TRAIN_IMAGES = 10_000


def sst2(data: Path) -> Iterator[Result]:
    """The published parts: 6,920 / 872 / 1,821."""
    parts = [_read_tsv(data / "sst2" / f"{name}.tsv") for name in ("train", "dev", "test")]
    yield from _classify(*(([(text,) for text, _ in rows], [label for _, label in rows]) for rows in parts))


def mr(data: Path) -> Iterator[Result]:
    """Movie review sentences, shuffled with seed 0: 8 / 1 / 1 tenths."""
    with zipfile.ZipFile(data / "polarity" / "sentence_polarity.zip") as archive:
        rows = [
            ((line.strip(),), name)
            for name in ("neg", "pos")
            for line in archive.read(f"sentence_polarity/rt-polarity.{name}").decode("latin-1").splitlines()
        ]
    yield from _classify(*_split_tenths(rows))


def subjectivity(data: Path) -> Iterator[Result]:
    """Subjective or objective sentences, shuffled with seed 0: 8 / 1 / 1 tenths."""
    with zipfile.ZipFile(data / "polarity" / "subjectivity.zip") as archive:
        rows = [
            ((line.strip(),), name)
            for name in ("plot.tok.gt9.5000", "quote.tok.gt9.5000")
            for line in archive.read(f"subjectivity/{name}").decode("latin-1").splitlines()
        ]
    yield from _classify(*_split_tenths(rows))


def movie_reviews(data: Path) -> Iterator[Result]:
    """Whole reviews: folds 0 to 6, 7, and 8 and 9."""
    (path,) = (data / "movie_reviews").glob("*.jsonl*")
    records = [json.loads(line) for line in _read_lines(path)]
    parts = []
    for folds in (range(7), (7,), (8, 9)):
        chosen = [record for record in records if int(record["fold"]) in folds]
        parts.append(([(record["text"],) for record in chosen], [str(record["label"]) for record in chosen]))
    yield from _classify(*parts)


def wnut17(data: Path) -> Iterator[Result]:
    yield from _tag(data / "wnut17" / "train.conll", data / "wnut17" / "test.conll")


def conll2002_spanish(data: Path) -> Iterator[Result]:
    folder = data / "conll2002"
    yield from _tag(folder / "esp.train.gz", folder / "esp.testb.gz", encoding="latin-1")


def conll2002_dutch(data: Path) -> Iterator[Result]:
    folder = data / "conll2002"
    yield from _tag(folder / "ned.train.gz", folder / "ned.testb.gz", encoding="latin-1")


def shakespeare(data: Path) -> Iterator[Result]:
    """The first 400 KB, of which the last tenth is the test part."""
    text = (data / "tinyshakespeare" / "input.txt").read_bytes()[:BOOK_BYTES]
    symbols, cut = np.frombuffer(text, np.uint8), BOOK_BYTES - BOOK_TEST_BYTES
    for order in (5, 6):
        model = KneserNey.fit(symbols[:cut], order=order, vocab=256)
        nats = -model.log_probabilities(symbols[cut - order + 1 :], skip=order - 1).mean()
        yield f"Kneser-Ney {order}-grams of bytes", f"{nats / np.log(2):.3f} bits a byte"
    yield "gzip -9", f"{gzip_bits_per_byte(text[cut:], text[:cut]):.3f} bits a byte"


def wikitext2(data: Path) -> Iterator[Result]:
    """Words of the raw text; all that do not occur twice in the training part are one word."""
    folder = data / "wikitext2"
    train, test = (
        [word for line in _read_lines(_find(folder, name)) for word in [*line.split(), "\n"]]
        for name in ("train", "test")
    )
    counts = Counter(train)
    numbers = {word: number for number, word in enumerate((word for word in counts if counts[word] > 1), 1)}
    ids = [np.array([numbers.get(word, 0) for word in words]) for words in (train, test)]
    model = KneserNey.fit(ids[0], order=3, vocab=len(numbers) + 1)
    perplexity = np.exp(-model.log_probabilities(ids[1]).mean())
    unknown = (ids[1] == 0).mean()
    yield "Kneser-Ney 3-grams of words", f"perplexity {perplexity:.1f} a word, {unknown:.1%} of them unknown"


def multi30k(data: Path) -> Iterator[Result]:
    """English to German."""
    folder = data / "multi30k"
    train, test = (
        list(zip(_read_lines(folder / f"{name}.en.gz"), _read_lines(folder / f"{name}.de.gz"), strict=True))
        for name in ("train", "test_2016_flickr")
    )
    gold = [target for _, target in test]
    dictionary = WordDictionary.fit(train)
    for name, answers in (
        ("copying", [source for source, _ in test]),
        ("word for word (IBM model 1)", [dictionary.translate(source) for source, _ in test]),
    ):
        yield name, f"BLEU {metrics.bleu(gold, answers).value:.1f}, chrF {metrics.chrf(gold, answers).value:.1f}"


def scitldr(data: Path) -> Iterator[Result]:
    records = [json.loads(line) for line in _read_lines(_find(data / "scitldr", "test"))]
    sources = [
        " ".join(record["source"]) if isinstance(record["source"], list) else record["source"] for record in records
    ]
    gold = [record["target"] if isinstance(record["target"], list) else [record["target"]] for record in records]
    yield "first sentence", str(metrics.rouge(gold, [lead_sentence(text) for text in sources], "L"))


def squad(data: Path) -> Iterator[Result]:
    """All questions of the dev part of version 1.1; nothing is learned but the document frequencies of its contexts."""
    articles = json.loads("\n".join(_read_lines(data / "squad" / "dev-v1.1.json.gz")))["data"]
    rows = [
        (paragraph["context"], question["question"], [answer["text"] for answer in question["answers"]])
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    matcher = SentenceMatcher.fit(context for context, _, _ in rows)
    answers = [matcher.predict(question, context).text for context, question, _ in rows]
    yield (
        "best-matching sentence",
        ", ".join(f"{score.name} {score.value:.3f}" for score in metrics.squad([gold for *_, gold in rows], answers)),
    )


def sick(data: Path) -> Iterator[Result]:
    """Relatedness of two sentences, a number."""
    parts = []
    for name in ("train", "dev", "test"):
        _, *rows = _read_tsv(data / "sick" / f"{name}.tsv")
        parts.append(([(first, second) for _, first, second, *_ in rows], [float(score) for *_, score, _ in rows]))
    train, dev, test = parts
    linear, wide = fit_ridge(*train, *dev), NgramRegressor.fit(*train, *dev)
    yield linear.name, f"Pearson {metrics.pearson(test[1], linear.predict(test[0]).tolist()).value:.3f}"
    yield "ridge regression on both", f"Pearson {metrics.pearson(test[1], wide.predict(test[0]).tolist()).value:.3f}"


def fashion_mnist(data: Path) -> Iterator[Result]:
    """The first 10,000 training images; 1,000 more choose C."""
    folder = data / "fashion_mnist"
    images, labels, test, test_labels = (
        np.frombuffer(gzip.decompress(_find(folder, name).read_bytes()), np.uint8, offset=offset)
        for name, offset in (("train-images", 16), ("train-labels", 8), ("t10k-images", 16), ("t10k-labels", 8))
    )
    images, test, n = images.reshape(-1, 784), test.reshape(-1, 784), MAX_TRAIN_IMAGES
    gold = test_labels.tolist()
    nearest = NearestNeighbor.fit(images[:n], labels[:n].tolist()).predict(test)
    yield "nearest neighbor of pixels", f"accuracy {metrics.accuracy(gold, nearest).value:.3f}"
    linear = fit_linear_pixels(images[:n], labels[:n].tolist(), images[n : n + 1000], labels[n : n + 1000].tolist())
    yield "logistic regression on pixels", f"accuracy {metrics.accuracy(gold, linear.predict(test).tolist()).value:.3f}"


def _classify(train: Labeled, dev: Labeled, test: Labeled) -> Iterator[Result]:
    linear = fit_linear_classifier(*train, *dev)
    yield f"{linear.name}", f"accuracy {_accuracy(test[1], linear.predict(test[0]))}"
    yield (
        "n-gram classifier with NB scaling",
        f"accuracy {_accuracy(test[1], NgramClassifier.fit(*train, *dev).predict(test[0]))}",
    )


def _accuracy(gold: Sequence[str], predicted: Sequence[str] | np.ndarray) -> str:
    return f"{metrics.accuracy(list(gold), list(map(str, predicted))).value:.3f}"


def _tag(train: Path, test: Path, encoding: str = "utf-8") -> Iterator[Result]:
    (texts, gold), (test_texts, test_gold) = (_read_columns(path, encoding) for path in (train, test))
    for name, method in (("most frequent tag of each word", TagLookup), ("linear tagger", PerceptronTagger)):
        tagger = method.fit(texts, gold)
        score = metrics.span_f1(test_gold, [repair_bio(tagger.predict(words)) for words in test_texts])
        yield name, f"span F1 {score.value:.3f}"


def _split_tenths(rows: list[tuple[tuple[str, ...], str]]) -> tuple[Labeled, Labeled, Labeled]:
    random.Random(0).shuffle(rows)
    cuts = [0, int(len(rows) * 0.8), int(len(rows) * 0.9), len(rows)]
    train, dev, test = (rows[start:end] for start, end in pairwise(cuts))
    return _unzip(train), _unzip(dev), _unzip(test)


def _unzip(rows: list[tuple[tuple[str, ...], str]]) -> Labeled:
    return [texts for texts, _ in rows], [label for _, label in rows]


def _find(folder: Path, name: str) -> Path:
    return min(path for path in folder.iterdir() if name in path.name and path.is_file())


def _read_lines(path: Path, encoding: str = "utf-8") -> list[str]:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode(encoding).rstrip("\n").split("\n")


def _read_tsv(path: Path) -> list[list[str]]:
    return [line.rstrip("\r").split("\t") for line in _read_lines(path)]


def _read_columns(path: Path, encoding: str) -> tuple[list[list[str]], list[list[str]]]:
    """Words and tags of CoNLL columns, the first and the last."""
    texts: list[list[str]] = [[]]
    tags: list[list[str]] = [[]]
    for line in _read_lines(path, encoding):
        cells = line.split()
        if cells:
            texts[-1].append(cells[0])
            tags[-1].append(cells[-1])
        elif texts[-1]:
            texts.append([])
            tags.append([])
    return [row for row in texts if row], [row for row in tags if row]


DATASETS: dict[str, Callable[[Path], Iterator[Result]]] = {
    function.__name__: function
    for function in (
        sst2, mr, subjectivity, movie_reviews, sick, wnut17, conll2002_spanish, conll2002_dutch, shakespeare, wikitext2,
        multi30k, scitldr, squad, fashion_mnist,
    )
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, help="directory with one subdirectory for each dataset")
    parser.add_argument("--only", nargs="+", choices=DATASETS, default=list(DATASETS), help="datasets to measure")
    args = parser.parse_args()
    print("| data | method | test part | seconds |\n|---|---|---|---|")
    for name in args.only:
        started = time.perf_counter()
        for method, score in DATASETS[name](args.data):
            print(f"| {name} | {method} | {score} | {time.perf_counter() - started:.1f} |", flush=True)
            started = time.perf_counter()


if __name__ == "__main__":
    main()
