"""Text-to-image generation: an autoencoder learns discrete codes of images, then a decoder learns to generate codes after a text.

Both are trained in one run. In the first part of its steps the loss is that of the autoencoder, the squared reconstruction error;
then the autoencoder is frozen, and the loss is the decoder's cross-entropy in nats per code. The part is a function of the step
number, so that a run can be resumed at any step.
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

IMAGE_SIZES = (32, 64)  # pixels per side of the images of a new model; larger images are downscaled
CODES_PER_SIDE = 8  # rows and columns of the grid of codes
MAX_IMAGES_FOR_MEAN = 256  # images from which the mean color is computed
MIN_GUMBEL_TEMPERATURE = 1 / 16  # temperature of the Gumbel softmax at the end of the autoencoder's training
DEAD_CODE_RESET_INTERVAL = 20  # training steps between resets of unused codes
MAX_LOGITS_PER_CHUNK = 2**24  # logits in memory at one time when images are scored


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
    """The index of a caption among those of its example, and the image, if the example has one."""

    caption_index: int
    image: np.ndarray | None  # bytes (channels, rows, columns)


class Paint(Task):
    name = "paint"
    aliases = ("text-to-image",)
    verb = "paint"
    gold_roles = ("image",)
    no_augment_reason = "swapping words of a text does not change the people in its image"
    hub_pipeline = "text-to-image"
    needs_unsplit_batch = True  # unused codes are reset to features of the whole batch
    tracks_dev_loss = False  # the autoencoder and the decoder have different losses
    description = "text-to-image generation: an image of what a text describes"
    Config = Config
    needs = Needs(Modality.TEXT, Generates.IMAGE_CODES)
    token_template = "none"
    sample = "shapes"

    def __init__(self, config: Any = None, labels: Sequence[str] = ()):
        super().__init__(config, labels)
        if not 0 <= self.config.autoencoder_fraction < 1 or self.config.temperature < 0:
            got = f"got {self.config.autoencoder_fraction} and {self.config.temperature}"
            raise UsageError(f"task.autoencoder_fraction must be in [0, 1) and task.temperature at least 0; {got}.")
        self.trains_autoencoder = False  # whether the current step trains the autoencoder or the decoder
        self.resets_dead_codes = False

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (CAPTION, IMAGE)

    def fit(self, examples: Sequence[Example]) -> None:
        share = f"{self.config.autoencoder_fraction:.0%}"
        self.notes = (f"the first {share} of the steps train the autoencoder, the others the text-to-image decoder",)

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
        """Initialize the output bias of the autoencoder to the mean color; from gray, training collapses to white images."""
        body, sample = require_dalle(model), examples[:: max(1, len(examples) // MAX_IMAGES_FOR_MEAN)]
        shape = (model.config.channels, None, None)
        color = np.mean([load_pixels(example["image"], shape).mean((1, 2)) for example in sample], axis=0) / 255
        output_layer = body.autoencoder.up[-1]
        assert isinstance(output_layer, nn.Conv2d)
        assert output_layer.bias is not None
        output_layer.bias.data.copy_(torch.logit(torch.from_numpy(color), eps=0.01))

    def before_step(self, model: Model, step: int, total_steps: int) -> None:
        last = round(self.config.autoencoder_fraction * total_steps)
        self.trains_autoencoder = step < last
        quantizer = require_dalle(model).autoencoder.choice
        if isinstance(quantizer, GumbelQuantizer) and self.trains_autoencoder:
            quantizer.temperature = MIN_GUMBEL_TEMPERATURE ** (step / last)
        self.resets_dead_codes = (
            self.trains_autoencoder and isinstance(quantizer, VectorQuantizer) and step % DEAD_CODE_RESET_INTERVAL == 0
        )

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return (text for example in examples for text in get_captions(example))

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        """One item per caption for training; only the first caption of an example is painted."""
        body, sizes = require_dalle(model), model.config
        encodings = encode_texts(
            [text for e in examples for text in get_captions(e)],
            model,
            min(self.config.max_tokens, sizes.max_positions),
        )
        shape = (sizes.channels, body.grid_size * sizes.cell_size, body.grid_size * sizes.cell_size)
        out: list[Item] = []
        images: Iterator[Any] = iter(lazy_pixels([e["image"] for e in examples if "image" in e], shape))
        for example in examples:
            image = next(images) if "image" in example else None
            for caption_index in range(len(get_captions(example))):
                out.append(Item(example, next(encodings)[0], gold=PaintGold(caption_index, image)))
        return out

    def batch(self, items: Sequence[Item]) -> Batch:
        gold = None
        if all(item.gold.image is not None for item in items):
            gold = torch.from_numpy(np.stack([item.gold.image for item in items])).float().div_(255)
        return Batch(pad_sources(items), gold=gold, items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        body, images = require_dalle(model), batch.gold
        assert images is not None, "a training batch has images"
        if self.trains_autoencoder:
            return self._autoencoder_loss(body, images) * len(images)
        body.autoencoder.eval()  # frozen, with the running statistics of its norms
        target = body.encode_image(images)
        logits = teacher_forced_logits(model, Batch(batch.source, target))
        return F.cross_entropy(logits.flatten(0, 1), target.tokens.flatten(), reduction="sum") / body.codes_per_image

    def _autoencoder_loss(self, body: DallE, images: Tensor) -> Tensor:
        """The loss of the autoencoder per code: the squared reconstruction error and the loss of the quantizer.

        The error is divided by the variance of the images. Images that are mostly background have a small variance, and the loss
        of the quantizer would otherwise dominate.
        """
        if self.resets_dead_codes:
            assert isinstance(body.autoencoder.choice, VectorQuantizer)
            with torch.no_grad():
                body.autoencoder.choice.reset_dead_codes(body.autoencoder.encode_features(images))
        reconstruction, loss = body.autoencoder(images)
        error = F.mse_loss(reconstruction, images)
        return (loss - error + error / images.var().clamp(min=1e-6)) * images[0].numel() / body.codes_per_image

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any] | None]:
        """An image for each text, as PNG in base64; if the gold image is known, with its loss and the errors."""
        body = require_dalle(model)
        rows = [index for index, item in enumerate(batch.items) if not item.gold.caption_index]
        out: list[dict[str, Any] | None] = [None] * len(batch.items)
        if not rows:
            return out
        assert isinstance(batch.source, Text)
        text = Text(batch.source.tokens[rows], None if batch.source.keep is None else batch.source.keep[rows])
        generated_codes = generate(
            model, Batch(text), self._make_sampler(text), stop_ids=None, max_new_tokens=body.codes_per_image
        )
        scores = [{}] * len(rows) if batch.gold is None else self._score_images(model, text, batch.gold[rows])
        for index, image, row_scores in zip(rows, body.decode_images(generated_codes), scores, strict=True):
            out[index] = {"png": to_png(image)} | row_scores
        return out

    def _make_sampler(self, text: Text) -> SamplerFunction:
        """A sampler whose random numbers depend on the seed and the text of a row, not on the other rows of the batch."""
        temperature = self.config.temperature
        return PerRowSampler(row_seeds(text, self.config.seed), temperature=temperature) if temperature else greedy

    def _score_images(self, model: Model, text: Text, images: Tensor) -> list[dict[str, float]]:
        """For each gold image: its NLL in nats, its number of codes, and the errors of autoencoder and decoder."""
        body = require_dalle(model)
        out: list[dict[str, float]] = []
        chunk_size = max(1, MAX_LOGITS_PER_CHUNK // (body.codes_per_image * body.head.score.out_features))
        for start in range(0, len(images), chunk_size):
            chunk, gold = slice(start, start + chunk_size), images[start : start + chunk_size]
            target = body.encode_image(gold)
            rows = Text(text.tokens[chunk], None if text.keep is None else text.keep[chunk])
            logits = teacher_forced_logits(model, Batch(rows, target))
            nats = F.cross_entropy(logits.transpose(1, 2), target.tokens, reduction="none").sum(1)
            errors = [
                (body.decode_images(codes.tolist()) - gold).square().mean((1, 2, 3)).tolist()
                for codes in (target.tokens, logits.argmax(-1))
            ]
            for nll, rebuilt, error in zip(nats.tolist(), *errors, strict=True):
                out.append({"nats": nll, "codes": body.codes_per_image, "rebuilt": rebuilt, "error": error})
        return out

    def merge_answers(self, answers: Sequence[dict[str, Any] | None], items: Sequence[Item]) -> list[dict[str, Any]]:
        return [answer for answer in answers if answer is not None]

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        """The errors of the images; for images of the sample scenes also whether they show what the text describes."""
        from saccade.metrics.images import mean_cost, score_scenes  # imports the sample scenes

        scores = [mean_cost(name, [answer[name] for answer in answers]) for name in ("error", "rebuilt")]
        scores.append(mean_cost("nats_per_code", [answer["nats"] / answer["codes"] for answer in answers]))
        # equal texts give equal images, so each text counts once
        painted = {get_captions(example)[0]: answer["png"] for answer, example in zip(answers, examples, strict=True)}
        return scores + score_scenes(list(painted), [from_png(png) for png in painted.values()])

    def to_prediction(self, answer: dict[str, Any], example: Example) -> ImagePrediction:
        height, width = from_png(answer["png"]).shape[:2]
        return ImagePrediction(get_captions(example)[0], answer["png"], width, height)
