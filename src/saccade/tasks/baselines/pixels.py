"""Baselines for the labels of images: the nearest training image, and a linear model on pixels."""

from collections.abc import Sequence

import numpy as np

from saccade.baselines.pixels import NearestNeighbor, fit_linear_pixels
from saccade.data import Example
from saccade.tasks.baselines.sample import sample_examples
from saccade.tasks.baselines.text_features import majority_class, to_label_answer
from saccade.tasks.interface.learning import Baseline, BaselineMethod
from saccade.vision.pixels import load_pixels

MAX_SIDE = 32  # pixels per side; larger images are reduced
MAX_TRAIN_IMAGES = 10_000  # of more, a sample is used
MAX_DEV_IMAGES = 1_000  # that choose the regularization of the linear model


def image_baselines(labels: Sequence[str]) -> tuple[BaselineMethod, ...]:
    """The most frequent label, the label of the nearest image, and logistic regression on pixels."""

    def fit_nearest(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        sample, shape = sample_examples(train, MAX_TRAIN_IMAGES), _input_shape(train)
        model = NearestNeighbor.fit(_load(sample, shape), [str(example["label"]) for example in sample])

        def predict(examples: Sequence[Example]) -> list[dict]:
            return [to_label_answer(label, labels) for label in model.predict(_load(examples, shape))]

        return Baseline(f"the label of the nearest of {len(sample):,} training images by pixels", predict)

    def fit_linear(train: Sequence[Example], dev: Sequence[Example]) -> Baseline:
        sample, shape = sample_examples(train, MAX_TRAIN_IMAGES), _input_shape(train)
        dev_sample = sample_examples(dev, MAX_DEV_IMAGES)
        gold, dev_gold = ([str(example["label"]) for example in part] for part in (sample, dev_sample))
        model = fit_linear_pixels(_load(sample, shape), gold, _load(dev_sample, shape), dev_gold)

        def predict(examples: Sequence[Example]) -> list[dict]:
            predicted = model.predict(_load(examples, shape).astype(np.float32))
            return [to_label_answer(str(label), labels) for label in predicted]

        return Baseline(f"logistic regression on the pixels of {len(sample):,} training images", predict)

    return (
        majority_class(labels),
        BaselineMethod("nearest neighbor of pixels", fit_nearest),
        BaselineMethod("logistic regression on pixels", fit_linear),
    )


def _input_shape(train: Sequence[Example]) -> tuple[int, int, int]:
    channels, rows, columns = load_pixels(train[0]["image"]).shape
    return channels, min(rows, MAX_SIDE), min(columns, MAX_SIDE)


def _load(examples: Sequence[Example], shape: tuple[int, int, int]) -> np.ndarray:
    """The pixels of images as rows, (N, D)."""
    size = shape[0] * shape[1] * shape[2]
    return np.array([load_pixels(e["image"], shape).ravel() for e in examples], np.uint8).reshape(-1, size)
