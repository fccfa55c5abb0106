"""Speech recognition: the text that is spoken in a recording, with the times of its words.

A model with the head `ctc` scores each token and a blank for each vector of the recording; the loss is that of CTC, which sums
over all alignments of the text to the sound (Graves et al. 2006). The padding token of the tokenizer is the blank.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Audio, Batch, Example, Role, Text
from saccade.data.example import AUDIO, TRANSCRIPT
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator
from saccade.errors import DataError
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.models.model import Model
from saccade.tasks.base import Defaults, ErrorRow, Item, Task, require_tokenizer
from saccade.tasks.interface.predictions import TimedWord, TranscriptPrediction
from saccade.tasks.losses import decoder_loss
from saccade.tasks.needs import Needs
from saccade.tasks.speech.decode import (
    CTCDecoder,
    Fusion,
    make_answer,
    rescore,
    score_memory,
    token_limit,
    write_greedily,
)
from saccade.tasks.speech.shallow_fusion import load_language_model
from saccade.tasks.speech.spectrograms import augment_audio, load_spectrograms, mel_config, pad_spectrograms

MIN_WINDOW_SHARE = 0.6  # a long recording is cut at the quietest frame of the last part of a window


@dataclass(frozen=True)
class Config:
    max_seconds: float = 30.0
    """Maximum length of a training recording in seconds; in prediction, longer ones are read in windows of this length."""
    max_tokens: int = 512
    """Maximum number of tokens per text."""
    tokenizer: str = "characters"
    """Kind of tokenizer to train: characters, bpe, unigram, wordpiece, words or bytes."""
    augment: Literal["none", "masks", "speed", "noise", "speed_noise_masks"] = "speed_noise_masks"
    """Data augmentation of the spectrograms: masks (SpecAugment), speed, noise, or all three."""
    ctc_weight: float = 0.3
    """Weight of CTC, from 0 to 1, in the loss and in the decoding of a model that also has a decoder."""
    label_smoothing: float = 0.1
    """Label smoothing of the cross-entropy loss of a decoder; 0 disables it."""
    decoding: Literal["auto", "ctc", "attention", "rescoring"] = "auto"
    """How a text is found: ctc, attention (the decoder, greedy), or rescoring of the beams of CTC by the decoder; auto is
    attention if the model has a decoder, or else ctc."""
    beam_size: int = 1
    """Number of beams of CTC decoding; 1 is greedy decoding."""
    language_model: str = ""
    """Run of the task language with a tokenizer of characters, which scores the beams of CTC (shallow fusion)."""
    lm_weight: float = 0.5
    """Weight of the language model in the score of a beam; 0 ignores it."""
    length_bonus: float = 0.5
    """Bonus for each token of a beam that a language model scores, which would prefer short texts otherwise."""
    metric: str = "wer"
    """Metric that selects the best checkpoint: wer (word error rate) or cer (character error rate)."""


class Transcribe(Task):
    name = "transcribe"
    aliases = ("asr", "speech")
    verb = "transcribe"
    gold_roles = ("text",)
    no_augment_reason = "swapping words of a text does not change what is said in the recording"
    hub_pipeline = "automatic-speech-recognition"
    metric_names = ("wer", "cer")
    description = "speech recognition: the text that is spoken in a recording"
    Config = Config
    needs = Needs(Modality.AUDIO, head="ctc")
    token_template = "t5"
    sample = "syllables"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        self._fusion: Fusion | None = None

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (AUDIO, TRANSCRIPT)

    def default_family(self) -> str:
        return "speech_encoder"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 1e-4, "batch_size": 16, "batch_tokens": 8192, "epochs": 10})
        sizes = {"width": 144, "layers": 4, "heads": 4, "ffn_width": 432, "dropout": 0.1}
        train = {"lr": 1.5e-3, "batch_size": 32, "batch_tokens": 8192, "epochs": 40, "warmup": 0.1}
        return Defaults(self.default_family(), sizes, train)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (example["text"] for example in examples if "text" in example)

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One item per recording, or, for a long one without a text, one per window; `gold` is its first frame."""
        tokenizer = require_tokenizer(model)
        limit = int(self.config.max_seconds * mel_config(model).frames_per_second)
        items = []
        for example, frames in zip(examples, load_spectrograms(examples, model), strict=True):
            if len(frames) > limit and "text" not in example:
                frames = np.asarray(frames)
                parts = pairwise(cut_at_pauses(frames, limit))
                items += [Item(example, frames[start:end], gold=start) for start, end in parts]
                continue
            if len(frames) > limit:
                raise self._too_long(example, len(frames) / mel_config(model).frames_per_second)
            target = None
            if "text" in example:
                encoding = tokenizer.encode(example["text"], max_tokens=self.config.max_tokens)
                target = np.array(encoding.ids, np.int32)
            items.append(Item(example, frames, target, gold=0))
        return items

    def _too_long(self, example: Example, seconds: float) -> DataError:
        hint = "cut it at pauses, or raise --task.max-seconds"
        problem = (
            f"the recording has {seconds:.0f} seconds, more than the {self.config.max_seconds:g} of task.max_seconds"
        )
        value = example["audio"] if isinstance(example["audio"], str) else "samples"
        return DataError(problem, file=example.file, line=example.line, column="audio", value=value, hint=hint)

    def batch(self, items: Sequence[Item]) -> Batch:
        target = None
        if all(item.target is not None for item in items):
            target = Text.pad([item.target.tolist() for item in items if item.target is not None])
        return Batch(pad_spectrograms(items), target, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.target) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if model.training:
            assert isinstance(batch.source, Audio), "a speech task takes recordings"
            batch = replace(batch, source=augment_audio(batch.source, self.config.augment, mel_config(model)))
        keep, blank = model.output_keep(batch.source), require_tokenizer(model).pad_id
        if not model.capabilities.is_autoregressive:
            return ctc_loss(model(batch), keep, batch, blank)
        state, first = model.start(batch)
        weight, smoothing = self.config.ctc_weight, self.config.label_smoothing if model.training else 0.0
        ctc = ctc_loss(score_memory(model, state), keep, batch, blank)
        return weight * ctc + (1 - weight) * decoder_loss(model, state, first, batch.target, smoothing)

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        decoder = CTCDecoder(model, self.config.beam_size, self._load_fusion(model))
        log_probs = decoder.read(batch)
        mode = self.config.decoding
        if mode == "auto":
            mode = "attention" if model.capabilities.is_autoregressive else "ctc"
        if mode == "attention":
            rows = write_greedily(model, batch, [len(row) for row in log_probs])
        elif mode == "rescoring":
            rows = rescore(model, batch, [decoder.search(row) for row in log_probs], self.config.ctc_weight)
        else:
            rows = [decoder.find_tokens(row) for row in log_probs]
        return [
            make_answer(model, tokens, row, first_frame=item.gold or 0)
            for tokens, row, item in zip(rows, log_probs, batch.items, strict=True)
        ]

    def generate(self, generator: TextGenerator, batch: Batch) -> list[list[Hypothesis]]:
        assert isinstance(batch.source, Audio), "a speech task takes recordings"
        vectors = -(-batch.source.frames.size(1) // generator.model.capabilities.stride)
        return generator.generate(batch, max_new_tokens=token_limit(generator.model, vectors))

    def _load_fusion(self, model: Model) -> Fusion | None:
        """The language model of the settings, loaded once; None if there is none."""
        name = self.config.language_model
        if not name:
            return None
        if self._fusion is None:
            scores = load_language_model(name, require_tokenizer(model))
            self._fusion = Fusion(scores, self.config.lm_weight, self.config.length_bonus)
        return self._fusion

    def merge_answers(self, answers: Sequence[dict[str, Any]], items: Sequence[Item]) -> list[dict[str, Any]]:
        merged: list[dict[str, Any]] = []
        for answer, item in zip(answers, items, strict=True):
            if item.gold:  # a further window of a long recording
                text = " ".join(filter(None, (merged[-1]["text"], answer["text"])))
                merged[-1] = {"text": text, "words": merged[-1]["words"] + answer["words"]}
            else:
                merged.append(answer)
        return merged

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        gold, texts = [example["text"] for example in examples], [answer["text"] for answer in answers]
        scores = [metrics.word_error_rate(gold, texts), metrics.character_error_rate(gold, texts)]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def to_comparable(self, answer: dict[str, Any], example: Example) -> str:
        return answer["text"]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> TranscriptPrediction:
        words = tuple(TimedWord(**word) for word in answer["words"])
        return TranscriptPrediction(
            answer["text"], words, example["audio"] if isinstance(example["audio"], str) else None
        )

    def error_row(self, answer: dict[str, Any], example: Example) -> ErrorRow | None:
        gold = " ".join(example["text"].split())
        if answer["text"] == gold:
            return None
        recording = example["audio"] if isinstance(example["audio"], str) else f"{example.file}:{example.line}"
        return ErrorRow({"recording": recording, "gold": gold, "answer": answer["text"]})


def ctc_loss(logits: Tensor, keep: Tensor | None, batch: Batch, blank: int) -> Tensor:
    """The summed loss of CTC for logits (B, L, V); the end of a text is no token of it.

    A text that needs more vectors than its recording has counts as zero: it cannot be learned.
    """
    assert batch.target is not None, "a training batch has targets"
    lengths = logits.new_full((len(logits),), logits.size(1)).long() if keep is None else keep.sum(1)
    target_lengths = batch.target.keep_mask.sum(1) - 1
    log_probs = logits.float().log_softmax(-1).transpose(0, 1)  # (L, B, V)
    tokens = batch.target.tokens
    return F.ctc_loss(log_probs, tokens, lengths, target_lengths, blank, reduction="sum", zero_infinity=True)


def cut_at_pauses(frames: np.ndarray, limit: int) -> list[int]:
    """The borders of windows of at most `limit` frames of a spectrogram (frames, mels), at quiet places.

    >>> frames = np.ones((25, 2))
    >>> frames[[7, 15]] = 0
    >>> cut_at_pauses(frames, 10)
    [0, 7, 15, 25]
    """
    borders = [0]
    while len(frames) - borders[-1] > limit:
        first = borders[-1] + max(1, int(limit * MIN_WINDOW_SHARE))
        borders.append(first + int(frames[first : borders[-1] + limit + 1].mean(1).argmin()))
    return [*borders, len(frames)]
