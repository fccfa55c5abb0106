"""The best-matching sentence for a question, and in it the words that are most likely the answer.

The sentence shares the most words with the question, each weighted by its inverse document frequency. The answer is the span of
up to MAX_ANSWER_WORDS words without a word of the question that has the highest mean inverse document frequency, less a penalty
for its distance from the words that sentence and question share.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log
from typing import Self

from saccade.baselines.lead_sentence import split_sentences

WORD = re.compile(r"\w+")
MAX_ANSWER_WORDS = 3
DISTANCE_PENALTY = 0.1  # for each word between the span and the nearest word of the question
CONTEXT_WORDS = {"the", "a", "an", "of", "in", "and", "to", "was", "is", "were", "by", "for", "on", "at", "with", "as"}


@dataclass(frozen=True)
class Answer:
    """A span of the context: `context[start:end]`."""

    start: int
    end: int
    text: str


class SentenceMatcher:
    """Answers questions by the words that they share with the sentences of their context.

    >>> matcher = SentenceMatcher.fit(["The river is the Elbe. Ada was born in London.", "The sea was cold in May."])
    >>> matcher.predict("Where was Ada born?", "The river is the Elbe. Ada was born in London.").text
    'London'
    """

    def __init__(self, document_counts: Counter[str], documents: int):
        self.document_counts, self.documents = document_counts, documents

    @classmethod
    def fit(cls, contexts: Iterable[str]) -> Self:
        distinct = dict.fromkeys(contexts)
        return cls(Counter(word for text in distinct for word in set(WORD.findall(text.lower()))), len(distinct))

    def predict(self, question: str, context: str) -> Answer:
        """The most likely answer; the whole context if it has no word that the question lacks."""
        asked = set(WORD.findall(question.lower()))
        sentences = list(split_sentences(context)) or [(0, len(context))]
        start, end = max(sentences, key=lambda span: self._overlap(asked, context[span[0] : span[1]]))
        best = max(self._rank_spans(asked, context, start, end), default=None)
        if best is None:
            return Answer(0, len(context), context)
        return Answer(-best[1], best[2], context[-best[1] : best[2]])

    def idf(self, word: str) -> float:
        return 1 + log((1 + self.documents) / (1 + self.document_counts[word]))

    def _overlap(self, asked: set[str], sentence: str) -> float:
        return sum(self.idf(word) for word in asked & set(WORD.findall(sentence.lower())))

    def _rank_spans(self, asked: set[str], context: str, start: int, end: int) -> Iterator[tuple[float, int, int]]:
        """The score, the negative start and the end of each candidate; of equal ones, the first is the largest."""
        words = [(match.group().lower(), match.start(), match.end()) for match in WORD.finditer(context, start, end)]
        shared = [i for i, (word, _, _) in enumerate(words) if word in asked and word not in CONTEXT_WORDS]
        for first in range(len(words)):
            for last in range(first, min(first + MAX_ANSWER_WORDS, len(words))):
                names = [word for word, _, _ in words[first : last + 1]]
                if names[-1] in asked:
                    break
                if names[0] in asked or {names[0], names[-1]} & CONTEXT_WORDS:
                    continue
                distance = min((max(first - i, i - last) for i in shared), default=0)
                mean = sum(map(self.idf, names)) / len(names)
                yield mean - DISTANCE_PENALTY * distance, -words[first][1], words[last][2]
