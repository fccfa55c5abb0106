"""Helpers of text-to-image generation: a sampler with a random generator per row, and PNG encoding of images."""

import base64
import hashlib
import io
from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from saccade.data import Text
from saccade.errors import UsageError
from saccade.models.families.dalle import DallE
from saccade.models.model import Model


class PerRowSampler:
    """Sample from softmax(scores / temperature), each row with its own generator, so that results do not depend on the batch.

    >>> scores = torch.tensor([[0.0, 1.0, 2.0]])
    >>> both = PerRowSampler([3, 5], temperature=1.0)(scores.expand(2, 3)).tolist()
    >>> both == [int(PerRowSampler([seed], temperature=1.0)(scores)) for seed in (3, 5)]
    True
    """

    def __init__(self, seeds: Sequence[int], *, temperature: float):
        self.temperature = temperature
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, scores: Tensor) -> Tensor:
        uniform = torch.stack([torch.rand(scores.size(-1), generator=generator) for generator in self.generators])
        # Gumbel-max trick: the argmax of the scores with Gumbel noise is a sample from their softmax
        noise = -(-uniform.clamp(min=1e-20).log()).log()
        return (scores.float() / self.temperature + noise.to(scores.device)).argmax(-1)


def row_seeds(text: Text, seed: int) -> list[int]:
    """A seed for each row, derived from its tokens and from the common seed."""
    rows = [tokens[real].tolist() for tokens, real in zip(text.tokens, text.keep_mask, strict=True)]
    return [int.from_bytes(hashlib.blake2b(repr((seed, row)).encode(), digest_size=7).digest()) for row in rows]


def to_png(image: Tensor) -> str:
    """Encode pixels in [0, 1], (channels, rows, columns), as PNG in base64."""
    array = image.detach().float().mul(255).round().clamp(0, 255).byte().cpu().numpy()
    png_image = Image.fromarray(array[0] if len(array) == 1 else np.ascontiguousarray(array.transpose(1, 2, 0)))
    buffer = io.BytesIO()
    png_image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()


def from_png(png: str) -> np.ndarray:
    """Decode a PNG in base64 to uint8 pixels, (rows, columns) or (rows, columns, channels)."""
    with Image.open(io.BytesIO(base64.b64decode(png)), formats=("PNG",)) as opened:
        return np.asarray(opened)


def require_dalle(model: Model) -> DallE:
    """The body of a text-to-image model; any other model raises an error."""
    if not isinstance(model.body, DallE):
        raise UsageError(f"paint needs a model that generates images; {model.family.name} does not. Choose dalle.")
    return model.body
