"""Images by their pixels: the nearest training image, and a linear model of scikit-learn."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np

NEIGHBOR_BLOCK = 512  # images compared with all training images at a time
LINEAR_C = (0.001, 0.01, 0.1)  # of logistic regression on standardized pixels
MAX_ITERATIONS = 60


class NearestNeighbor:
    """The label of the training example at the smallest Euclidean distance.

    >>> images = np.array([[0, 0, 0], [255, 255, 255]], np.uint8)
    >>> NearestNeighbor.fit(images, ["black", "white"]).predict(np.array([[250, 200, 255]], np.uint8))
    ['white']
    """

    def __init__(self, inputs: np.ndarray, gold: Sequence[Any]):
        self.inputs, self.gold = inputs, list(gold)  # (N, D)

    @classmethod
    def fit(cls, inputs: np.ndarray, gold: Sequence[Any]) -> Self:
        return cls(inputs.astype(np.float32), gold)

    def predict(self, inputs: np.ndarray) -> list[Any]:
        squares = (self.inputs**2).sum(1)
        out: list[Any] = []
        for start in range(0, len(inputs), NEIGHBOR_BLOCK):
            block = inputs[start : start + NEIGHBOR_BLOCK].astype(np.float32)
            nearest = (squares - 2 * block @ self.inputs.T).argmin(
                1
            )  # |x - y|² without |x|², which is the same for all y
            out += [self.gold[i] for i in nearest]
        return out


def fit_linear_pixels(inputs: np.ndarray, gold: Sequence[str], dev: np.ndarray, dev_gold: Sequence[str]) -> Any:
    """Logistic regression on standardized pixels, a pipeline of scikit-learn; C by the accuracy on dev, 0.01 without dev."""
    from warnings import catch_warnings, simplefilter

    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    best, best_score = None, -1.0
    for c in LINEAR_C if len(dev) else (0.01,):
        model = make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=MAX_ITERATIONS))
        with catch_warnings():
            simplefilter("ignore")  # that the solver has not converged to its last digit
            model.fit(inputs.astype(np.float32), list(gold))
        score = float(np.mean(model.predict(dev.astype(np.float32)) == np.array(dev_gold))) if len(dev) else 0.0
        if score > best_score:
            best, best_score = model, score
    return best
