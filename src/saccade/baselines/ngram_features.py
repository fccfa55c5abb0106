"""N-gram features: words and characters of texts as sparse TF-IDF vectors, with an exact vocabulary (no hashing).

An n-gram is an integer, the number that its symbols write in base V: so a vocabulary is a sorted array, and texts are vectorized
without a loop over n-grams. Words are n-grams of 1 and 2, characters of 2 to 5 across words.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

Kind = Literal["words", "characters"]
Rows = Sequence[Sequence[str]]  # for each example its texts: one, or two for a pair
State = dict[str, np.ndarray]

WORD_PATTERN = re.compile(r"\w+|[^\w\s]")
SIZES: Mapping[Kind, tuple[int, ...]] = {"words": (1, 2), "characters": (2, 3, 4, 5)}
MIN_DOCUMENT_FREQUENCY = 2  # halves the vocabulary, at no cost in accuracy
CODE_BITS = 62  # of an n-gram as an integer


def split_words(text: str) -> list[str]:
    """
    >>> split_words("It's  GOOD!")
    ['it', "'", 's', 'good', '!']
    """
    return WORD_PATTERN.findall(text.lower())


def split_characters(text: str) -> str:
    """
    >>> split_characters("It's  GOOD!")
    " it's good! "
    """
    return f" {' '.join(text.lower().split())} " if text.strip() else ""


SPLIT: Mapping[Kind, Callable[[str], Sequence[str]]] = {"words": split_words, "characters": split_characters}


@dataclass(frozen=True)
class NgramVectorizer:
    """TF-IDF of the n-grams of one kind: (1 + ln tf) · (1 + ln((1 + N) / (1 + df))), each row of length 1.

    >>> vectorizer = NgramVectorizer.fit(["a good film", "a bad film"], "words")
    >>> [vectorizer.decode(feature) for feature in range(len(vectorizer))]
    ['a', 'film']
    """

    kind: Kind
    symbols: tuple[str, ...]  # words or characters, sorted; their numbers count from 1, and 0 is any other
    codes: tuple[np.ndarray, ...]  # for each size, the sorted n-grams of the vocabulary
    idf: np.ndarray  # (F,)

    @classmethod
    def fit(cls, texts: Sequence[str], kind: Kind, min_df: int = MIN_DOCUMENT_FREQUENCY) -> Self:
        """Collect the n-grams that occur in at least `min_df` texts."""
        split = SPLIT[kind]
        document_counts = Counter(symbol for text in texts for symbol in set(split(text)))
        frequent = [(symbol, count) for symbol, count in document_counts.items() if count >= min_df]
        limit = int(2 ** (CODE_BITS / max(SIZES[kind]))) - 1
        symbols = tuple(sorted(symbol for symbol, _ in sorted(frequent, key=lambda pair: (-pair[1], pair[0]))[:limit]))
        empty = cls(kind, symbols, (), np.zeros(0))
        ids, rows = empty._number_symbols(texts)
        codes, frequencies = [], []
        for size in SIZES[kind]:
            grams, documents = empty._join(ids, rows, size)
            vocabulary, features = np.unique(grams, return_inverse=True)
            occurrences = np.unique(features * len(texts) + documents)  # each text once
            df = np.bincount(occurrences // max(1, len(texts)), minlength=len(vocabulary))
            codes.append(vocabulary[df >= min_df])
            frequencies.append(df[df >= min_df])
        df = np.concatenate(frequencies)
        return cls(kind, symbols, tuple(codes), np.log((1 + len(texts)) / (1 + df)) + 1)

    def transform(self, texts: Sequence[str]) -> Any:
        """The TF-IDF rows of texts, a scipy CSR array (N, F)."""
        from scipy.sparse import csr_array

        ids, rows = self._number_symbols(texts)
        cells, start = [], 0
        for size, vocabulary in zip(SIZES[self.kind], self.codes, strict=True):
            grams, documents = self._join(ids, rows, size)
            if len(vocabulary):
                places = np.minimum(np.searchsorted(vocabulary, grams), len(vocabulary) - 1)
                known = vocabulary[places] == grams
                cells.append(documents[known] * len(self) + start + places[known])
            start += len(vocabulary)
        found, counts = np.unique(np.concatenate(cells) if cells else np.zeros(0, np.int64), return_counts=True)
        documents, features = np.divmod(found, max(1, len(self)))
        values = (1 + np.log(counts)) * self.idf[features]
        norms = np.sqrt(np.bincount(documents, values**2, minlength=len(texts)))
        values = (values / norms[documents]).astype(np.float32)
        offsets = np.concatenate([[0], np.cumsum(np.bincount(documents, minlength=len(texts)))])
        return csr_array((values, features.astype(np.int32), offsets.astype(np.int32)), shape=(len(texts), len(self)))

    def decode(self, feature: int) -> str:
        """The n-gram of a feature as text; the words of a bigram are joined by a space."""
        for size, vocabulary in zip(SIZES[self.kind], self.codes, strict=True):
            if feature < len(vocabulary):
                code, digits = int(vocabulary[feature]), []
                for _ in range(size):
                    code, digit = divmod(code, len(self.symbols) + 1)
                    digits.append(self.symbols[digit - 1])
                return (" " if self.kind == "words" else "").join(reversed(digits))
            feature -= len(vocabulary)
        raise IndexError(f"feature {feature} of {len(self)}")

    def __len__(self) -> int:
        return len(self.idf)

    def _number_symbols(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """The symbols of all texts as numbers, and the text of each; a 0 between two texts, which no n-gram may hold."""
        known = {symbol: number for number, symbol in enumerate(self.symbols, 1)}
        ids, lengths = [], []
        for text in texts:
            split = SPLIT[self.kind](text)
            ids += [known.get(symbol, 0) for symbol in split]
            ids.append(0)
            lengths.append(len(split) + 1)
        return np.array(ids, np.int64), np.repeat(np.arange(len(texts)), lengths)

    def _join(self, ids: np.ndarray, rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """The n-grams of known symbols as integers, and the text of each."""
        count = max(0, len(ids) - size + 1)
        grams, whole = np.zeros(count, np.int64), np.ones(count, bool)
        for shift in range(size):
            part = ids[shift : shift + count]
            grams = grams * (len(self.symbols) + 1) + part
            whole &= part > 0
        return grams[whole], rows[:count][whole]

    def to_state(self) -> State:
        """The vocabulary as arrays, which a safetensors file can hold."""
        joined = "\n".join(self.symbols).encode()  # no symbol is a line break, as white space is split at or replaced
        state = {"symbols": np.frombuffer(joined, np.uint8).copy(), "idf": self.idf}
        return state | {f"codes.{size}": codes for size, codes in zip(SIZES[self.kind], self.codes, strict=True)}

    @classmethod
    def from_state(cls, kind: Kind, state: Mapping[str, np.ndarray]) -> Self:
        text = state["symbols"].tobytes().decode()
        symbols = tuple(text.split("\n")) if text else ()
        return cls(kind, symbols, tuple(state[f"codes.{size}"] for size in SIZES[kind]), state["idf"])


@dataclass(frozen=True)
class NgramFeatures:
    """Words and characters together, each kind with the same weight; of a pair, both texts and what they share.

    A pair has three blocks for each kind: its first text, its second, and the product of both, of the n-grams that they share. A
    last column is the cosine of both texts.
    """

    vectorizers: tuple[NgramVectorizer, ...]
    texts_per_row: int = 1

    @classmethod
    def fit(
        cls, rows: Rows, kinds: Sequence[Kind] = ("words", "characters"), min_df: int = MIN_DOCUMENT_FREQUENCY
    ) -> Self:
        texts = [text for row in rows for text in row]
        return cls(tuple(NgramVectorizer.fit(texts, kind, min_df) for kind in kinds), len(rows[0]) if rows else 1)

    def transform(self, rows: Rows) -> Any:
        """The features of examples, a scipy CSR array (N, F)."""
        from scipy.sparse import csr_array, hstack

        blocks = []
        for vectorizer in self.vectorizers:
            sides = [vectorizer.transform([row[side] for row in rows]) for side in range(self.texts_per_row)]
            if self.texts_per_row == 2:
                shared = sides[0].multiply(sides[1]).tocsr()
                sides += [shared, csr_array(np.asarray(shared.sum(1)).reshape(-1, 1))]
            blocks += sides
        return hstack(blocks, format="csr") * np.float32(len(self.vectorizers) ** -0.5)

    def decode(self, feature: int) -> str:
        """The n-gram of a feature, for people.

        >>> features = NgramFeatures.fit([("a cat", "a dog"), ("a cow", "a dog")], kinds=["words"])
        >>> [features.decode(column) for column in range(features.width)][2:5]
        ['first: a dog', 'second: a', 'second: dog']
        """
        pair = self.texts_per_row == 2
        for vectorizer in self.vectorizers:
            for block in ("first: ", "second: ", "both: ") if pair else ("",):
                if feature < len(vectorizer):
                    return block + vectorizer.decode(feature)
                feature -= len(vectorizer)
            if pair:
                if feature == 0:
                    return f"similarity of the {vectorizer.kind}"
                feature -= 1
        raise IndexError(f"feature {feature} of {self.width}")

    @property
    def width(self) -> int:
        """The number of features."""
        pair = self.texts_per_row == 2
        return sum(3 * len(one) + 1 if pair else len(one) for one in self.vectorizers)

    def to_state(self) -> State:
        """The vocabularies as arrays, which a safetensors file can hold."""
        state: State = {"texts_per_row": np.array(self.texts_per_row)}
        for vectorizer in self.vectorizers:
            state |= {f"{vectorizer.kind}.{name}": array for name, array in vectorizer.to_state().items()}
        return state

    @classmethod
    def from_state(cls, state: Mapping[str, np.ndarray]) -> Self:
        vectorizers = []
        for kind in SIZES:
            if f"{kind}.idf" in state:
                part = {
                    name.removeprefix(f"{kind}."): array for name, array in state.items() if name.startswith(f"{kind}.")
                }
                vectorizers.append(NgramVectorizer.from_state(kind, part))
        return cls(tuple(vectorizers), int(state["texts_per_row"]))
