"""CNN image encoders: a plain one, and SE-Inception and SE-ResNet with squeeze-and-excitation.

Squeeze-and-excitation is attention over channels (Hu et al. 2018, arXiv 1709.01507); it is applied after an Inception block
(Szegedy et al. 2015, arXiv 1409.4842) or of a residual branch (He et al. 2016, arXiv 1512.03385).
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from saccade.data import Batch, Image
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.family import Family, HeadSpec
from saccade.parts.heads import ClassificationHead
from saccade.parts.squeeze_excite import SqueezeExcite
from saccade.suggest import suggest


@dataclass(frozen=True)
class Config:
    block_type: str = "residual"  # Type of the convolutional blocks: plain, residual or inception.
    channels: int = 3  # Number of color channels of an image.
    width: int = 128  # Number of channels of the last stage; each earlier stage has half as many.
    stages: int = 3  # Number of stages; each halves rows and columns.
    blocks_per_stage: int = 2  # Number of convolutional blocks per stage.
    se_reduction: int = 8  # Reduction ratio of squeeze-and-excitation: channels / bottleneck width.


def conv_batch_norm(channels: int, width: int, kernel_size: int = 3, stride: int = 1) -> nn.Sequential:
    """A convolution with padding, and batch norm, which makes a bias unnecessary."""
    return nn.Sequential(
        nn.Conv2d(channels, width, kernel_size, stride=stride, padding=kernel_size // 2, bias=False),
        nn.BatchNorm2d(width),
    )


class PlainBlock(nn.Sequential):
    """Convolution, batch norm, ReLU."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__(conv_batch_norm(channels, width, stride=stride), nn.ReLU())


class ResidualBlock(nn.Module):
    """SE-ResNet block: two convolutions, squeeze-and-excitation, and a residual connection."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__()
        same = channels == width and stride == 1
        self.past: nn.Identity | nn.Sequential = nn.Identity() if same else conv_batch_norm(channels, width, 1, stride)
        self.branch: nn.Sequential = nn.Sequential(
            conv_batch_norm(channels, width, stride=stride), nn.ReLU(), conv_batch_norm(width, width)
        )
        self.squeeze: SqueezeExcite = SqueezeExcite(width, reduction)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.past(x) + self.squeeze(self.branch(x)))


class InceptionBlock(nn.Module):
    """SE-Inception block: parallel 1x1, 3x3 and 5x5 convolutions and max pooling, then squeeze-and-excitation."""

    def __init__(self, channels: int, width: int, stride: int, reduction: int):
        super().__init__()
        quarter = width // 4
        if not quarter:
            raise ModelError(f"An Inception block has four branches, so it needs a width of at least 4; got {width}.")
        # a 1x1 convolution first reduces the channels of each larger one, which makes it cheap
        self.one: nn.Sequential = conv_batch_norm(channels, width - 3 * quarter, 1, stride)
        self.three: nn.Sequential = nn.Sequential(
            conv_batch_norm(channels, quarter, 1), nn.ReLU(), conv_batch_norm(quarter, quarter, 3, stride)
        )
        self.five: nn.Sequential = nn.Sequential(
            conv_batch_norm(channels, quarter, 1), nn.ReLU(), conv_batch_norm(quarter, quarter, 5, stride)
        )
        self.strongest: nn.Sequential = nn.Sequential(
            nn.MaxPool2d(3, stride, padding=1), conv_batch_norm(channels, quarter, 1)
        )
        self.squeeze: SqueezeExcite = SqueezeExcite(width, reduction)

    def forward(self, x: Tensor) -> Tensor:
        views = [self.one(x), self.three(x), self.five(x), self.strongest(x)]
        return self.squeeze(torch.relu(torch.cat(views, dim=1)))


BLOCKS = {"plain": PlainBlock, "residual": ResidualBlock, "inception": InceptionBlock}


class SENet(nn.Module):
    """Stages of blocks; each stage halves rows and columns and doubles the channels."""

    def __init__(self, config: Config):
        super().__init__()
        if config.block_type not in BLOCKS:
            raise ModelError(f"Unknown block_type {config.block_type!r}; {suggest(config.block_type, list(BLOCKS))}")
        if config.width % 2 ** (config.stages - 1):
            raise ModelError(
                f"With {config.stages} stages, width must be a multiple of {2 ** (config.stages - 1)}; got {config.width}."
            )
        self.width: int = config.width
        widths = [config.width >> (config.stages - 1 - stage) for stage in range(config.stages)]
        self.enter: nn.Sequential = nn.Sequential(conv_batch_norm(config.channels, widths[0]), nn.ReLU())
        before = [widths[0], *widths]
        self.stages: nn.Sequential = nn.Sequential(
            *(make_stage(config, *pair) for pair in zip(before, widths, strict=False))
        )

    def forward(self, batch: Batch) -> Tensor:
        image = batch.source
        assert isinstance(image, Image), "SENet takes images"
        return self.feature_map(image.pixels).flatten(2).transpose(1, 2)  # (B, L, W), row by row

    def feature_map(self, pixels: Tensor) -> Tensor:
        """The features of each cell, (B, W, rows, columns)."""
        return self.stages(self.enter(pixels))


def make_stage(config: Config, channels: int, width: int) -> nn.Sequential:
    """Blocks of one width; the first has stride 2."""
    block = BLOCKS[config.block_type]
    first = block(channels, width, 2, config.se_reduction)
    return nn.Sequential(
        first, *(block(width, width, 1, config.se_reduction) for _ in range(config.blocks_per_stage - 1))
    )


def capabilities(config: Config) -> Capabilities:
    shape = (config.channels, None, None)  # convolutions accept images of any size
    return Capabilities(Modality.IMAGE, image_shape=shape, layers=("stages",), embeddings=("enter",))


FAMILY = Family(
    name="senet",
    description="CNN image encoder: plain, SE-Inception or SE-ResNet",
    config_class=Config,
    build=SENet,
    capabilities=capabilities,
    heads={"label": HeadSpec(lambda config, body, labels: ClassificationHead(config.width, labels))},
)
