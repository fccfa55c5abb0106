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

from saccade import metrics
from saccade.data import Batch, Example, Role, Text
from saccade.data.example import TEXT_LINE
from saccade.errors import DataError, UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks.base import Defaults, Item, Task, require_tokenizer
from saccade.tasks.interface.predictions import MeasuredPrediction
from saccade.tasks.losses import lm_loss, token_nll
from saccade.tasks.needs import Needs
from saccade.tasks.neural_cache import neural_cache_nll
from saccade.tasks.records.validity import get_record_format


@dataclass(frozen=True)
class Config:
    max_tokens: int = 256
    """Window size: maximum number of tokens per window."""
    eval_overlap: int = 0
    """Overlap of evaluation windows: tokens of each window that are context and not scored. Slower; 0 disables it."""
    neural_cache: int = 0
    """Neural cache: when a text is scored, look back at this many tokens (Grave et al. 2017); 0 disables it."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    record_format: str = "none"
    """Format of the records, for `generate --check`: none, smiles, abc, protein or midi."""
    augment: Literal["none", "counterfactual"] = "none"
    """Data augmentation: counterfactual adds copies of training examples about the other group; none disables it."""


class Language(Task):
    name = "language"
    aliases = ("lm",)
    verb = "generate"
    hub_pipeline = "text-generation"
    scores_sentences = True
    predicts_per_example = False  # a text is continued as it is, and is no example of the windows that are scored
    augment_roles = ("text",)
    description = "language modeling: the next token of a text"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.CONTINUATION)
    token_template = "none"
    sample = "docs"
    is_text_stream = True
    tracks_dev_loss = False  # its score is the loss

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (TEXT_LINE,)

    @property
    def record_format(self) -> str:  # type: ignore[override]
        return "" if self.config.record_format == "none" else self.config.record_format

    @property
    def reads_sentences(self) -> bool:  # type: ignore[override]
        return not self.record_format

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))  # a second text is what the model is to write

    def fit(self, examples: Sequence[Example]) -> None:
        get_record_format(self.config.record_format)  # an unknown name is refused before anything is learnt

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Nothing; but a tokenizer that drops the border between records could never end one."""
        border = get_record_format(self.config.record_format).separator
        if border and not require_tokenizer(model).encode(border, add_special_tokens=False).ids:
            raise UsageError(
                f"task.record_format is {self.config.record_format}, whose records end with {border!r}, and a tokenizer of {self.config.tokenizer} "
                "drops that; use task.tokenizer characters, bytes or bpe."
            )

    def default_family(self) -> str:
        return "transformer_lm"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 2048, "epochs": 1})
        sizes = {"width": 256, "layers": 4, "ffn_width": 1024, "heads": 4}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 4096, "epochs": 5})

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Windows in which each token is scored once: they share a border token, and as many before it as `eval_overlap` says."""
        ids = self.encode_stream(examples, model)
        length, context = self.window_size(model), self.eval_overlap
        if not 0 <= context < length:
            raise UsageError(f"task.eval_overlap is {context}; it has to be below the {length} tokens of a window.")
        if self.neural_cache < 0:
            raise UsageError(f"task.neural_cache is {self.neural_cache}; it is a number of tokens, or 0 for none.")
        starts = range(0, max(1, len(ids) - 1 - context), length - context)
        windows = [(ids[start : start + length + 1], context if start else 0) for start in starts]
        return [Item(Example({"ids": ids, "context_tokens": known}), ids[:-1], gold=ids[1:]) for ids, known in windows]

    def encode_stream(self, examples: Sequence[Example], model: Model) -> np.ndarray:
        """All lines as one row of ids."""
        tokenizer = require_tokenizer(model)
        lines = [example["text"] for example in examples]
        rows = [np.array(found.ids, np.int32) for found in tokenizer.encode_iter(lines, add_special_tokens=False)]
        ids = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        if len(ids) < 2:
            file, line = (examples[0].file, examples[0].line) if examples else ("", 0)
            what = f"a text of {len(ids)} token{'' if len(ids) == 1 else 's'} has no next token to predict"
            hint = "give a longer text; of a text without a dev file the last tenth is held out, which also needs two tokens"
            raise DataError(what, file=file, line=line, value="".join(lines), hint=hint)
        return ids

    def find_record_starts(self, ids: np.ndarray, model: Model) -> np.ndarray | None:
        """Where records begin in a row of ids, with the border before them; None where the text is no row of records."""
        border = get_record_format(self.config.record_format).separator
        marks = require_tokenizer(model).encode(border, add_special_tokens=False).ids if border else []
        if not marks or len(ids) < len(marks):
            return None
        found = np.lib.stride_tricks.sliding_window_view(ids, len(marks)) == np.array(marks)
        return np.flatnonzero(found.all(1))

    @property
    def eval_overlap(self) -> int:
        """Tokens of a window that are read before those that are scored."""
        return self.config.eval_overlap

    @property
    def neural_cache(self) -> int:
        """Tokens behind that are looked back at when a text is scored."""
        return self.config.neural_cache

    def window_size(self, model: Model) -> int:
        return min(self.config.max_tokens, model.max_positions or self.config.max_tokens)

    def batch(self, items: Sequence[Item]) -> Batch:
        source = Text.pad([item.source.tolist() for item in items])
        target = Text.pad([item.gold.tolist() for item in items])
        return Batch(source, target, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.source) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        x, gold = self._hidden_states(model, batch)
        return lm_loss(model.body.head, x, gold)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """What each window costs in nats, its tokens and its bytes; with what `merge_answers` needs to look back."""
        tokenizer = require_tokenizer(model)
        x, gold = self._hidden_states(model, batch)
        sizes = [len(item.source) for item in batch.items]
        out = []
        for item, thought, words in zip(batch.items, x.split(sizes), gold.split(sizes), strict=True):
            known = item.example.values.get("context_tokens", 0)  # tokens that an earlier window was scored by
            nats = token_nll(model.body.head, thought[known:], words[known:])
            size = len(tokenizer.decode(words[known:].tolist(), keep_special_tokens=True).encode())
            out.append({"nats": float(nats.sum()), "tokens": len(nats), "bytes": size})
            if self.neural_cache:
                out[-1]["cache_entries"] = (thought[known:].half(), words[known:], nats)
        return out

    def merge_answers(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, float]]:
        """The same, where the windows look back at those before them; what they cost without is `nats_without_cache`."""
        if not self.neural_cache:
            return list(answers)
        x, gold, nats = (
            torch.cat(parts) for parts in zip(*(answer.pop("cache_entries") for answer in answers), strict=True)
        )
        costs = neural_cache_nll(x, gold, nats, self.neural_cache).split([answer["tokens"] for answer in answers])
        pairs = zip(answers, costs, strict=True)
        return [{**answer, "nats": float(cost.sum()), "nats_without_cache": answer["nats"]} for answer, cost in pairs]

    def _hidden_states(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """The vectors before the head and the tokens that follow, (N, W) and (N,)."""
        body = model.autoregressive_body
        text, target = batch.source, batch.target
        assert isinstance(text, Text)
        assert target is not None
        state, first = body.start(batch)
        x = body.hidden_states(first, state)
        if text.keep is None:
            return x.flatten(0, 1), target.tokens.flatten()
        return x[text.keep], target.tokens[text.keep]

    def scoring_settings(self, model: Model) -> dict[str, int]:
        found = {"window": self.window_size(model), "eval_overlap": self.eval_overlap}
        return found | ({"neural_cache": self.neural_cache} if self.neural_cache else {})

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        nats = [answer["nats"] for answer in answers]
        tokens, size = ([int(answer[key]) for answer in answers] for key in ("tokens", "bytes"))
        found = [metrics.perplexity(nats, tokens), metrics.bits_per_byte(nats, size)]
        if self.neural_cache:
            alone = metrics.perplexity([answer["nats_without_cache"] for answer in answers], tokens)
            found.append(replace(alone, name="perplexity_without_cache"))
        return found

    def to_prediction(self, answer: dict[str, float], example: Example) -> MeasuredPrediction:
        perplexity = math.exp(min(700.0, answer["nats"] / max(1, answer["tokens"])))
        summary = f"perplexity {perplexity:.2f} over {answer['tokens']} tokens"
        return MeasuredPrediction(summary, {"perplexity": perplexity} | answer)
