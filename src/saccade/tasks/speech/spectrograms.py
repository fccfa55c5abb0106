"""Recordings of examples as the spectrograms that a model reads, padded to a batch, and augmented in training."""

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch

from saccade.audio.augment import get_augmentation
from saccade.audio.mel import MelConfig
from saccade.audio.spectrogram import lazy_spectrograms
from saccade.data import Audio, Example
from saccade.errors import UsageError
from saccade.models.model import Model
from saccade.tasks.interface.encoding import Item


def mel_config(model: Model) -> MelConfig:
    """The sizes of the spectrograms that a model reads; a model of another input raises an error."""
    config = model.capabilities.mel
    if config is None:
        raise UsageError(
            f"The data are recordings, and {model.family.name} {model.capabilities.describe()}. Choose a family that reads "
            "recordings, such as speech_encoder."
        )
    return config


def load_spectrograms(examples: Sequence[Example], model: Model) -> list[np.ndarray]:
    """The spectrogram of each example's recording; those of large datasets are computed when they are converted to an array."""
    return cast(list[np.ndarray], lazy_spectrograms([example["audio"] for example in examples], mel_config(model)))


def pad_spectrograms(items: Sequence[Item]) -> Audio:
    """The spectrograms of items, padded into one batch."""
    sources: list[Any] = [np.asarray(item.source) for item in items]
    return Audio.pad([torch.from_numpy(source) for source in sources])


def augment_audio(audio: Audio, name: str, config: MelConfig) -> Audio:
    """A batch with the augmentation of that name."""
    return Audio(*get_augmentation(name)(audio.frames, audio.keep, config))
