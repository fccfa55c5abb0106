"""A picture of what a text says: an autoencoder learns pictures as codes, then a painter learns to write codes after words.

Both learn in one run. In the first part of its steps the loss is that of the autoencoder, the squared error of pictures that
come out of it; from then on it stays as it is, and the loss is the painter's, nats per code. Which part a step belongs to is
a function of its number, so a run goes on where it stopped.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from saccade.data import Batch, Example, Role, Text
from saccade.data.example import CAPTION, IMAGE
from saccade.decoding.loop import SamplerFunction, generate, teacher_forced_logits
from saccade.decoding.sampling import greedy
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Generates, Modality
from saccade.models.families.dalle import DallE
from saccade.models.model import Model
from saccade.tasks.base import Defaults, Item, Task, encode_texts, pad_sources
from saccade.tasks.caption import get_captions
from saccade.tasks.interface.predictions import ImagePrediction
from saccade.tasks.needs import Needs
from saccade.tasks.paint_pictures import PerRowSampler, from_png, require_dalle, row_seeds, to_png
from saccade.vision.pixels import lazy_pixels, load_pixels
from saccade.vision.vqvae import GumbelQuantizer, VectorQuantizer

IMAGE_SIZES = (32, 64)  # rows and columns of what a new model paints; larger pictures are scaled down
CODES_PER_SIDE = 8  # rows and columns of codes
MAX_IMAGES_FOR_MEAN = 256  # pictures whose mean colour is taken
MIN_GUMBEL_TEMPERATURE = 1 / 16  # the heat of a Gumbel choice when the autoencoder has learnt
DEAD_CODE_RESET_INTERVAL = 20  # steps, after which codes that are never chosen are moved
MAX_LOGITS_PER_CHUNK = 2**24  # of codes that exist at one time when answers are weighed


@dataclass(frozen=True)
class Config:
    max_tokens: int = 64
    """Maximum number of tokens per text; longer texts are truncated."""
    tokenizer: str = "auto"
    """Kind of tokenizer to train: bpe, wordpiece, unigram, words, characters or bytes; auto chooses by the data."""
    autoencoder_fraction: float = 0.3
    """Fraction of the training steps that train the autoencoder; the others train the text-to-image decoder."""
    temperature: float = 0.5
    """Sampling temperature of the image codes; 0 is greedy decoding."""
    seed: int = 0
    """Random seed of sampling: another seed gives another image."""


class PaintGold(NamedTuple):
    """Which of an example's texts it is, and the picture that all of them speak of, where it is known."""

    caption_index: int
    image: np.ndarray | None  # bytes (channels, rows, columns)


