"""Token classification with BIO tags (CoNLL), such as named entity recognition: a tag for each word, merged into entity spans.

The tag of a word is predicted at its first token. Viterbi decoding searches only the sequences that BIO allows, so that every
prediction is valid: no entity begins with an I- tag.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Role
from saccade.data.example import TAGS, WORDS
from saccade.errors import DataError
from saccade.metrics import ClassScore, Score
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.base import (
    BaselineMethod,
    Defaults,
    ErrorRow,
    Item,
    Task,
    check_text_length,
    pad_sources,
    require_tokenizer,
)
from saccade.tasks.baselines.sequences import tag_baselines
from saccade.tasks.classification.class_weights import as_tensor, make_class_weights
from saccade.tasks.classification.label_values import format_mappings
from saccade.tasks.interface.predictions import EntitiesPrediction, Entity
from saccade.tasks.needs import Needs

IGNORE_INDEX = -100  # target of tokens without a tag, which the loss ignores
# a span tag, a part of speech, or the number of a class
TAG_PATTERN = re.compile(r"[BIESLUM]-.+|[A-Z][A-Z0-9_+=|.-]*\$?|\d{1,2}|[^\w\s]+")
WORD_PATTERN = re.compile(r"\w+(?:[-'’.]\w+)*|[^\w\s]")


@dataclass(frozen=True)
class Config:
    max_tokens: int = 256
    """Maximum number of tokens per window; longer texts are split into windows."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.0
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    class_weights: str = field(default="none", metadata={"metavar": "none|balanced|TAG=WEIGHT,..."})
    """Class weights of the loss: balanced (inverse class frequencies, as in scikit-learn), weights by tag, or none."""
    augment: Literal["none", "counterfactual"] = "none"
    """Data augmentation: counterfactual adds copies of training examples about the other group; none disables it."""

    def __post_init__(self) -> None:
        format_mappings(self, "class_weights")


class PredictedTags(list[str]):
    """The predicted tags of a sequence of words: a list of tags that also knows the probability of each."""

    def __init__(self, tags: Iterable[str] = (), probabilities: Iterable[float] = ()):
        super().__init__(tags)
        self.probabilities = list(probabilities)

    def append_piece(self, piece: "PredictedTags") -> None:
        """Append the tags of the next piece of the same text."""
        self.extend(piece)
        self.probabilities.extend(piece.probabilities)


