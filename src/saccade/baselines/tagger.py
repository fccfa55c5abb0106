"""Taggers of words: the most frequent tag of each word, and a linear-chain tagger with shape features.

The linear tagger is the averaged structured perceptron (Collins 2002, ACL W02-1001): the scores of a CRF, trained by its mistakes
instead of by gradients, in seconds. Its features are the word, its shape, its beginning and end, and its neighbors.
"""

import random
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

OUTSIDE = "O"  # the tag of a word in no span
AFFIX_SIZES = (1, 2, 3, 4)
DEFAULT_EPOCHS = 5
BOUNDARY = "<s>"  # before the first and after the last word


class TagLookup:
    """The most frequent tag of each word in training, O for an unseen word.

    >>> lookup = TagLookup.fit([["New", "York", "is", "big"], ["York", "wins"]], [["B", "I", "O", "O"], ["I", "O"]])
    >>> lookup.predict(["big", "York", "?"])
    ['O', 'I', 'O']
    """

    def __init__(self, tags: Mapping[str, str]):
        self.tags = tags

    @classmethod
    def fit(cls, texts: Sequence[Sequence[str]], gold: Sequence[Sequence[str]]) -> "TagLookup":
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, tags in zip(texts, gold, strict=True):
            for word, tag in zip(words, tags, strict=True):
                counts[word][tag] += 1
        return cls({word: tags.most_common(1)[0][0] for word, tags in counts.items()})

    def predict(self, words: Sequence[str]) -> list[str]:
        return [self.tags.get(word, OUTSIDE) for word in words]


def repair_bio(tags: Sequence[str]) -> list[str]:
    """BIO tags in which every span begins with B-.

    >>> repair_bio(["O", "I-LOC", "I-LOC", "I-PER"])
    ['O', 'B-LOC', 'I-LOC', 'B-PER']
    """
    out: list[str] = []
    for tag, previous in zip(tags, [OUTSIDE, *tags], strict=False):
        begins = tag.startswith("I-") and previous[2:] != tag[2:]
        out.append(f"B-{tag[2:]}" if begins else tag)
    return out


def word_shape(word: str) -> str:
    """A word with its letters and digits replaced by their kind; repetitions are shortened.

    >>> word_shape("McDonald's"), word_shape("1984"), word_shape("U.S.")
    ("XxXx'x", 'd', 'X.X.')
    """
    kinds = ("X" if c.isupper() else "x" if c.islower() else "d" if c.isdigit() else c for c in word)
    return re.sub(r"(.)\1+", r"\1", "".join(kinds))


def word_features(words: Sequence[str]) -> list[list[str]]:
    """The features of each word: its form, shape, prefixes, suffixes, and the forms and shapes around it."""
    forms = [BOUNDARY, BOUNDARY, *(word.lower() for word in words), BOUNDARY, BOUNDARY]
    shapes = [BOUNDARY, *map(word_shape, words), BOUNDARY]
    rows = []
    for i, word in enumerate(words):
        lower = forms[i + 2]
        around = [f"{offset}:{forms[i + 2 + offset]}" for offset in (-2, -1, 0, 1, 2)]
        around += [f"shape{offset}:{shapes[i + 1 + offset]}" for offset in (-1, 0, 1)]
        around += [f"shapes:{shapes[i]}/{shapes[i + 1]}", f"shapes:{shapes[i + 1]}\\{shapes[i + 2]}"]
        affixes = [part for size in AFFIX_SIZES for part in (f"^{lower[:size]}", f"{lower[-size:]}$")]
        rows.append(["bias", f"form:{word}", *around, *affixes])
    return rows