class Paint(Task):
    name = "paint"
    aliases = ("text-to-image",)
    verb = "paint"
    gold_roles = ("image",)
    no_augment_reason = "the people in a picture stay who they are"
    hub_pipeline = "text-to-image"
    needs_unsplit_batch = True  # codes that nobody uses are moved to what a whole step has seen
    tracks_dev_loss = False  # its loss is of two kinds, one after the other
    description = "text-to-image generation: an image of what a text describes"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.IMAGE_CODES)
    token_template = "none"
    sample = "shapes"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if not 0 <= self.config.autoencoder_fraction < 1 or self.config.temperature < 0:
            raise UsageError(
                f"task.autoencoder_fraction is a share of the steps below 1, and task.temperature 0 or more; got {self.config.autoencoder_fraction} "
                f"and {self.config.temperature}."
            )
        self.trains_autoencoder = False  # the autoencoder learns, not the painter
        self.resets_dead_codes = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (CAPTION, IMAGE)

    def fit(self, examples: Sequence[Example]) -> None:
        share = f"{self.config.autoencoder_fraction:.0%}"
        self.notes = (f"the first {share} of the steps learn the codes of pictures, all others to paint with them",)

    def default_family(self) -> str:
        return "dalle"

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        if pretrained:
            return Defaults("", train={"lr": 3e-4, "batch_size": 32, "batch_tokens": 4096, "epochs": 5})
        channels, rows, columns = load_pixels(examples[0]["image"]).shape
        size = next((side for side in IMAGE_SIZES if side >= max(rows, columns)), IMAGE_SIZES[-1])
        sizes = {
            "channels": channels,
            "image_size": size,
            "cell_size": size // CODES_PER_SIDE,
            "codebook_size": 512,
            "code_width": 16,
        }
        sizes |= {"quantizer": "nearest", "width": 128, "layers": 3, "ffn_width": 512, "dropout": 0.0}
        return Defaults(
            self.default_family(), sizes, {"lr": 2e-3, "batch_size": 16, "batch_tokens": 4096, "epochs": 20}
        )

    def prepare_model(self, model: Model, examples: Sequence[Example]) -> None:
        """Let the autoencoder begin with pictures of the mean colour: from grey its output soon stands still at white."""
        body, some = require_dalle(model), examples[:: max(1, len(examples) // MAX_IMAGES_FOR_MEAN)]
        shape = (model.config.channels, None, None)
        colour = np.mean([load_pixels(example["image"], shape).mean((1, 2)) for example in some], axis=0) / 255
        last = body.autoencoder.up[-1]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        last.bias.data.copy_(torch.logit(torch.from_numpy(colour), eps=0.01))

    def before_step(self, model: Model, step: int, total_steps: int) -> None:
        last = round(self.config.autoencoder_fraction * total_steps)
        self.trains_autoencoder = step < last
        choice = require_dalle(model).autoencoder.choice
        if isinstance(choice, GumbelQuantizer) and self.trains_autoencoder:
            choice.temperature = MIN_GUMBEL_TEMPERATURE ** (step / last)
        self.resets_dead_codes = (
            self.trains_autoencoder and isinstance(choice, VectorQuantizer) and step % DEAD_CODE_RESET_INTERVAL == 0
        )

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (text for example in examples for text in get_captions(example))

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One for each text, so that each is learnt; of one example only the first is painted."""
        body, sizes = require_dalle(model), model.config
        read = encode_texts(
            [text for e in examples for text in get_captions(e)],
            model,
            min(self.config.max_tokens, sizes.max_positions),
        )
        shape = (sizes.channels, body.grid_size * sizes.cell_size, body.grid_size * sizes.cell_size)
        out: list[Item] = []
        pictures: Iterator[Any] = iter(lazy_pixels([e["image"] for e in examples if "image" in e], shape))
        for example in examples:
            seen = next(pictures) if "image" in example else None
            for number in range(len(get_captions(example))):
                out.append(Item(example, next(read)[0], gold=PaintGold(number, seen)))
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold.image is not None for item in items):
            gold = torch.from_numpy(np.stack([item.gold.image for item in items])).float().div_(255)
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        body, seen = require_dalle(model), batch.gold
        assert seen is not None, "a batch to learn from has pictures"
        if self.trains_autoencoder:
            return self._autoencoder_loss(body, seen) * len(seen)
        body.autoencoder.eval()  # it has learnt: its norms stay as they are too
        target = body.encode_image(seen)
        scores = teacher_forced_logits(model, Batch(batch.source, target))
        return F.cross_entropy(scores.flatten(0, 1), target.tokens.flatten(), reduction="sum") / body.codes_per_image

    def _autoencoder_loss(self, body: DallE, images: Tensor) -> Tensor:
        """What the autoencoder loses for each code: the squared error of the numbers that it stands for, and its choice.

        The error counts in units of the pictures' variance. Where most of a picture is ground the variance is small, and the
        cost of choosing would otherwise outweigh the picture.
        """
        if self.resets_dead_codes:
            assert isinstance(body.autoencoder.choice, VectorQuantizer)
            with torch.no_grad():
                body.autoencoder.choice.reset_dead_codes(body.autoencoder.encode_features(images))
        made, loss = body.autoencoder(images)
        error = F.mse_loss(made, images)
        return (loss - error + error / images.var().clamp(min=1e-6)) * images[0].numel() / body.codes_per_image

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any] | None]:
        """A picture for each text, as PNG in base64; where the true picture is there, what it cost and how far off it is."""
        body = require_dalle(model)
        asked = [number for number, item in enumerate(batch.items) if not item.gold.caption_index]
        out: list[dict[str, Any] | None] = [None] * len(batch.items)
        if not asked:
            return out
        assert isinstance(batch.source, Text)
        text = Text(batch.source.tokens[asked], None if batch.source.keep is None else batch.source.keep[asked])
        rows = generate(
            model, Batch(text), self._make_sampler(text), stop_ids=None, max_new_tokens=body.codes_per_image
        )
        weighed = [{}] * len(asked) if batch.gold is None else self._score_images(model, text, batch.gold[asked])
        for number, picture, cost in zip(asked, body.decode_images(rows), weighed, strict=True):
            out[number] = {"png": to_png(picture)} | cost
        return out

    def _make_sampler(self, text: Text) -> SamplerFunction:
        """Draws that depend on the seed and on a row's own words, not on what is painted beside it."""
        temperature = self.config.temperature
        return PerRowSampler(row_seeds(text, self.config.seed), temperature=temperature) if temperature else greedy

    def _score_images(self, model: Model, text: Text, images: Tensor) -> list[dict[str, float]]:
        """Of each true picture: its cost in nats, its codes, how far the autoencoder is off, and how far the painter."""
        body = require_dalle(model)
        out: list[dict[str, float]] = []
        some = max(1, MAX_LOGITS_PER_CHUNK // (body.codes_per_image * body.head.score.out_features))
        for start in range(0, len(images), some):
            part, true = slice(start, start + some), images[start : start + some]
            target = body.encode_image(true)
            rows = Text(text.tokens[part], None if text.keep is None else text.keep[part])
            scores = teacher_forced_logits(model, Batch(rows, target))
            nats = F.cross_entropy(scores.transpose(1, 2), target.tokens, reduction="none").sum(1)
            off = [
                (body.decode_images(codes.tolist()) - true).square().mean((1, 2, 3)).tolist()
                for codes in (target.tokens, scores.argmax(-1))
            ]
            for cost, rebuilt, error in zip(nats.tolist(), *off, strict=True):
                out.append({"nats": cost, "codes": body.codes_per_image, "rebuilt": rebuilt, "error": error})
        return out

    def merge_answers(self, answers: Sequence[dict[str, Any] | None], items: Sequence[Item]) -> list[dict[str, Any]]:
        return [answer for answer in answers if answer is not None]

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        """How far off the painter is; of the picture world also whether a picture shows what was asked for."""
        from saccade.metrics.images import (  # which brings the picture world, needed by nobody else
            mean_cost,
            score_scenes,
        )

        found = [mean_cost(name, [answer[name] for answer in answers]) for name in ("error", "rebuilt")]
        found.append(mean_cost("nats_per_code", [answer["nats"] / answer["codes"] for answer in answers]))
        # a text is painted the same each time, so it counts once, however many pictures it stands for
        painted = {get_captions(example)[0]: answer["png"] for answer, example in zip(answers, examples, strict=True)}
        return found + score_scenes(list(painted), [from_png(png) for png in painted.values()])

    def to_prediction(self, answer: dict[str, Any], example: Example) -> ImagePrediction:
        height, width = from_png(answer["png"]).shape[:2]
        return ImagePrediction(get_captions(example)[0], answer["png"], width, height)
