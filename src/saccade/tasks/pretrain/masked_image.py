"""Masked image modeling: half of the patches of an image are masked, and their pixels are predicted from the others.

A learned mask embedding replaces each masked patch, the encoder reads all patches, and one linear layer predicts the pixels
(SimMIM: Xie et al. 2022, arXiv 2111.09886). The targets are normalized by the mean and the standard deviation of their patch
(MAE: He et al. 2022, arXiv 2111.06377), so that edges count and the color of a plain patch does not. The score is the explained
variance of the masked pixels; predicting the mean patch everywhere scores 0.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from saccade import metrics
from saccade.data import Batch, Example, Image, Role
from saccade.data.example import IMAGE
from saccade.errors import UsageError
from saccade.metrics import Score
from saccade.models.capabilities import Modality
from saccade.models.families.vit import PixelHead, ViT
from saccade.models.model import Model
from saccade.tasks.base import Defaults, Item
from saccade.tasks.interface.predictions import MeasuredPrediction
from saccade.tasks.label import image_shape
from saccade.tasks.needs import Needs
from saccade.tasks.pretrain.objective import Objective
from saccade.vision.pixels import lazy_pixels, load_pixels

EPS = 1e-6  # added to the variance of a patch, so that plain patches become 0


class MaskedImage(Objective):
    name = "masked_image"
    description = "masked image modeling (SimMIM, MAE): the pixels of the masked patches"
    family = "vit"
    needs = Needs(Modality.IMAGE, head="pixels")
    sample = "scenes"
    is_text_stream = reads_sentences = False
    default_mask_ratio = 0.5

    def roles(self, paths: Sequence[str]) -> tuple[Role, ...]:
        return (IMAGE,)

    def defaults(self, examples: Sequence[Example], pretrained: bool) -> Defaults:
        train = {
            "lr": 5e-4 if pretrained else 1e-3,
            "batch_size": 64,
            "batch_tokens": 64,
            "epochs": 20,
            "weight_decay": 0.05,
        }
        if pretrained:
            return Defaults("", train=train)
        channels, _, side = load_pixels(examples[0]["image"]).shape
        patch = max(2, side // 7)
        sizes = {"channels": channels, "image_height": -(-side // patch) * patch, "patch_size": patch, "dropout": 0.0}
        return Defaults(self.family, {**sizes, "width": 128, "layers": 4, "heads": 4, "ffn_width": 256}, train)

    def tokenizer_texts(self, examples: Iterable[Example]) -> Iterator[str]:
        return iter(())

    def encode(self, examples: Sequence[Example], model: Model) -> list[Item]:
        shape = image_shape(model)
        images: Iterator[Any] = iter(lazy_pixels([example["image"] for example in examples], shape))
        return [Item(example, next(images)) for example in examples]

    def batch(self, items: Sequence[Item]) -> Batch:
        stacked = torch.from_numpy(np.stack([item.source for item in items]))
        return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The mean squared error of the masked pixels of each image, summed over images."""
        gold = normalize_patches(patchify(batch, model))
        masked = choose_masked_patches(torch.rand(gold.shape[:2], device=gold.device), self.mask_ratio)
        predicted = reconstruct_patches(model, batch, masked)
        return F.mse_loss(predicted[masked], gold[masked], reduction="sum") / (masked[0].sum() * gold.size(-1))

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """The sums of each image from which the scores are computed."""
        gold = normalize_patches(patchify(batch, model))
        masked = choose_masked_patches(seeded_noise(batch.items, gold.size(1)).to(gold.device), self.mask_ratio)
        errors = (reconstruct_patches(model, batch, masked) - gold).square().sum(-1)
        out = []
        for row, error, row_masked in zip(gold, errors, masked, strict=True):
            pixels = row[row_masked].double()
            columns = {"error": float(error[row_masked].sum()), "squares": float(pixels.square().sum())}
            out.append({**columns, "patches": len(pixels), "pixels": pixels.numel(), "sums": pixels.sum(0).tolist()})
        return out

    def score(self, answers: Sequence[dict[str, Any]], examples: Sequence[Example]) -> list[Score]:
        names = ("error", "squares", "patches", "pixels")
        units = np.array([[*(answer[name] for name in names), *answer["sums"]] for answer in answers])
        return [
            metrics.measure("explained", _explained_variance, units),
            metrics.measure("mse", lambda sums: sums[:, 0] / sums[:, 3], units, better="lower"),
            metrics.measure("mse_of_mean", lambda sums: _total_variance(sums) / sums[:, 3], units, better="lower"),
        ]

    def to_prediction(self, answer: dict[str, Any], example: Example) -> MeasuredPrediction:
        mse = answer["error"] / answer["pixels"]
        values = {"mse": mse} | {name: answer[name] for name in ("patches", "pixels", "error")}
        return MeasuredPrediction(f"{answer['patches']} masked patches, mean squared error {mse:.3f}", values)


