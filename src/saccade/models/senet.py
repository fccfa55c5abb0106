"""Convolutional encoders of pictures: a plain one, and SE-Inception and SE-ResNet, which weigh their channels.

Squeeze-and-excitation is attention over channels (Hu et al. 2018, arXiv 1709.01507); it goes at the end of an Inception block
(Szegedy et al. 2015, arXiv 1409.4842) or of a residual branch (He et al. 2016, arXiv 1512.03385).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.attention.table import nearest
from saccade.data import Batch, Image
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.family import Family, Head
from saccade.parts.heads import LabelHead
from saccade.parts.squeeze import SqueezeExcite


@dataclass(frozen=True)
class Config:
    block: str = "residual"  # a line of BLOCKS
    channels: int = 3
    width: int = 128  # of the last stage; each stage before it has half as many channels
    stages: int = 3  # each halves the rows and the columns
    blocks: int = 2  # of a stage
    reduction: int = 8  # how much narrower the squeeze is than the channels


def convolution(channels: int, width: int, side: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution that keeps the grid (or thins it by `stride`), and a batch norm, which makes a bias superfluous."""
    return nn.Sequential(
        nn.Conv2d(channels, width, side, stride=stride, padding=side // 2, bias=False), nn.BatchNorm2d(width)
    )


class Plain(nn.Sequential):
    """Convolution, norm, ReLU: a small CNN is a few of these."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__(convolution(channels, width, stride=stride), nn.ReLU())


class Residual(nn.Module):
    """SE-ResNet: two convolutions, squeeze and excitation, and a straight way past them."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__()
        same = channels == width and stride == 1
        self.past = nn.Identity() if same else convolution(channels, width, 1, stride)
        self.branch = nn.Sequential(convolution(channels, width, stride=stride), nn.ReLU(), convolution(width, width))
        self.squeeze = SqueezeExcite(width, reduction)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.past(x) + self.squeeze(self.branch(x)))


class Inception(nn.Module):
    """SE-Inception: views of one, three and five cells and of the strongest neighbour, side by side, then weighed."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__()
        part = width // 4
        if not part:
            raise ModelError(f"Four views side by side need a width of at least 4; got {width}.")
        # each wide view is narrowed first: that is what makes it cheap
        self.one = convolution(channels, width - 3 * part, 1, stride)
        self.three = nn.Sequential(convolution(channels, part, 1), nn.ReLU(), convolution(part, part, 3, stride))
        self.five = nn.Sequential(convolution(channels, part, 1), nn.ReLU(), convolution(part, part, 5, stride))
        self.strongest = nn.Sequential(nn.MaxPool2d(3, stride, padding=1), convolution(channels, part, 1))
        self.squeeze = SqueezeExcite(width, reduction)

    def forward(self, x: Tensor) -> Tensor:
        views = [self.one(x), self.three(x), self.five(x), self.strongest(x)]
        return self.squeeze(torch.relu(torch.cat(views, dim=1)))


BLOCKS = {"plain": Plain, "residual": Residual, "inception": Inception}


class SENet(nn.Module):
    """Stages of blocks, each on a grid of half the side and with twice the channels of the one before."""

    def __init__(self, config: Config):
        super().__init__()
        if config.block not in BLOCKS:
            raise ModelError(f"Unknown block {config.block!r}; {nearest(config.block, list(BLOCKS))}")
        if config.width % 2 ** (config.stages - 1):
            raise ModelError(
                f"{config.stages} stages halve the width {config.stages - 1} times, and {config.width} cannot be; "
                f"choose a multiple of {2 ** (config.stages - 1)}."
            )
        self.width = config.width
        widths = [config.width >> (config.stages - 1 - stage) for stage in range(config.stages)]
        self.enter = nn.Sequential(convolution(config.channels, widths[0]), nn.ReLU())
        before = [widths[0], *widths]
        self.stages = nn.Sequential(*(stage(config, *pair) for pair in zip(before, widths, strict=False)))

    def forward(self, batch: Batch) -> Tensor:
        picture = batch.source
        assert isinstance(picture, Image), "SENet reads pictures"
        return self.grid(picture.pixels).flatten(2).transpose(1, 2)  # (B, L, W), row by row

    def grid(self, pixels: Tensor) -> Tensor:
        """What is seen in each cell, (B, W, rows, columns)."""
        return self.stages(self.enter(pixels))


def stage(config: Config, channels: int, width: int) -> nn.Sequential:
    """Blocks of one width; the first of them thins the grid."""
    block = BLOCKS[config.block]
    first = block(channels, width, 2, config.reduction)
    return nn.Sequential(first, *(block(width, width, 1, config.reduction) for _ in range(config.blocks - 1)))


def capabilities(config: Config) -> Capabilities:
    shape = (config.channels, None, None)  # convolutions read images of any size
    return Capabilities(Modality.IMAGE, image_shape=shape, layers=("stages",), embeddings=("enter",))


FAMILY = Family(
    name="senet",
    said="convolutional encoder of pictures: plain, SE-Inception or SE-ResNet",
    config=Config,
    build=SENet,
    capabilities=capabilities,
    heads={"label": Head(lambda config, body, labels: LabelHead(config.width, labels))},
)
