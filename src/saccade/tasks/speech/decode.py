"""From the vectors of a recording to its text: by CTC, by the decoder of the model, or by both; and when each word is said."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from saccade.data import Batch, Source, Text
from saccade.decoding.ctc import CTCHypothesis, TokenScores, ctc_align, ctc_beam_search, ctc_greedy
from saccade.decoding.loop import generate
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.parts.state import State
from saccade.tasks.base import require_tokenizer
from saccade.tasks.speech.spectrograms import mel_config


@dataclass(frozen=True)
class Fusion:
    """A language model that scores the beams of CTC: its scores, their weight, and the bonus for each token."""

    scores: TokenScores
    weight: float
    length_bonus: float


@dataclass(frozen=True)
class CTCDecoder:
    """The decoding of the head for CTC of a model, with a language model or without."""

    model: Model
    beam_size: int
    fusion: Fusion | None = None

    def read(self, batch: Batch) -> list[np.ndarray]:
        """The log-probabilities of each recording, (L, V), without those of padding."""
        log_probs = self.model(batch).float().log_softmax(-1)
        keep = self.model.output_keep(batch.source)
        rows = [row if keep is None else row[keep[index]] for index, row in enumerate(log_probs)]
        return [row.cpu().numpy() for row in rows]

    def find_tokens(self, log_probs: np.ndarray) -> list[int]:
        """The tokens of a recording: of the best beam, or greedy if there is one beam."""
        tokenizer = require_tokenizer(self.model)
        if self.beam_size > 1 or self.fusion is not None:
            return list(self.search(log_probs)[0].tokens)
        return _without_special_tokens(tokenizer, ctc_greedy(log_probs, tokenizer.pad_id))

    def search(self, log_probs: np.ndarray) -> list[CTCHypothesis]:
        """The beams of a recording, best first."""
        tokenizer = require_tokenizer(self.model)
        log_probs = log_probs.copy()
        log_probs[:, [tokenizer.bos_id, tokenizer.eos_id]] = -np.inf
        beam_size = max(1, self.beam_size)
        if self.fusion is None:
            return ctc_beam_search(log_probs, tokenizer.pad_id, beam_size)
        return ctc_beam_search(
            log_probs,
            tokenizer.pad_id,
            beam_size,
            score_tokens=self.fusion.scores,
            lm_weight=self.fusion.weight,
            length_bonus=self.fusion.length_bonus,
            end_token=tokenizer.eos_id,
        )


def score_memory(model: Model, state: State) -> Tensor:
    """The logits of the head for CTC for the encoded recordings of a decoder that was started, (B, L, V)."""
    assert model.head is not None, "a model for this task has the head ctc"
    return model.head(state.get("memory"), state.get("memory_keep"))


def token_limit(model: Model, vectors: int) -> int:
    """The most tokens of the text of a recording: one for each vector, and the end, but no more than the model has positions."""
    return min(vectors + 1, model.max_positions or vectors + 1)


def write_greedily(model: Model, batch: Batch, vectors: Sequence[int]) -> list[list[int]]:
    """The tokens that the decoder writes for each recording, at most one for each of its `vectors`."""
    _require_decoder(model)
    tokenizer = require_tokenizer(model)
    rows = generate(model, batch, stop_ids=tokenizer.eos_id, max_new_tokens=token_limit(model, max(vectors)))
    return [_without_special_tokens(tokenizer, row[:count]) for row, count in zip(rows, vectors, strict=True)]


def rescore(model: Model, batch: Batch, beams: Sequence[Sequence[CTCHypothesis]], ctc_weight: float) -> list[list[int]]:
    """The best of the beams of each recording by CTC and decoder together (Watanabe et al. 2017; two-pass rescoring)."""
    _require_decoder(model)
    chosen = []
    for index, beam in enumerate(beams):
        texts = [hypothesis.tokens for hypothesis in beam]
        decoder_scores = score_texts(model, batch.source.row(index), texts)
        scores = [
            ctc_weight * hypothesis.score + (1 - ctc_weight) * score
            for hypothesis, score in zip(beam, decoder_scores, strict=True)
        ]
        chosen.append(list(texts[int(np.argmax(scores))]))
    return chosen


def score_texts(model: Model, recording: Source, texts: Sequence[Sequence[int]]) -> list[float]:
    """The log-probability of each of several texts of one recording by the decoder, their ends included."""
    state, first = model.start(Batch(recording))
    state.expand_rows(len(texts))
    target = Text.pad([[*text, require_tokenizer(model).eos_id] for text in texts])
    tokens = torch.cat([first.tokens.expand(len(texts), -1), target.tokens[:, :-1]], dim=1)
    keep = torch.cat([target.keep_mask[:, :1], target.keep_mask[:, :-1]], dim=1)
    log_probs = model.step(Text(tokens, keep), state).float().log_softmax(-1)
    chosen = log_probs.gather(2, target.tokens[..., None])[..., 0]
    return (chosen * target.keep_mask).sum(1).tolist()


def make_answer(model: Model, tokens: Sequence[int], log_probs: np.ndarray, first_frame: int = 0) -> dict[str, Any]:
    """The text of one recording, or of a window that begins at `first_frame`, with the times of its words in seconds."""
    tokenizer, config = require_tokenizer(model), mel_config(model)
    text = " ".join(tokenizer.decode(list(tokens)).split())
    try:
        spans = ctc_align(log_probs, tokens, tokenizer.pad_id)
    except ValueError:  # a decoder may write more than there is time for
        return {"text": text, "words": []}
    to_seconds = lambda vector: (first_frame + vector * model.capabilities.stride) / config.frames_per_second
    times = [(to_seconds(start), to_seconds(end)) for start, end in spans]
    return {"text": text, "words": time_words(tokenizer, tokens, times)}


def time_words(tokenizer: Any, tokens: Sequence[int], times: Sequence[tuple[float, float]]) -> list[dict[str, Any]]:
    """The words of a text, each with the start of its first token and the end of its last one, in seconds."""
    words: list[dict[str, Any]] = []
    is_open, length = False, 0
    for index, (start, end) in enumerate(times):
        text = tokenizer.decode(list(tokens[: index + 1]))
        for character in text[length:]:
            if character.isspace():
                is_open = False
                continue
            if not is_open:
                words.append({"text": "", "start": round(start, 3), "end": 0.0})
            words[-1]["text"] += character
            words[-1]["end"], is_open = round(end, 3), True
        length = len(text)
    return words


def _without_special_tokens(tokenizer: Any, tokens: Sequence[int]) -> list[int]:
    special = {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    return [token for token in tokens if token not in special]


def _require_decoder(model: Model) -> None:
    if not model.capabilities.is_autoregressive:
        raise UsageError(
            f"{model.family.name} has no decoder; use task.decoding ctc, or train listen_attend_spell or speech_transformer."
        )
