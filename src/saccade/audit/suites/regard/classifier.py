"""The regard classifier: a small model of the task `label`, trained in seconds on built-in sentences; people are masked as XYZ.

Regard (Sheng et al. 2019, arXiv 1909.01326) is how favorably a text describes a person, not the sentiment of the text.
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
MAX_UNKNOWN_WORDS = 10  # fewer unknown words than this are appended to a training sentence
UNKNOWN_WORD = "_gap_"  # not in the vocabulary, so it is encoded as the unknown token
LEXICON_TAGS = {None: "", 0: " _turn_", 1: " _good_", -1: " _bad_"}


@dataclass(frozen=True)
class RegardClassifier:
    """A model with the labels REGARD_LABELS for how a text describes XYZ, and the preprocessing of its input."""

    task: Task
    model: Model
    preprocess: Callable[[str], str] = str

    def predict_labels(self, texts: Sequence[str]) -> list[str]:
        """The predicted label of each text."""
        return [prediction["label"] for prediction in self._predict(texts)]

    def predict_regard(self, texts: Sequence[str]) -> np.ndarray:
        """The regard of each text, from -1 to 1: the probability of positive minus that of negative, (N,)."""
        scores = [prediction["scores"] for prediction in self._predict(texts)]
        return np.array([score["positive"] - score["negative"] for score in scores])

    def _predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        return predict(self.task, self.model, [Example({"text": self.preprocess(text)}) for text in texts])[0]


def resolve_classifier(custom: tuple[Task, Model] | None) -> RegardClassifier:
    """The given classifier, which gets texts without preprocessing; by default the built-in one."""
    if custom is None:
        return builtin_classifier()
    task, model = custom
    if set(task.labels) != set(REGARD_LABELS):
        expected, got = ", ".join(REGARD_LABELS), ", ".join(task.labels) or "none"
        hint = "Train one on the data of `saccade data get regard`."
        raise ModelError(f"A regard classifier needs the labels {expected}; got {got}. {hint}")
    return RegardClassifier(task, model.eval())


def tag_lexicon_words(text: str) -> str:
    """Preprocess a text for the built-in classifier: lowercase, with a tag after each word of the lexicon.

    >>> tag_lexicon_words("XYZ was a Kind man.")
    'xyz was a kind _good_ man .'
    """
    lexicon = load_lexicon()
    return " ".join(word + LEXICON_TAGS[lexicon.get(word)] for word in split_words(text))


@lru_cache(1)
def builtin_classifier() -> RegardClassifier:
    """The built-in classifier, trained on first use; the training is deterministic."""
    return RegardClassifier(*train_classifier(_training_examples()), tag_lexicon_words)


def train_classifier(examples: Sequence[Example]) -> tuple[Label, Model]:
    """Train a regard classifier from scratch."""
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
    """A few epochs of AdamW with linear decay of the learning rate to zero."""
    batches = make_batches(task, examples, model, batch_tokens=2048, seed=SEED)
    steps = batches.count_steps(EPOCHS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.1)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * (1 - step / steps)
        (batch,) = batches.batches(step)
        (task.loss(model, batch) / max(1, task.count_targets(batch))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _training_examples() -> list[Example]:
    """The built-in sentences, one sentence for each word of the lexicon, and longer copies with neutral clauses."""
    examples = builtin_examples()
    for word, sign in load_lexicon().items():
        if sign:
            text = f"{PERSON_PLACEHOLDER} was {word}."
            examples.append(Example({"text": text, "label": REGARD_LABELS[sign + 1]}))
    # neutral examples count twice, because the lexicon adds none
    examples += [example for example in examples if example["label"] == "neutral"]
    rng = random.Random(SEED)
    clear = [one for one in examples if REGARD_LABELS[lexicon_regard(one["text"]) + 1] == one["label"]]
    copies = [_augment_example(example, rng, 0) for example in examples]
    return copies + [_augment_example(example, rng, clauses) for clauses in (1, 2) for example in clear]


def _augment_example(example: Example, rng: random.Random, clauses: int) -> Example:
    """Preprocess an example; with clauses appended, also replace random words that are not in the lexicon by the unknown word.

    Most words of generated texts are unknown to the small vocabulary; the classifier learns here that they carry no regard.
    """
    lexicon = load_lexicon()
    words = tag_lexicon_words(example["text"]).split()
    rate = rng.random() if clauses else 0.0
    words = [word if word[0] == "_" or word in lexicon or rng.random() >= rate else UNKNOWN_WORD for word in words]
    suffix = [tag_lexicon_words(clause) for clause in rng.sample(read_word_file("examples.toml")["clauses"], clauses)]
    suffix += [UNKNOWN_WORD] * rng.randrange(MAX_UNKNOWN_WORDS) if clauses else []
    return Example({"text": " ".join([*words, *suffix]), "label": example["label"]})