class PerceptronTagger:
    """A linear-chain tagger: the score of tags is the sum of weights of (feature, tag) and of (tag, next tag).

    >>> texts = [["Ada", "met", "Bo"], ["Eve", "saw", "Max"], ["cats", "met", "dogs"]] * 3
    >>> gold = [["B", "O", "B"], ["B", "O", "B"], ["O", "O", "O"]] * 3
    >>> PerceptronTagger.fit(texts, gold).predict(["Kim", "met", "Lou"])
    ['B', 'O', 'B']
    """

    def __init__(self, tags: Sequence[str], features: Mapping[str, int], weights: np.ndarray, transitions: np.ndarray):
        self.tags, self.features = tuple(tags), features
        self.weights = weights  # (F, K)
        self.transitions = transitions  # (K + 1, K): from a tag, or from the start of the text, to the next tag

    @classmethod
    def fit(
        cls,
        texts: Sequence[Sequence[str]],
        gold: Sequence[Sequence[str]],
        *,
        epochs: int = DEFAULT_EPOCHS,
        seed: int = 0,
    ) -> "PerceptronTagger":
        """Train on texts in random order; the weights are the mean over all steps."""
        tags = sorted({tag for row in gold for tag in row})
        numbers = {tag: number for number, tag in enumerate(tags)}
        features: dict[str, int] = {}
        encoded = [_encode(words, features, grow=True) for words in texts]
        targets = [np.array([numbers[tag] for tag in row], np.int64) for row in gold]
        tagger = cls(tags, features, np.zeros((len(features), len(tags))), np.zeros((len(tags) + 1, len(tags))))
        # the mean over steps is w - u / steps, where u sums each update times the step at which it was made
        late = (np.zeros_like(tagger.weights), np.zeros_like(tagger.transitions))
        order, step = [i for i, row in enumerate(targets) if len(row)], 0
        shuffle = random.Random(seed).shuffle
        for _ in range(epochs):
            shuffle(order)
            for i in order:
                step += 1
                tagger._update(encoded[i], targets[i], late, step)
        tagger.weights -= late[0] / max(1, step)
        tagger.transitions -= late[1] / max(1, step)
        return tagger

    def predict(self, words: Sequence[str]) -> list[str]:
        """The best tags of a text, by the Viterbi algorithm."""
        if not words:
            return []
        rows = _encode(words, self.features)
        scores = np.array([self.weights[row].sum(0) for row in rows])
        return [self.tags[tag] for tag in viterbi(scores, self.transitions)]

    def _update(
        self, rows: Sequence[np.ndarray], gold: np.ndarray, late: tuple[np.ndarray, np.ndarray], step: int
    ) -> None:
        """Where the best tags are wrong, reward the features of the right tags and punish those of the wrong ones."""
        table = np.stack(rows)  # (L, features of a word): equally many for each word
        guess = viterbi(self.weights[table].sum(1), self.transitions)
        wrong = np.flatnonzero(guess != gold)
        if not len(wrong):
            return
        start = len(self.tags)
        before = [np.concatenate([[start], path[:-1]]) for path in (gold, guess)]
        for path, previous, sign in ((gold, before[0], 1.0), (guess, before[1], -1.0)):
            np.add.at(self.weights, (table[wrong], path[wrong, None]), sign)
            np.add.at(late[0], (table[wrong], path[wrong, None]), sign * step)
            np.add.at(self.transitions, (previous, path), sign)
            np.add.at(late[1], (previous, path), sign * step)


def viterbi(scores: np.ndarray, transitions: np.ndarray) -> np.ndarray:
    """The path of the highest sum of scores, (L, K), and transitions, (K + 1, K), whose last row is the start."""
    best = scores[0] + transitions[-1]
    arrivals, columns = [], np.arange(scores.shape[1])
    for row in scores[1:]:
        sums = best[:, None] + transitions[:-1]
        arrivals.append(sums.argmax(0))
        best = sums[arrivals[-1], columns] + row
    path = [int(best.argmax())]
    for arrival in reversed(arrivals):
        path.append(int(arrival[path[-1]]))
    return np.array(path[::-1])


def _encode(words: Sequence[str], numbers: Mapping[str, int] | dict[str, int], grow: bool = False) -> list[np.ndarray]:
    """The numbers of the features of each word; unseen features get a new number if the dictionary grows, else are left out."""
    rows = []
    for names in word_features(words):
        if grow and isinstance(numbers, dict):
            rows.append(np.array([numbers.setdefault(name, len(numbers)) for name in names]))
        else:
            rows.append(np.array([numbers[name] for name in names if name in numbers], np.int64))
    return rows