class Tag(Task):
    name = "tag"
    aliases = ("ner",)
    verb = "tag"
    gold_roles = ("tags",)
    counterfactual_roles, preserved_gold_roles = ("words",), ("tags",)
    has_right_answers = reads_sentences = True
    min_examples = 5_000
    hub_pipeline = "token-classification"
    augment_roles = ("words",)
    description = "token classification: a tag for each word, such as names of people and places (NER)"
    has_mistakes = True
    Config = Config
    needs = Needs(Modality.TEXT, head="tag")
    token_template = "bos_eos"
    sample = "names"
    truncates = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (WORDS, TAGS)

    @classmethod
    def matches(cls, examples: Sequence[Example]) -> bool:
        tags = [tag for example in examples for tag in example["tags"]]
        # a table of words that was read as one very long sentence is not data for tagging
        many = len(tags) > len(examples) > 1 or len(examples) == 1 < len(tags) < 40
        words = {word for example in examples for word in example["words"]}
        return many and len(set(tags)) <= max(3, len(tags) / 4) and _look_like_tags(set(tags), words)

    def make_record(self, *texts: str) -> dict[str, Any]:
        words, offsets = split_words(texts[0])
        return {"words": words, "offsets": offsets, "text": texts[0]}

    def parse_input(self, record: Mapping[str, Any]) -> Example | None:
        if "words" not in record and isinstance(record.get("text"), str):
            record = {**record, **self.make_record(record["text"])}
        return super().parse_input(record)

    def baselines(self) -> Sequence[BaselineMethod]:
        return tag_baselines()

    def to_comparable(self, answer: Sequence[str], example: Example) -> Any:
        return tuple(answer)

    def fit(self, examples: Sequence[Example]) -> None:
        for example in examples:
            check_bio_tags(example)
        types = sorted({tag[2:] for example in examples for tag in example["tags"] if tag != "O"})
        if not types:
            raise DataError(
                "all words have the tag O, so there is nothing to learn", hint="give texts with tagged words"
            )
        self.labels = ("O", *(f"{prefix}-{entity_type}" for entity_type in types for prefix in "BI"))
        counts = Counter(tag for example in examples for tag in example["tags"])
        self.class_weights = make_class_weights(self.config.class_weights, self.labels, counts)

    def default_family(self) -> str:
        return "transformer_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 2e-4, "batch_tokens": 1024, "epochs": 6})
        return Defaults(
            self.default_family(),
            {"width": 128, "layers": 2, "ffn_width": 256},
            {"lr": 1e-3, "batch_tokens": 2048, "epochs": 20},
        )

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (" ".join(example["words"]) for example in examples)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """The windows of each example; a text longer than the maximum number of tokens has several."""
        tokenizer = require_tokenizer(model)
        limit = min(self.config.max_tokens, model.max_positions or self.config.max_tokens)
        label_ids = {label: i for i, label in enumerate(self.labels)}
        out = []
        for example in examples:
            words = example["words"]
            check_bio_tags(example)
            check_text_length(" ".join(words), example, "words")
            for start, end in _split_to_fit(words, tokenizer, limit):
                encoding = tokenizer.encode(" ".join(words[start:end])).truncate(limit)
                tags = [label_ids.get(tag, 0) for tag in example["tags"][start:end]] if "tags" in example else None
                word_starts = _find_word_starts(words[start:end], encoding.offsets, encoding.special_tokens_mask)
                gold = np.full(len(encoding.ids), IGNORE_INDEX)
                for position, tag in zip(word_starts, tags or [], strict=tags is not None):
                    if position >= 0:
                        gold[position] = tag
                out.append(
                    Item(
                        example,
                        np.array(encoding.ids, np.int32),
                        gold=gold if tags is not None else None,
                        segment_ids=np.array(encoding.segment_ids, np.int8),
                        word_starts=tuple(word_starts),
                    )
                )
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        source, gold = pad_sources(items), None
        if all(item.gold is not None for item in items):
            gold = torch.full_like(source.tokens, IGNORE_INDEX)
            for i, item in enumerate(items):
                gold[i, : len(item.gold)] = torch.from_numpy(item.gold)
        return Batch(source, gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return int((batch.gold != IGNORE_INDEX).sum()) if batch.gold is not None else 0

    def loss(self, model: Model, batch: Batch) -> Tensor:
        scores = model(batch)
        assert batch.gold is not None
        return F.cross_entropy(
            scores.flatten(0, 1),
            batch.gold.flatten(),
            as_tensor(self.class_weights, scores),
            reduction="sum",
            ignore_index=IGNORE_INDEX,
            label_smoothing=self.config.label_smoothing,
        )

    def answer(self, model: Model, batch: Batch) -> list[PredictedTags]:
        """The tags of the words of each window; `merge_answers` joins the windows of a text."""
        scores = model(batch).float().log_softmax(-1).cpu()
        answers = []
        for row, item in enumerate(batch.items):
            log_probs = torch.zeros(len(item.word_starts), len(self.labels))  # words without tokens: O
            positions = [(i, position) for i, position in enumerate(item.word_starts) if position >= 0]
            log_probs[[i for i, _ in positions]] = scores[row, [position for _, position in positions]]
            for i, position in enumerate(item.word_starts):
                if position < 0:
                    log_probs[i, 1:] = -torch.inf
            path = viterbi_decode(log_probs.numpy(), self.labels)
            probabilities = log_probs.exp()[torch.arange(len(path)), path].clamp(max=1.0) if path else torch.zeros(0)
            answers.append(PredictedTags((self.labels[tag] for tag in path), probabilities.tolist()))
        return answers

    def merge_answers(self, answers: Sequence[PredictedTags], items: Sequence[Item]) -> list[PredictedTags]:
        """The tags of each example, joined from its windows."""
        out: list[PredictedTags] = []
        last: Example | None = None
        for answer, item in zip(answers, items, strict=True):
            if item.example is last:
                out[-1].append_piece(answer)
            else:
                out.append(PredictedTags(answer, answer.probabilities))
            last = item.example
        return out

    def score(self, answers: Sequence[list[str]], examples: Sequence[Example]) -> list[Score]:
        gold = [example["tags"] for example in examples]
        return [metrics.span_f1(gold, answers), metrics.accuracy(list(chain(*gold)), list(chain(*answers)))]

    def class_scores(self, answers: Sequence[list[str]], examples: Sequence[Example]) -> list[ClassScore]:
        return metrics.span_class_scores(metrics.count_spans([example["tags"] for example in examples], answers))

    def to_prediction(self, answer: Sequence[str], example: Example) -> EntitiesPrediction:
        words = example["words"]
        ends = np.cumsum([len(word) + 1 for word in words]).tolist()
        default_offsets = [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
        text, offsets = " ".join(words), default_offsets
        if "offsets" in example:
            text, offsets = example["text"], example["offsets"]
        return EntitiesPrediction(text, extract_entities(answer, offsets, text))

    def error_row(self, answer: list[str], example: Example) -> ErrorRow | None:
        if answer == example["tags"]:
            return None
        gold, predicted = (str(self.to_prediction(tags, example)) for tags in (example["tags"], answer))
        cells = {"text": " ".join(example["words"]), "gold": gold, "answer": predicted}
        if not isinstance(answer, PredictedTags):
            return ErrorRow(cells)
        rows = zip(answer, example["tags"], answer.probabilities, strict=True)
        return ErrorRow(cells, max(probability for tag, true, probability in rows if tag != true))


def check_bio_tags(example: Example) -> None:
    """Raise an error for tags that are not BIO tags, such as parts of speech."""
    wrong = next((tag for tag in example.values.get("tags", ()) if tag != "O" and tag[:2] not in ("B-", "I-")), None)
    if wrong is not None:
        raise DataError(
            f"the tag {wrong!r} is not a BIO tag",
            file=example.file,
            line=example.line,
            column="tags",
            value=wrong,
            hint="use O, or B- or I- with a type, such as B-PER; parts of speech and other tags are not supported",
        )


def split_words(text: str) -> tuple[list[str], list[tuple[int, int]]]:
    """The words of a text and their offsets; every character other than white space is in exactly one word.

    >>> split_words("Ada Lovelace, 1815.")[0]
    ['Ada', 'Lovelace', ',', '1815', '.']
    """
    matches = list(WORD_PATTERN.finditer(text))
    return [match.group() for match in matches], [match.span() for match in matches]


def extract_entities(tags: Sequence[str], offsets: Sequence[tuple[int, int]], text: str) -> tuple[Entity, ...]:
    """The entities that BIO tags mark, with character offsets; their score is the mean probability of their tags.

    >>> extract_entities(["B-PER", "I-PER", "O"], [(0, 3), (4, 12), (13, 18)], "Ada Lovelace wrote")
    (Entity(start=0, end=12, text='Ada Lovelace', label='PER', score=None),)
    """
    spans: list[list[int]] = []  # the words of each entity
    for number, tag in enumerate(tags):
        if tag.startswith("B-"):
            spans.append([number])
        elif tag.startswith("I-"):
            spans[-1].append(number)
    probabilities = tags.probabilities if isinstance(tags, PredictedTags) else []
    out = []
    for words in spans:
        start, end = offsets[words[0]][0], offsets[words[-1]][1]
        score = sum(probabilities[number] for number in words) / len(words) if probabilities else None
        out.append(Entity(start, end, text[start:end], tags[words[0]][2:], score))
    return tuple(out)


def viterbi_decode(scores: np.ndarray, labels: Sequence[str]) -> list[int]:
    """The best tag sequence that BIO allows (Viterbi): I-X only follows B-X or I-X.

    >>> viterbi_decode(np.log([[0.4, 0.1, 0.5], [0.2, 0.2, 0.6]]), ["O", "B-X", "I-X"])
    [0, 0]
    """
    if not len(scores):
        return []
    inside = np.array([label.startswith("I-") for label in labels])
    allowed = np.array([[not b.startswith("I-") or a[2:] == b[2:] for b in labels] for a in labels])
    best, backpointers = np.where(inside, -np.inf, scores[0]), []
    for row in scores[1:]:
        candidates = np.where(allowed, best[:, None], -np.inf)  # (from, to)
        backpointers.append(candidates.argmax(0))
        best = candidates.max(0) + row
    path = [int(best.argmax())]
    for pointers in reversed(backpointers):
        path.append(int(pointers[path[-1]]))
    return path[::-1]


def _find_word_starts(words: Sequence[str], offsets: Sequence[tuple[int, int]], special: Sequence[bool]) -> list[int]:
    """The index of the first token of each word of a text joined by spaces; -1 for words without tokens."""
    ends = np.cumsum([len(word) + 1 for word in words])
    word_starts = [-1] * len(words)
    for position, ((start, end), is_special) in enumerate(zip(offsets, special, strict=True)):
        if is_special or end <= start:
            continue
        # by the last character of the token, as the first may be the space before the word
        word = int(np.searchsorted(ends, end - 1, side="right"))
        if word_starts[word] < 0:
            word_starts[word] = position
    return word_starts


def _split_to_fit(words: Sequence[str], tokenizer: Any, limit: int) -> list[tuple[int, int]]:
    """Split words into the longest windows whose tokens fit into the limit; returns (start, end) word indices."""
    encoding = tokenizer.encode(" ".join(words))
    if len(encoding) <= limit or len(words) < 2:
        return [(0, len(words))]
    special_tokens = sum(encoding.special_tokens_mask)
    word_starts = _find_word_starts(words, encoding.offsets, encoding.special_tokens_mask)
    sizes = [max(1, b - a) for a, b in pairwise([*_forward_fill(word_starts), len(encoding) - special_tokens // 2])]
    window_starts, used = [0], 0
    for i, size in enumerate(sizes):
        if used + size > limit - special_tokens and i > window_starts[-1]:
            window_starts.append(i)
            used = 0
        used += size
    return list(pairwise([*window_starts, len(words)]))


def _forward_fill(firsts: Sequence[int]) -> list[int]:
    """Replace -1 by the value before it, so that words without tokens share the position of the preceding word."""
    out: list[int] = []
    for position in firsts:
        out.append(position if position >= 0 else (out[-1] if out else 0))
    return out


def _look_like_tags(tags: set[str], words: set[str]) -> bool:
    """Whether all tags look like span tags, parts of speech or small numbers, or there are far fewer tags than words.

    >>> _look_like_tags({"O", "B-PER"}, {"Ann"}), _look_like_tags({"NOUN", "DET", "PRP$", "."}, {"a", "cat", "."})
    (True, True)
    >>> _look_like_tags({"le", "chat", "dort", "."}, {"the", "cat", "sleeps", "."})
    False
    """
    return all(map(TAG_PATTERN.fullmatch, tags)) or 4 * len(tags) <= len(words)
