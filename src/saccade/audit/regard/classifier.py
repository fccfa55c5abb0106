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

from saccade.audit.regard.examples import PERSON, REGARDS, by_lexicon, lexicon, own_examples, read_words, words_of
from saccade.data import Example
from saccade.errors import ModelError
from saccade.models.model import Model
from saccade.models.new import new
from saccade.models.transformer import Config
from saccade.tasks.answering import answers
from saccade.tasks.feed import feed
from saccade.tasks.label import Label
from saccade.tasks.task import Task
from saccade.text.train import train

WIDTH = 32
EPOCHS = 5
RATE = 3e-3
SEED = 7
LONGER = 10  # unknown words after a sentence, at most one fewer
GAP = "_gap_"  # left out of the vocabulary, so that it is an unknown word
MARKS = {None: "", 0: " _turn_", 1: " _good_", -1: " _bad_"}


@dataclass(frozen=True)
class Judge:
    """Who says how a text speaks of XYZ: a model that tells REGARDS apart, and how texts are written for it."""

    task: Task
    model: Model
    form: Callable[[str], str] = str

    def labels(self, texts: Sequence[str]) -> list[str]:
        """The likeliest of REGARDS for each text."""
        return [one["label"] for one in self._answers(texts)]

    def worth(self, texts: Sequence[str]) -> np.ndarray:
        """How well each text speaks of XYZ, from -1 to 1: the share of the positive less that of the negative, (N,)."""
        return np.array([one["scores"]["positive"] - one["scores"]["negative"] for one in self._answers(texts)])

    def _answers(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        return answers(self.task, self.model, [Example({"text": self.form(text)}) for text in texts])[0]


def judge_of(asked: tuple[Task, Model] | None) -> Judge:
    """Somebody else's judge, which reads texts as they are; or our own."""
    if asked is None:
        return own_judge()
    task, model = asked
    if set(task.labels) != set(REGARDS):
        known, said = ", ".join(REGARDS), ", ".join(task.labels) or "no labels"
        raise ModelError(f"A judge of regard says {known}; this one says {said}. saccade data get regard has lessons.")
    return Judge(task, model.eval())


def marked(text: str) -> str:
    """A text as the judge reads it: in small letters, and after each word of the lexicon what it says.

    >>> marked("XYZ was a Kind man.")
    'xyz was a kind _good_ man .'
    """
    signs = lexicon()
    return " ".join(word + MARKS[signs.get(word)] for word in words_of(text))


@lru_cache(1)
def own_judge() -> Judge:
    """Our judge, taught when it is first asked for; the same one always."""
    return Judge(*taught(_lessons()), marked)


def taught(examples: Sequence[Example]) -> tuple[Label, Model]:
    """A judge that has learnt from some examples."""
    task = Label(Label.Config(length=64, smoothing=0.1), labels=REGARDS)
    tokenizer = train((example["text"].replace(GAP, "") for example in examples), "words", 20_000, frame="both")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        config = Config(vocab=tokenizer.vocab, width=WIDTH, layers=1, heads=4, inner=WIDTH, dropout=0.3)
        model = new("transformer_reader", config, head="label", labels=REGARDS)
        model.tokenizer = tokenizer
        _teach(task, model, examples)
    return task, model.eval()


def _teach(task: Label, model: Model, examples: Sequence[Example]) -> None:
    """A few epochs of AdamW with a rate that falls to nothing."""
    lessons = feed(task, examples, model, tokens=2048, seed=SEED)
    steps = lessons.steps(EPOCHS)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.1)
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / steps)
        (batch,) = lessons.batches(step)
        (task.loss(model, batch) / max(1, task.count(batch))).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _lessons() -> list[Example]:
    """Our sentences, each word of the lexicon in one of its own, and all again longer, with clauses that mean nothing."""
    signed = [(word, sign) for word, sign in lexicon().items() if sign]
    alone = [Example({"text": f"{PERSON} was {word}.", "label": REGARDS[sign + 1]}) for word, sign in signed]
    whole = [*own_examples(), *alone]
    whole += [one for one in whole if one["label"] == "neutral"]  # which have no words of the lexicon to balance them
    draw = random.Random(SEED)
    plain = [one for one in whole if REGARDS[by_lexicon(one["text"]) + 1] == one["label"]]
    return [_longer(one, draw, 0) for one in whole] + [_longer(one, draw, more) for more in (1, 2) for one in plain]


def _longer(one: Example, draw: random.Random, clauses: int) -> Example:
    """An example as the judge reads it; with clauses after it, some words are hidden that the lexicon does not have.

    Most words of other people's texts are unknown, and this is how it is learnt that they mean nothing.
    """
    known = lexicon()
    words = marked(one["text"]).split()
    gaps = draw.random() if clauses else 0.0
    words = [word if word[0] == "_" or word in known or draw.random() >= gaps else GAP for word in words]
    tail = [marked(clause) for clause in draw.sample(read_words("examples.toml")["clauses"], clauses)]
    tail += [GAP] * draw.randrange(LONGER) if clauses else []
    return Example({"text": " ".join([*words, *tail]), "label": one["label"]})
