"""Image captioning: one generated caption per image, trained on images with one or several captions."""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.attention.normalizer import Hard
from saccade.attention.reinforce import record_draws, reinforce_loss
from saccade.data import Batch, Example, Image, Role, Text
from saccade.data.example import CAPTION, IMAGE
from saccade.decoding.beam import Hypothesis
from saccade.decoding.generator import TextGenerator
from saccade.decoding.loop import generate, teacher_forced_logits
from saccade.metrics import Score
from saccade.models.capabilities import Generates, Modality
from saccade.models.model import Model
from saccade.tasks.base import BaselineMethod, Defaults, ErrorRow, Item, Task, require_tokenizer
from saccade.tasks.baselines.sequences import caption_baselines
from saccade.tasks.interface.predictions import TextPrediction
from saccade.tasks.label import image_shape
from saccade.tasks.losses import seq2seq_loss
from saccade.tasks.needs import Needs
from saccade.vision.pixels import lazy_pixels, load_pixels

IMAGE_SIZES = (32, 64, 128)  # pixels per side of the input of a new model; larger images are downscaled
CELLS_PER_SIDE = 4  # rows and columns of the grid of image features


@dataclass(frozen=True)
class Config:
    max_caption_tokens: int = 64
    """Maximum number of tokens per caption, in training and generation."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    label_smoothing: float = 0.1
    """Label smoothing of the cross-entropy loss; 0 disables it."""
    metric: str = "cider"
    """Metric that selects the best checkpoint: cider, bleu or exact_match."""


class Caption(Task):
    name = "caption"
    verb = "caption"
    gold_roles = ("caption",)
    no_augment_reason = "swapping words of a caption does not change the people in the image"
    hub_pipeline = "image-to-text"
    metric_names = ("cider", "bleu", "exact_match")
    description = "image captioning: a text that describes an image"
    Config = Config
    needs = Needs(Modality.IMAGE, Generates.TARGET)
    token_template = "t5"
    sample = "scenes"

    @property
    def token_limit(self) -> int:
        return self.config.max_caption_tokens

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (IMAGE, CAPTION)

    def default_family(self) -> str:
        return "captioner_transformer"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 3e-4, "batch_size": 64, "batch_tokens": 4096, "epochs": 3})
        return Defaults(
            self.default_family(),
            infer_image_sizes(examples[0]["image"])
            | {"width": 96, "layers": 1, "ffn_width": 256, "block_type": "plain", "dropout": 0.0},
            {"lr": 2e-3, "batch_size": 32, "batch_tokens": 4096, "epochs": 18},
        )

    def baselines(self) -> Sequence[BaselineMethod]:
        return caption_baselines(get_captions)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (text for example in examples for text in get_captions(example))

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One item per caption for training; `gold` is the index of the caption, and only index 0 is captioned in prediction."""
        shape = image_shape(model)
        out: list[Item] = []
        images = iter(lazy_pixels([example["image"] for example in examples], shape))
        for start in range(0, len(examples), 1000):
            chunk = examples[start : start + 1000]
            targets = self._encode_captions([text for example in chunk for text in get_captions(example)], model)
            for example in chunk:
                image: Any = next(images)
                count = max(1, len(get_captions(example)))
                out += [Item(example, image, target=next(targets, None), gold=index) for index in range(count)]
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        stacked = torch.from_numpy(np.stack([item.source for item in items]))
        target = None
        if all(item.target is not None for item in items):
            target = Text.pad([item.target.tolist() for item in items if item.target is not None])
        return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), target, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return sum(len(item.target) for item in batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        if model.training and any(isinstance(module, Hard) for module in model.modules()):
            return reinforced_caption_loss(model, batch, self.config.label_smoothing)
        return seq2seq_loss(model, batch, self.config.label_smoothing if model.training else 0.0)

    def answer(self, model: Model, batch: Batch) -> list[str | None]:
        """The caption of each image; None for items of an image's further captions."""
        tokenizer = require_tokenizer(model).target
        assert isinstance(batch.source, Image)
        rows = [index for index, item in enumerate(batch.items) if not item.gold]
        out: list[str | None] = [None] * len(batch.items)
        if rows:
            images = Batch(Image(batch.source.pixels[rows]))
            token_rows = generate(
                model,
                images,
                stop_ids=tokenizer.eos_id,
                max_new_tokens=_max_caption_tokens(model, self.config.max_caption_tokens),
            )
            for index, tokens in zip(rows, token_rows, strict=True):
                out[index] = tokenizer.decode(tokens)
        return out

    def generate(self, generator: TextGenerator, batch: Batch) -> list[list[Hypothesis]]:
        assert isinstance(batch.source, Image)
        rows = [index for index, item in enumerate(batch.items) if not item.gold]
        out: list[list[Hypothesis]] = [[] for _ in batch.items]
        if rows:
            images = Batch(Image(batch.source.pixels[rows]))
            for index, hypotheses in zip(
                rows, generator.generate(images, max_new_tokens=self._generation_limit(generator)), strict=True
            ):
                out[index] = hypotheses
        return out

    def _generation_limit(self, generator: TextGenerator) -> int:
        """Maximum tokens of a caption: set by the user, limited by the model's positions, or from the settings."""
        limit, max_positions = generator.decoding.max_new_tokens, generator.model.max_positions
        if limit is None:
            return _max_caption_tokens(generator.model, self.config.max_caption_tokens)
        if max_positions is None or limit <= max_positions:
            return limit
        self.notes = (
            f"--max-new-tokens {limit}: captions have at most {max_positions} tokens, the model's positions.",
        )
        return max_positions

    def merge_answers(self, answers: Sequence[str | None], items: Sequence[Item]) -> list[str]:
        return [answer or "" for answer, item in zip(answers, items, strict=True) if not item.gold]

    def score(self, answers: Sequence[str], examples: Sequence[Example]) -> list[Score]:
        """Scores per image; the references of an image in several records are the captions of all of them."""
        answer_by_image: dict[str, str] = {}
        gold_by_image: dict[str, list[str]] = {}
        for answer, example in zip(answers, examples, strict=True):
            key = _image_key(example["image"])
            answer_by_image.setdefault(key, answer)
            gold_by_image.setdefault(key, []).extend(get_captions(example))
        gold, predictions = list(gold_by_image.values()), list(answer_by_image.values())
        scores = [
            metrics.cider(gold, predictions),
            metrics.bleu(gold, predictions),
            metrics.exact_match(gold, predictions),
        ]
        return sorted(scores, key=lambda score: score.name != self.config.metric)

    def to_prediction(self, answer: str, example: Example) -> TextPrediction:
        return TextPrediction(answer, image=example["image"] if isinstance(example["image"], str) else None)

    def error_row(self, answer: str, example: Example) -> ErrorRow | None:
        gold = get_captions(example)
        if answer in gold:
            return None
        image = example["image"] if isinstance(example["image"], str) else f"{example.file}:{example.line}"
        return ErrorRow({"picture": image, "gold": " / ".join(gold), "answer": answer})

    def _encode_captions(self, texts: Sequence[str], model: Model) -> Iterator[np.ndarray]:
        if not texts:
            return iter(())
        limit = _max_caption_tokens(model, self.config.max_caption_tokens)
        encodings = require_tokenizer(model).target.encode_iter(list(texts), max_tokens=limit)
        return (np.array(encoding.ids, np.int32) for encoding in encodings)


def get_captions(example: Example) -> list[str]:
    """All captions of an image; an empty list if it has none.

    >>> get_captions(Example({"caption": "a dog"})), get_captions(Example({"caption": ["a dog", "a pup"]}))
    (['a dog'], ['a dog', 'a pup'])
    >>> get_captions(Example({}))
    []
    """
    captions = example.values.get("caption", [])
    return [captions] if isinstance(captions, str) else list(captions)


def infer_image_sizes(image: str | np.ndarray) -> dict[str, int]:
    """Channels, image size and cell size for an image: the smallest of IMAGE_SIZES that holds it, in CELLS_PER_SIDE rows."""
    channels, rows, columns = load_pixels(image).shape
    size = next((side for side in IMAGE_SIZES if side >= max(rows, columns)), IMAGE_SIZES[-1])
    return {"channels": channels, "image_size": size, "cell_size": size // CELLS_PER_SIDE}


def reinforced_caption_loss(model: Model, batch: Batch, label_smoothing: float) -> Tensor:
    """The summed loss of a model with hard attention: cross-entropy of the captions plus REINFORCE for the sampled attention.

    The reward of a caption is its mean log-probability, and the baseline the mean of the batch.
    """
    target = batch.target
    assert target is not None, "a training batch has targets"
    with record_draws(model) as log:
        logits = teacher_forced_logits(model, batch)
    keep = target.keep_mask
    token_loss = (
        F.cross_entropy(logits.transpose(1, 2), target.tokens, reduction="none", label_smoothing=label_smoothing) * keep
    )
    reward = -(token_loss.sum(1) / keep.sum(1)).detach()
    return token_loss.sum() + len(reward) * reinforce_loss(log, reward, reward.mean())


def _max_caption_tokens(model: Model, max_caption_tokens: int) -> int:
    """Maximum tokens of a caption: the setting, limited by the model's positions."""
    return min(max_caption_tokens, model.config.max_positions)


def _image_key(image: str | bytes | np.ndarray) -> str:
    if isinstance(image, str):
        return image
    if isinstance(image, bytes):
        return hashlib.blake2b(image, digest_size=12).hexdigest()
    return hashlib.blake2b(image.tobytes(), digest_size=12).hexdigest() + str(image.shape)
