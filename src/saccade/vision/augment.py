"""Image augmentation for training: random flips, random crops, or both, on a whole batch at once.

>>> x = torch.arange(6).view(1, 1, 2, 3)
>>> mirror(x, torch.tensor([True])).tolist()
[[[[2, 1, 0], [5, 4, 3]]]]
>>> shift(x, torch.tensor([1]), torch.tensor([-1])).tolist()
[[[[1, 2, 2], [1, 2, 2]]]]
"""

from collections.abc import Callable

import torch
from torch import Tensor

from saccade.errors import UsageError

SHIFT_DIVISOR = 8  # an image is shifted by at most 1/8 of its shorter side


def mirror(pixels: Tensor, mask: Tensor) -> Tensor:
    """Flip the images of (B, C, rows, columns) where `mask`, (B,), is True, left to right."""
    return torch.where(mask.view(-1, 1, 1, 1), pixels.flip(-1), pixels)


def shift(pixels: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Shift each image by its own whole number of pixels, (B,); the gap is filled by repeating the edge pixels."""
    rows, columns = pixels.shape[-2:]
    device = pixels.device
    from_row = (torch.arange(rows, device=device) - down[:, None]).clamp(0, rows - 1)  # (B, rows)
    from_column = (torch.arange(columns, device=device) - right[:, None]).clamp(0, columns - 1)  # (B, columns)
    moved = pixels.gather(2, from_row[:, None, :, None].expand(pixels.shape))
    return moved.gather(3, from_column[:, None, None, :].expand(pixels.shape))


def random_flip(pixels: Tensor) -> Tensor:
    """Random horizontal flip: mirror each image with probability 0.5."""
    return mirror(pixels, (torch.rand(len(pixels)) < 0.5).to(pixels.device))


def random_crop(pixels: Tensor) -> Tensor:
    """Random crop of each image padded with its edge pixels, which is the same as a shift by a few pixels."""
    max_shift = max(1, min(pixels.shape[-2:]) // SHIFT_DIVISOR)
    offsets = torch.randint(-max_shift, max_shift + 1, (2, len(pixels))).to(pixels.device)
    return shift(pixels, offsets[0], offsets[1])


def get_augmentation(name: str) -> Callable[[Tensor], Tensor]:
    """Return the augmentation function of that name, which maps a batch of pixels to a batch of pixels."""
    if name not in AUGMENTATIONS:
        raise UsageError(f"Unknown image augmentation {name!r}; choose one of {', '.join(AUGMENTATIONS)}.")
    return AUGMENTATIONS[name]


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # each samples from torch's global generator, on the CPU
    "none": lambda pixels: pixels,
    "flip": random_flip,
    "crop": random_crop,
    "flip_crop": lambda pixels: random_flip(random_crop(pixels)),
}