def _total_variance(sums: np.ndarray) -> np.ndarray:
    """The sum of squared deviations from the mean patch, from sums over images."""
    return sums[:, 1] - (sums[:, 4:] ** 2).sum(1) / sums[:, 2]


def _explained_variance(sums: np.ndarray) -> np.ndarray:
    """The explained variance; without any variance it is 1 for exact predictions and 0 otherwise."""
    error, variance = sums[:, 0], _total_variance(sums)
    fallback = (error > 0).astype(np.float64)
    return 1 - np.divide(error, variance, out=fallback, where=variance > 1e-12 * np.maximum(sums[:, 1], 1e-300))


def require_vit(model: Model) -> ViT:
    """The body of a ViT with a pixel head; any other model raises an error."""
    if not isinstance(model.body, ViT) or not isinstance(model.head, PixelHead):
        raise UsageError("masked_image needs a vit with the head pixels; load it with `head='pixels'`.")
    return model.body


def patchify(batch: Batch, model: Model) -> Tensor:
    """The pixels of each patch, (B, patches, channels x rows x columns), row by row.

    They are in the order of the head's output: all of one channel, then all of the next.
    """
    assert isinstance(batch.source, Image)
    size = require_vit(model).patches.patch_size
    return F.unfold(batch.source.pixels, size, stride=size).transpose(1, 2)


def normalize_patches(patches: Tensor) -> Tensor:
    """Each patch normalized by its mean and standard deviation.

    >>> normalize_patches(torch.tensor([[[1.0, 3.0], [5.0, 5.0]]])).round(decimals=3).tolist()
    [[[-1.0, 1.0], [0.0, 0.0]]]
    """
    mean, variance = patches.mean(-1, keepdim=True), patches.var(-1, correction=0, keepdim=True)
    return (patches - mean) / (variance + EPS).sqrt()


def choose_masked_patches(noise: Tensor, mask_ratio: float) -> Tensor:
    """The mask of the masked patches from noise (B, patches): the same number for each image, and at least one.

    >>> choose_masked_patches(torch.tensor([[0.3, 0.1, 0.9, 0.2]]), 0.5).tolist()
    [[False, True, False, True]]
    """
    count = min(max(1, round(mask_ratio * noise.size(1))), noise.size(1))
    return torch.zeros_like(noise, dtype=torch.bool).scatter(1, noise.argsort(1)[:, :count], True)


def seeded_noise(items: Sequence[Item], count: int) -> Tensor:
    """Uniform noise for each patch, seeded by the pixels of the image, so that evaluation is reproducible."""
    seeds = [zlib.crc32(np.ascontiguousarray(item.source).tobytes()) for item in items]
    return torch.stack([torch.rand(count, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def reconstruct_patches(model: Model, batch: Batch, masked: Tensor) -> Tensor:
    """The predicted normalized pixels of every patch, (B, patches, ...), with the masked patches hidden from the model."""
    body, head = require_vit(model), model.head
    assert isinstance(head, PixelHead)
    assert isinstance(batch.source, Image)
    patches = torch.where(masked.unsqueeze(-1), head.mask, body.patches(batch.source.pixels))
    return head(body.stack(torch.cat([body.whole.expand(len(patches), -1, -1), patches], dim=1)))


def render_reconstruction(model: Model, image: Any, mask_ratio: float = MaskedImage.default_mask_ratio) -> np.ndarray:
    """The masked image, its reconstruction and the original side by side, as uint8 (rows, 3 x columns, channels).

    The mean and the variance of a masked patch are taken from the original, since the model does not predict them.
    """
    batch = MaskedImage().batch([Item(Example({}), load_pixels(image, image_shape(model)))])
    assert isinstance(batch.source, Image)
    shape, size = batch.source.pixels.shape[-2:], require_vit(model).patches.patch_size
    with torch.inference_mode():
        original = patchify(batch, model)
        masked = choose_masked_patches(seeded_noise(batch.items, original.size(1)), mask_ratio)
        variance, mean = torch.var_mean(original, -1, correction=0, keepdim=True)
        reconstruction = reconstruct_patches(model, batch, masked) * (variance + EPS).sqrt() + mean
        panels = [
            torch.where(masked.unsqueeze(-1), x, original)
            for x in (torch.zeros_like(original), reconstruction, original)
        ]
        canvas = torch.cat([F.fold(x.transpose(1, 2), shape, size, stride=size) for x in panels], dim=-1)
    return canvas[0].add(1.0).mul(127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
