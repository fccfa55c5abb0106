"""Patches behind masks: half of a picture is hidden, and its pixels are told from the other half.

A learned vector stands for each hidden patch, the stack reads all, and one linear layer gives the pixels (SimMIM: Xie et al.
2022, arXiv 2111.09886). They are asked for less the patch's mean and over its spread (MAE: He et al. 2022, arXiv 2111.06377), so
that edges count and the colour of a plain patch does not. The score is the share of the variance of hidden pixels that is
explained; the mean patch, given as the answer everywhere, explains nothing.
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

EPS = 1e-6  # of a patch's variance: a plain patch becomes nothing, not a division by nothing


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
        pictures: Iterator[Any] = iter(lazy_pixels([example["image"] for example in examples], shape))
        return [Item(example, next(pictures)) for example in examples]

    def batch(self, items: Sequence[Item]) -> Batch:
        stacked = torch.from_numpy(np.stack([item.source for item in items]))
        return Batch(Image(stacked.float().div_(127.5).sub_(1.0)), items=list(items))

    def count_targets(self, batch: Batch) -> int:
        return len(batch.items)

    def loss(self, model: Model, batch: Batch) -> Tensor:
        """The mean squared error of the hidden pixels of each picture, summed."""
        gold = normalize_patches(patchify(batch, model))
        hidden = choose_masked_patches(torch.rand(gold.shape[:2], device=gold.device), self.mask_ratio)
        said = reconstruct_patches(model, batch, hidden)
        return F.mse_loss(said[hidden], gold[hidden], reduction="sum") / (hidden[0].sum() * gold.size(-1))

    def answer(self, model: Model, batch: Batch) -> list[dict[str, Any]]:
        """What each picture adds to the sums that scores are made of."""
        gold = normalize_patches(patchify(batch, model))
        hidden = choose_masked_patches(seeded_noise(batch.items, gold.size(1)).to(gold.device), self.mask_ratio)
        off = (reconstruct_patches(model, batch, hidden) - gold).square().sum(-1)
        out = []
        for row, error, some in zip(gold, off, hidden, strict=True):
            asked = row[some].double()
            columns = {"error": float(error[some].sum()), "squares": float(asked.square().sum())}
            out.append({**columns, "patches": len(asked), "pixels": asked.numel(), "sums": asked.sum(0).tolist()})
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
    """What is left of the squares once the mean patch is taken away, from sums over pictures."""
    return sums[:, 1] - (sums[:, 4:] ** 2).sum(1) / sums[:, 2]


def _explained_variance(sums: np.ndarray) -> np.ndarray:
    """The share of that which the answers explain; where nothing varies, 0 unless all is right."""
    error, spread = sums[:, 0], _total_variance(sums)
    none = (error > 0).astype(np.float64)
    return 1 - np.divide(error, spread, out=none, where=spread > 1e-12 * np.maximum(sums[:, 1], 1e-300))


def require_vit(model: Model) -> ViT:
    """The body, if it reads patches."""
    if not isinstance(model.body, ViT) or not isinstance(model.head, PixelHead):
        raise UsageError("Hidden patches need a vit with the head pixels; load it with `head='pixels'`.")
    return model.body


def patchify(batch: Batch, model: Model) -> Tensor:
    """The pixels of each patch, (B, patches, channels x rows x columns), row by row.

    They are in the order in which the head gives them: all of one channel, then all of the next.
    """
    assert isinstance(batch.source, Image)
    size = require_vit(model).patches.patch_size
    return F.unfold(batch.source.pixels, size, stride=size).transpose(1, 2)


def normalize_patches(patches: Tensor) -> Tensor:
    """Each patch less its mean and over its spread.

    >>> normalize_patches(torch.tensor([[[1.0, 3.0], [5.0, 5.0]]])).round(decimals=3).tolist()
    [[[-1.0, 1.0], [0.0, 0.0]]]
    """
    mean, spread = patches.mean(-1, keepdim=True), patches.var(-1, correction=0, keepdim=True)
    return (patches - mean) / (spread + EPS).sqrt()


def choose_masked_patches(noise: Tensor, mask_ratio: float) -> Tensor:
    """Which patches are hidden, by (B, patches) numbers of chance: equally many of each picture, and one at least.

    >>> choose_masked_patches(torch.tensor([[0.3, 0.1, 0.9, 0.2]]), 0.5).tolist()
    [[False, True, False, True]]
    """
    count = min(max(1, round(mask_ratio * noise.size(1))), noise.size(1))
    return torch.zeros_like(noise, dtype=torch.bool).scatter(1, noise.argsort(1)[:, :count], True)


def seeded_noise(items: Sequence[Item], count: int) -> Tensor:
    """Numbers of chance for each patch that are the same whenever a picture is read: their seed is made of its pixels."""
    seeds = [zlib.crc32(np.ascontiguousarray(item.source).tobytes()) for item in items]
    return torch.stack([torch.rand(count, generator=torch.Generator().manual_seed(seed)) for seed in seeds])


def reconstruct_patches(model: Model, batch: Batch, masked: Tensor) -> Tensor:
    """The normalised pixels of every patch, (B, patches, ...), told from those that are not hidden."""
    body, head = require_vit(model), model.head
    assert isinstance(head, PixelHead)
    assert isinstance(batch.source, Image)
    seen = torch.where(masked.unsqueeze(-1), head.mask, body.patches(batch.source.pixels))
    return head(body.stack(torch.cat([body.whole.expand(len(seen), -1, -1), seen], dim=1)))


def render_reconstruction(model: Model, image: Any, mask_ratio: float = MaskedImage.default_mask_ratio) -> np.ndarray:
    """A picture as it is seen, as it is mended, and as it is, side by side: bytes of (rows, 3 x columns, channels).

    Of a hidden patch its mean and its spread are told, since they are never asked for; all else comes from the model.
    """
    batch = MaskedImage().batch([Item(Example({}), load_pixels(image, image_shape(model)))])
    assert isinstance(batch.source, Image)
    shape, size = batch.source.pixels.shape[-2:], require_vit(model).patches.patch_size
    with torch.inference_mode():
        true = patchify(batch, model)
        hidden = choose_masked_patches(seeded_noise(batch.items, true.size(1)), mask_ratio)
        spread, mean = torch.var_mean(true, -1, correction=0, keepdim=True)
        made = reconstruct_patches(model, batch, hidden) * (spread + EPS).sqrt() + mean
        shown = [torch.where(hidden.unsqueeze(-1), x, true) for x in (torch.zeros_like(true), made, true)]
        wide = torch.cat([F.fold(x.transpose(1, 2), shape, size, stride=size) for x in shown], dim=-1)
    return wide[0].add(1.0).mul(127.5).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
