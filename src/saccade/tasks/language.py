"""Language modeling: next-token prediction over characters, bytes or subwords, for prose, music, molecules or code.

The text is one long sequence of ids, cut into windows. The targets of a window are its ids shifted by one, so that every token is
predicted once per epoch.
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
from saccade.tasks.base import BaselineMethod, Defaults, Item, Task, require_tokenizer
from saccade.tasks.baselines.language import language_baselines
from saccade.tasks.interface.predictions import MeasuredPrediction
from saccade.tasks.losses import lm_loss, token_nll
from saccade.tasks.needs import Needs
from saccade.tasks.neural_cache import neural_cache_nll
from saccade.tasks.records.validity import get_record_format


@dataclass(frozen=True)
class Config:
    max_tokens: int = 256
    """Window size: maximum number of tokens that the model reads at one time."""
    eval_overlap: int = 0
    """Overlap of evaluation windows: tokens of each window that are context and not scored. Slower; 0 disables it."""
    neural_cache: int = 0
    """Neural cache: mix in a cache of this many preceding tokens when a text is scored (Grave et al. 2017); 0 disables it."""
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
    predicts_per_example = False  # examples are windows of a text
    augment_roles = ("text",)
    description = "language modeling: the next token of a text"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.CONTINUATION)
    token_template = "none"
    sample = "docs"
    is_text_stream = True
    tracks_dev_loss = False  # the metric, perplexity, is the loss
    baseline_metric = "bits_per_byte"  # which does not depend on the tokenizer

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (TEXT_LINE,)

    @property
    def record_format(self) -> str:  # type: ignore[override]
        return "" if self.config.record_format == "none" else self.config.record_format

    @property
    def reads_sentences(self) -> bool:  # type: ignore[override]
        return not self.record_format

    def make_record(self, *texts: str) -> dict[str, Any]:
        return dict(zip(("source", "target"), texts, strict=False))  # a second text is the target

    def fit(self, examples: Sequence[Example]) -> None:
        get_record_format(self.config.record_format)  # raises an error for an unknown name before training

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Check that the tokenizer keeps the separator of records, without which a model could not end one."""
        separator = get_record_format(self.config.record_format).separator
        if separator and not require_tokenizer(model).encode(separator, add_special_tokens=False).ids:
            raise UsageError(
                f"task.record_format is {self.config.record_format}, whose records end with {separator!r}, but the "
                f"{self.config.tokenizer} tokenizer drops it; use task.tokenizer characters, bytes or bpe."
            )

    def default_family(self) -> str:
        return "transformer_lm"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_tokens": 2048, "epochs": 1})
        sizes = {"width": 256, "layers": 4, "ffn_width": 1024, "heads": 4}
        return Defaults(self.default_family(), sizes, {"lr": 1e-3, "batch_tokens": 4096, "epochs": 5})

    def baselines(self) -> Sequence[BaselineMethod]:
        return language_baselines()

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """Evaluation windows in which each token is scored once; each begins with `eval_overlap` tokens of context."""
        ids = self.encode_stream(examples, model)
        window, context = self.window_size(model), self.eval_overlap
        if not 0 <= context < window:
            raise UsageError(f"task.eval_overlap is {context}; it must be below the window size of {window} tokens.")
        if self.neural_cache < 0:
            raise UsageError(f"task.neural_cache is {self.neural_cache}; give a number of tokens, or 0 to disable it.")
        starts = range(0, max(1, len(ids) - 1 - context), window - context)
        windows = [(ids[start : start + window + 1], context if start else 0) for start in starts]
        return [
            Item(Example({"ids": ids, "context_tokens": context_tokens}), ids[:-1], gold=ids[1:])
            for ids, context_tokens in windows
        ]

    def encode_stream(self, examples: Sequence[Example], model: Model) -> np.ndarray:
        """All lines as one sequence of ids."""
        tokenizer = require_tokenizer(model)
        lines = [example["text"] for example in examples]
        rows = [np.array(encoding.ids, np.int32) for encoding in tokenizer.encode_iter(lines, add_special_tokens=False)]
        ids = np.concatenate(rows) if rows else np.zeros(0, np.int32)
        if len(ids) < 2:
            file, line = (examples[0].file, examples[0].line) if examples else ("", 0)
            problem = f"a text of {len(ids)} token{'' if len(ids) == 1 else 's'} has no next token to predict"
            hint = "give a longer text; without a dev file its last tenth is held out, which also needs two tokens"
            raise DataError(problem, file=file, line=line, value="".join(lines), hint=hint)
        return ids

    def find_record_starts(self, ids: np.ndarray, model: Model) -> np.ndarray | None:
        """Indices where records begin in a sequence of ids, at the separator before them; None if it has no records."""
        separator = get_record_format(self.config.record_format).separator
        pattern = require_tokenizer(model).encode(separator, add_special_tokens=False).ids if separator else []
        if not pattern or len(ids) < len(pattern):
            return None
        matches = np.lib.stride_tricks.sliding_window_view(ids, len(pattern)) == np.array(pattern)
        return np.flatnonzero(matches.all(1))

    @property
    def eval_overlap(self) -> int:
        """Number of context tokens at the beginning of an evaluation window."""
        return self.config.eval_overlap

    @property
    def neural_cache(self) -> int:
        """Size of the neural cache in tokens; 0 disables it."""
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
        """The negative log-likelihood of each window in nats, its tokens and bytes, and the entries of the neural cache."""
        tokenizer = require_tokenizer(model)
        x, gold = self._hidden_states(model, batch)
        sizes = [len(item.source) for item in batch.items]
        out = []
        for item, hidden, targets in zip(batch.items, x.split(sizes), gold.split(sizes), strict=True):
            context = item.example.values.get("context_tokens", 0)  # context tokens, which an earlier window scored
            nats = token_nll(model.body.head, hidden[context:], targets[context:])
            byte_count = len(tokenizer.decode(targets[context:].tolist(), keep_special_tokens=True).encode())
            out.append({"nats": float(nats.sum()), "tokens": len(nats), "bytes": byte_count})
            if self.neural_cache:
                out[-1]["cache_entries"] = (hidden[context:].half(), targets[context:], nats)
        return out

    def merge_answers(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, float]]:
        """The answers rescored with the neural cache over all windows; `nats_without_cache` is the value without it."""
        if not self.neural_cache:
            return list(answers)
        x, gold, nats = (
            torch.cat(parts) for parts in zip(*(answer.pop("cache_entries") for answer in answers), strict=True)
        )
        nll = neural_cache_nll(x, gold, nats, self.neural_cache).split([answer["tokens"] for answer in answers])
        pairs = zip(answers, nll, strict=True)
        return [
            {**answer, "nats": float(window_nll.sum()), "nats_without_cache": answer["nats"]}
            for answer, window_nll in pairs
        ]

    def _hidden_states(self, model: Model, batch: Batch) -> tuple[Tensor, Tensor]:
        """The hidden states before the head and their target tokens, (N, W) and (N,)."""
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
        settings = {"window": self.window_size(model), "eval_overlap": self.eval_overlap}
        return settings | ({"neural_cache": self.neural_cache} if self.neural_cache else {})

    def score(self, answers: Sequence[dict[str, float]], examples: Sequence[Example]) -> list[Score]:
        nats = [answer["nats"] for answer in answers]
        tokens, byte_counts = ([int(answer[key]) for answer in answers] for key in ("tokens", "bytes"))
        scores = [metrics.perplexity(nats, tokens), metrics.bits_per_byte(nats, byte_counts)]
        if self.neural_cache:
            without_cache = metrics.perplexity([answer["nats_without_cache"] for answer in answers], tokens)
            scores.append(replace(without_cache, name="perplexity_without_cache"))
        return scores

    def to_prediction(self, answer: dict[str, float], example: Example) -> MeasuredPrediction:
        perplexity = math.exp(min(700.0, answer["nats"] / max(1, answer["tokens"])))
        summary = f"perplexity {perplexity:.2f} over {answer['tokens']} tokens"
        return MeasuredPrediction(summary, {"perplexity": perplexity} | answer)
