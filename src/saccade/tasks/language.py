"""The next token of a running text, by characters, bytes or sub-words: prose, music, molecules, code.

The text is one long row of ids. A batch is a handful of windows of it; what a window is asked for is each of its tokens but
the first and the one after it, so that every token is learnt once an epoch.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from saccade.data import Batch, Example, Role, Text
from saccade.data.item import LINE
from saccade.errors import DataError, UsageError
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks import metrics
from saccade.tasks.losses import word_costs, word_loss
from saccade.tasks.metrics import Score
from saccade.tasks.needs import Needs
from saccade.tasks.recall import recalled
from saccade.tasks.task import Choices, Item, Task, need_tokenizer
from saccade.tasks.validity import kind_of


@dataclass(frozen=True)
class Config:
    length: int = 256  # tokens of a window
    context: int = 0  # of those, so many are read before the ones that are scored: slower, says what is known mid-text
    recall: int = 0  # when a text is scored, so many tokens behind are looked back at (Grave et al. 2017)
    pieces: str = "auto"  # of a new tokenizer: bpe, wordpiece, unigram, words, characters or bytes
    check: str = "none"  # what each record is, for `generate --check`: none, smiles, abc, protein or midi
    augment: Literal["none", "swap"] = "none"  # twins of the training examples, about the other group, join them


class Language(Task):
    name = "language"
    aliases = ("lm",)
    verb = "generate"
    hub_pipeline = "text-generation"
    scores_sentences = True
    answers_questions = False  # a text is continued as it is, and is no example of the windows that are scored
    exchanged = ("text",)
    said = "the next word, character or byte of a running text"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.CONTINUATION)
    frame = "none"
    sample = "docs"
    running = True
    tracks_dev_loss = False  # its score is the loss

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (LINE,)

    @property
    def writes_records(self) -> str:  # type: ignore[override]
        return "" if self.config.check == "none" else self.config.check

    @property
    def reads_sentences(self) -> bool:  # type: ignore[override]
        return not self.writes_records

    def name_texts(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))  # a second text is what the model is to write

    def fit(self, examples: Sequence[Example]) -> None:
        kind_of(self.config.check)  # an unknown name is refused before anything is learnt

    def teach(self, model: Model, examples: Sequence[Example]) -> None:
        """Nothing; but a tokenizer that drops the border between records could never end one."""
        border = kind_of(self.config.check).border
        if border and not need_tokenizer(model).encode(border, special=False).ids:
            raise UsageError(
                f"task.check is {self.config.check}, whose records end with {border!r}, and a tokenizer of {self.config.pieces} "
                "drops that; use task.pieces characters, bytes or bpe."
            )

    def usual(self) -> str:
        return "transformer_language"

    def choices(self, examples: Sequence[Example], pretrained: bool) -> Choices:
        if pretrained:
            return Choices("", train={"rate": 1e-4, "tokens": 2048, "epochs": 1})
        sizes = {"width": 256, "layers": 4, "inner": 1024, "heads": 4}
        return Choices(self.usual(), sizes, {"rate": 1e-3, "tokens": 4096, "epochs": 5})

    def texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def items(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Windows in which each token is scored once: they share a border token, and as many before it as `context` says."""
        ids = self.ids(examples, model)
        length, context = self.window(model), self.context
        if not 0 <= context < length:
            raise UsageError(f"task.context is {context}; it has to be below the {length} tokens of a window.")
        if self.recall < 0:
            raise UsageError(f"task.recall is {self.recall}; it is a number of tokens, or 0 for none.")
        starts = range(0, max(1, len(ids) - 1 - context), length - context)
        windows = [(ids[start : start + length + 1], context if start else 0) for start in starts]
        return [Item(Example({"ids": ids, "known": known}), ids[:-1], gold=ids[1:]) for ids, known in windows]

    def ids(self, examples: Sequence[Example], model: Model) -> np.ndarray:
        """All lines as one row of ids."""
        tokenizer = need_tokenizer(model)
        lines = [example["text"] for example in examples]
        rows = [np.array(found.ids, np.int32) for found in tokenizer.encode_each(lines, special=False)]
        ids = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        if len(ids) < 2:
            file, line = (examples[0].file, examples[0].line) if examples else ("", 0)
            what = f"a text of {len(ids)} token{'' if len(ids) == 1 else 's'} has no next token to predict"
            cure = "give a longer text; of a text without a dev file the last tenth is held out, which also needs two tokens"
            raise DataError(what, file=file, line=line, value="".join(lines), cure=cure)
        return ids

    def begins(self, ids: np.ndarray, model: Model) -> np.ndarray | None:
        """Where records begin in a row of ids, with the border before them; None where the text is no row of records."""
        border = kind_of(self.config.check).border
        marks = need_tokenizer(model).encode(border, special=False).ids if border else []
        if not marks or len(ids) < len(marks):
            return None
        found = np.lib.stride_tricks.sliding_window_view(ids, len(marks)) == np.array(marks)
        return np.flatnonzero(found.all(1))

    @property
    def context(self) -> int:
        """Tokens of a window that are read before those that are scored."""
        return self.config.context

    @property
    def recall(self) -> int:
        """Tokens behind that are looked back at when a text is scored."""
        return self.config.recall

    def window(self, model: Model) -> int:
        return min(self.config.length, model.limit or self.config.length)

    def batch(self, items: Sequence[Item]) -> Batch:
        source = Text.of([item.source.tolist() for item in items])
        target = Text.of([item.gold.tolist() for item in items])
        return Batch(source, target, rows=list(items))

    def count(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.rows)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        x, gold = self._thought(model, batch)
        return word_loss(model.body.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """What each window costs in nats, its tokens and its bytes; with what `gathered` needs to look back."""
        tokenizer = need_tokenizer(model)
        x, gold = self._thought(model, batch)
        sizes = [len(item.source) for item in batch.rows]
        out = []
        for item, thought, words in zip(batch.rows, x.split(sizes), gold.split(sizes), strict=True):
            known = item.example.values.get("known", 0)  # tokens that an earlier window was scored by
            nats = word_costs(model.body.head, thought[known:], words[known:])
            size = len(tokenizer.decode(words[known:].tolist(), special=True).encode())
            out.append({"nats": float(nats.sum()), "tokens": len(nats), "bytes": size})
            if self.recall:
                out[-1]["seen"] = (thought[known:].half(), words[known:], nats)
        return out

    def gathered(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, float]]:
        """The same, where the windows look back at those before them; what they cost without is `alone`."""
        if not self.recall:
            return list(answers)
        x, gold, nats = (torch.cat(parts) for parts in zip(*(answer.pop("seen") for answer in answers), strict=True))
        costs = recalled(x, gold, nats, self.recall).split([answer["tokens"] for answer in answers])
        pairs = zip(answers, costs, strict=True)
        return [{**answer, "nats": float(cost.sum()), "alone": answer["nats"]} for answer, cost in pairs]

    def _thought(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vectors before the head and the tokens that follow, (N, W) and (N,)."""
        body = model.autoregressive
        text, target = batch.source, batch.target
        assert isinstance(text, Text)
        assert target is not None
        state, first = body.start(batch)
        x = body.think(first, state)
        if text.keep is None:
            return x.flatten(0, 1), target.tokens.flatten()
        return x[text.keep], target.tokens[text.keep]

    def scoring_settings(self, model: Model) -> dict[str, int]:
        found = {"window": self.window(model), "context": self.context}
        return found | ({"recall": self.recall} if self.recall else {})

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        nats = [answer["nats"] for answer in answers]
        tokens, size = ([int(answer[key]) for answer in answers] for key in ("tokens", "bytes"))
        found = [metrics.perplexity(nats, tokens), metrics.bits_per_byte(nats, size)]
        if self.recall:
            alone = metrics.perplexity([answer["alone"] for answer in answers], tokens)
            found.append(replace(alone, name="perplexity_without_recall"))
        return found

    def shown(self, answer: dict[str, float], example: Example) -> dict[str, Any]:
        return {"perplexity": math.exp(min(700.0, answer["nats"] / max(1, answer["tokens"])))} | answer

    def told(self, shown: dict[str, Any]) -> str:
        return f"perplexity {shown['perplexity']:.2f} over {shown['tokens']} tokens"
