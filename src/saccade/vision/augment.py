"""Pictures shown a little differently each time they are learnt from: moved, mirrored, or both; a whole batch at once.

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

SHIFT_DIVISOR = 8  # a picture is moved by up to one part in so many of its side


def mirror(pixels: Tensor, mask: Tensor) -> Tensor:
    """The pictures of (B, C, rows, columns) that `which`, (B,), names, left for right."""
    return torch.where(mask.view(-1, 1, 1, 1), pixels.flip(-1), pixels)


def shift(pixels: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """Each picture moved by its own (B,) whole pixels; where nothing is left, the edge goes on."""
    rows, columns = pixels.shape[-2:]
    device = pixels.device
    from_row = (torch.arange(rows, device=device) - down[:, None]).clamp(0, rows - 1)  # (B, rows)
    from_column = (torch.arange(columns, device=device) - right[:, None]).clamp(0, columns - 1)  # (B, columns)
    moved = pixels.gather(2, from_row[:, None, :, None].expand(pixels.shape))
    return moved.gather(3, from_column[:, None, None, :].expand(pixels.shape))


def random_flip(pixels: Tensor) -> Tensor:
    """Every second picture, by chance, mirrored."""
    return mirror(pixels, (torch.rand(len(pixels)) < 0.5).to(pixels.device))


def random_crop(pixels: Tensor) -> Tensor:
    """A crop at a random place of each picture with its edges drawn out, which is the picture moved by a few pixels."""
    reach = max(1, min(pixels.shape[-2:]) // SHIFT_DIVISOR)
    by = torch.randint(-reach, reach + 1, (2, len(pixels))).to(pixels.device)
    return shift(pixels, by[0], by[1])


def get_augmentation(name: str) -> Callable[[Tensor], Tensor]:
    """What is done to a batch of pictures under a name."""
    if name not in AUGMENTATIONS:
        raise UsageError(f"There is no way {name!r} to augment pictures; choose one of {', '.join(AUGMENTATIONS)}.")
    return AUGMENTATIONS[name]


AUGMENTATIONS: dict[str, Callable[[Tensor], Tensor]] = {  # each draws from torch's own generator, on the CPU
    "none": lambda pixels: pixels,
    "flip": random_flip,
    "crop": random_crop,
    "flip_crop": lambda pixels: random_flip(random_crop(pixels)),
}
