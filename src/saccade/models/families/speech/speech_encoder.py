"""Speech encoder: convolutions that shorten a log-mel spectrogram, then a transformer encoder, trained from scratch.

Each convolution has a stride of two in time and frequency, so that a vector stands for `stride` frames of 10 ms (Dong et al.
2018, Speech-Transformer). The head `ctc` scores the letters, and the blank, for each vector (Graves et al. 2006).
"""

from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from saccade.attention import FULL, Layout
from saccade.audio.augment import mean_frame
from saccade.audio.mel import MelConfig
from saccade.data import Audio, Batch
from saccade.errors import ModelError
from saccade.models.capabilities import Capabilities, Modality
from saccade.models.encoder_heads import label_head
from saccade.models.families import transformer
from saccade.models.family import Family, HeadSpec
from saccade.parts.heads import LMHead


@dataclass(frozen=True)
class Config:
    vocab: int = 32  # Vocabulary size: number of letters or tokens that the head for CTC scores.
    mels: int = 80  # Number of mel bands of the input spectrogram.
    stride: int = 4  # Frames of 10 ms per vector: a power of two, as each convolution halves their number.
    channels: int = 32  # Number of channels of the convolutions.
    width: int = 144  # Model width (hidden size) of every layer.
    layers: int = 6  # Number of encoder layers (transformer blocks).
    heads: int = 4  # Number of attention heads per layer.
    ffn_width: int = 576  # Width of the feed-forward hidden layer.
    position: str = "rotary"  # Position scheme, such as rotary, sinusoidal or alibi.
    dropout: float = 0.1  # Dropout rate in training; 0 disables it.


class ConvSubsampling(nn.Module):
    """Normalizes each band of a recording over time, then halves time and frequency by convolutions, (B, T, M) to (B, L, W)."""

    def __init__(self, mels: int, stride: int, channels: int, width: int):
        super().__init__()
        halvings = stride.bit_length() - 1
        if stride < 2 or 2**halvings != stride:
            raise ModelError(f"stride must be a power of two, at least 2, as each convolution halves; got {stride}.")
        self.convolutions = nn.ModuleList(
            nn.Conv2d(1 if index == 0 else channels, channels, 3, stride=2, padding=1) for index in range(halvings)
        )
        self.project = nn.Linear(channels * -(-mels // stride), width)

    def forward(self, audio: Audio) -> tuple[Tensor, Tensor | None]:
        """The vectors of a recording and their padding mask; padding has no influence on the vectors of real frames."""
        frames, keep = audio.frames, audio.keep
        x = (frames - mean_frame(frames, keep))[:, None]  # (B, 1, T, M): without the coloring of room and microphone
        for convolution in self.convolutions:
            x = F.gelu(convolution(x if keep is None else x * keep[:, None, :, None]))
            keep = None if keep is None else keep[:, ::2]
        return self.project(x.transpose(1, 2).flatten(2)), keep


class SpeechEncoder(nn.Module):
    """A vector for each `stride` frames of a recording."""

    def __init__(self, config: Config):
        super().__init__()
        self.subsampling = ConvSubsampling(config.mels, config.stride, config.channels, config.width)
        self.stack = transformer.make_stack(stack_config(config), FULL)
        self.width = config.width + self.stack.position.extra_width
        self.mels = config.mels

    def forward(self, batch: Batch) -> Tensor:
        return self.encode(batch)[0]

    def encode(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """The vectors of the recordings, (B, L, W), and their padding mask."""
        x, keep = self.subsampling(check_audio(batch, self.mels))
        return self.stack(x, Layout(keep)), keep


def check_audio(batch: Batch, mels: int) -> Audio:
    """The recordings of a batch; raises ModelError for another number of mel bands."""
    audio = batch.source
    assert isinstance(audio, Audio), "a speech encoder takes recordings"
    if audio.frames.size(-1) != mels:
        raise ModelError(f"This model takes spectrograms of {mels} mel bands; got {audio.frames.size(-1)}.")
    return audio


def stack_config(config: Config) -> transformer.Config:
    """The sizes of the transformer of a speech encoder."""
    return transformer.Config(
        width=config.width,
        layers=config.layers,
        heads=config.heads,
        ffn_width=config.ffn_width,
        position=config.position,
        dropout=config.dropout,
    )


def ctc_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """The logits of each letter and of the blank for each vector."""
    return LMHead(body.width, config.vocab, bias=True)


FAMILY = Family(
    name="speech_encoder",
    description="speech encoder: convolutions that shorten a log-mel spectrogram, then a transformer",
    config_class=Config,
    build=SpeechEncoder,
    capabilities=lambda config: Capabilities(
        Modality.AUDIO,
        mel=MelConfig(mels=config.mels),
        stride=config.stride,
        embeddings=("subsampling", "stack.position", "stack.enter"),
    ),
    short_names=("transformer",),
    heads={"ctc": HeadSpec(ctc_head), "label": HeadSpec(label_head)},
)
