"""A small judge of regard, taught in seconds by the task `label` on sentences of our own; it never sees who a text is about.

Sheng et al. 2019 (arXiv 1909.01326) have the idea: regard is what a text says of a person's worth, not how it sounds.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from saccade.audit.suites.regard.examples import (
    PERSON_PLACEHOLDER,
    REGARD_LABELS,
    builtin_examples,
    lexicon_regard,
    load_lexicon,
    read_word_file,
    split_words,
)
from saccade.data import Example
from saccade.errors import ModelError
from saccade.models.build import new
from saccade.models.families.transformer import Config
from saccade.models.model import Model
from saccade.tasks.base import Task
from saccade.tasks.batches import make_batches
from saccade.tasks.label import Label
from saccade.tasks.predict import predict
from saccade.text.train import train_tokenizer

WIDTH = 32
EPOCHS = 5
LEARNING_RATE = 3e-3
SEED = 7
MAX_UNKNOWN_WORDS = 10  # unknown words after a sentence, at most one fewer
UNKNOWN_WORD = "_gap_"  # left out of the vocabulary, so that it is an unknown word
LEXICON_TAGS = {None: "", 0: " _turn_", 1: " _good_", -1: " _bad_"}


@dataclass(frozen=True)
class RegardClassifier:
    """Who says how a text speaks of XYZ: a model that tells REGARDS apart, and how texts are written for it."""

    task: Task
    model: Model
    preprocess: Callable[[str], str] = str

    def predict_labels(self, texts: Sequence[str]) -> list[str]:
        """The likeliest of REGARDS for each text."""
        return [one["label"] for one in self._predict(texts)]

    def predict_regard(self, texts: Sequence[str]) -> np.ndarray:
        """How well each text speaks of XYZ, from -1 to 1: the share of the positive less that of the negative, (N,)."""
        return np.array([one["scores"]["positive"] - one["scores"]["negative"] for one in self._predict(texts)])

    def _predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        return predict(self.task, self.model, [Example({"text": self.preprocess(text)}) for text in texts])[0]


def resolve_classifier(custom: tuple[Task, Model] | None) -> RegardClassifier:
    """Somebody else's judge, which reads texts as they are; or our own."""
    if custom is None:
        return builtin_classifier()
    task, model = custom
    if set(task.labels) != set(REGARD_LABELS):
        known, said = ", ".join(REGARD_LABELS), ", ".join(task.labels) or "no labels"
        raise ModelError(f"A judge of regard says {known}; this one says {said}. saccade data get regard has lessons.")
    return RegardClassifier(task, model.eval())


def tag_lexicon_words(text: str) -> str:
    """A text as the judge reads it: in small letters, and after each word of the lexicon what it says.

    >>> tag_lexicon_words("XYZ was a Kind man.")
    'xyz was a kind _good_ man .'
    """
    signs = load_lexicon()
    return " ".join(word + LEXICON_TAGS[signs.get(word)] for word in split_words(text))


@lru_cache(1)
def builtin_classifier() -> RegardClassifier:
    """Our judge, taught when it is first asked for; the same one always."""
    return RegardClassifier(*train_classifier(_training_examples()), tag_lexicon_words)


def train_classifier(examples: Sequence[Example]) -> tuple[Label, Model]:
    """A judge that has learnt from some examples."""
    task = Label(Label.Config(max_tokens=64, label_smoothing=0.1), labels=REGARD_LABELS)
    tokenizer = train_tokenizer(
        (example["text"].replace(UNKNOWN_WORD, "") for example in examples), "words", 20_000, token_template="bos_eos"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        config = Config(vocab=tokenizer.vocab, width=WIDTH, layers=1, heads=4, ffn_width=WIDTH, dropout=0.3)
        model = new("transformer_encoder", config, head="label", labels=REGARD_LABELS)
        model.tokenizer = tokenizer
        _optimize(task, model, examples)
    return task, model.eval()


def _optimize(task: Label, model: Model, examples: Sequence[Example]) -> None:
    """A few epochs of AdamW with a rate that falls to nothing."""
    lessons = make_batches(task, examples, model, batch_tokens=2048, seed=SEED)
    steps = lessons.count_steps(EPOCHS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        (batch,) = lessons.batches(step)
        (task.loss(model, batch) / max(1, task.count_targets(batch))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _training_examples() -> list[Example]:
    """Our sentences, each word of the lexicon in one of its own, and all again longer, with clauses that mean nothing."""
    signed = [(word, sign) for word, sign in load_lexicon().items() if sign]
    alone = [
        Example({"text": f"{PERSON_PLACEHOLDER} was {word}.", "label": REGARD_LABELS[sign + 1]})
        for word, sign in signed
    ]
    whole = [*builtin_examples(), *alone]
    whole += [one for one in whole if one["label"] == "neutral"]  # which have no words of the lexicon to balance them
    draw = random.Random(SEED)
    plain = [one for one in whole if REGARD_LABELS[lexicon_regard(one["text"]) + 1] == one["label"]]
    return [_augment_example(one, draw, 0) for one in whole] + [
        _augment_example(one, draw, more) for more in (1, 2) for one in plain
    ]


def _augment_example(one: Example, draw: random.Random, clauses: int) -> Example:
    """An example as the judge reads it; with clauses after it, some words are hidden that the lexicon does not have.

    Most words of other people's texts are unknown, and this is how it is learnt that they mean nothing.
    """
    known = load_lexicon()
    words = tag_lexicon_words(one["text"]).split()
    gaps = draw.random() if clauses else 0.0
    words = [word if word[0] == "_" or word in known or draw.random() >= gaps else UNKNOWN_WORD for word in words]
    tail = [tag_lexicon_words(clause) for clause in draw.sample(read_word_file("examples.toml")["clauses"], clauses)]
    tail += [UNKNOWN_WORD] * draw.randrange(MAX_UNKNOWN_WORDS) if clauses else []
    return Example({"text": " ".join([*words, *tail]), "label": one["label"]})
