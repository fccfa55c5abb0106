"""Linear models of scikit-learn on TF-IDF n-grams: the better of words (1-2) and characters (2-5), as chosen on the dev part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.baselines.ngram_features import SIZES, Kind, NgramFeatures, Rows

SVM_C = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
LOGISTIC_C = (1.0, 4.0, 16.0, 64.0)
MANY_LABELS = 10  # above it, only the SVM with C = 1 is fitted: the time grows with the number of labels
RIDGE_ALPHA = (0.1, 0.3, 1.0, 3.0, 10.0)
MAX_ITERATIONS = 200  # of logistic regression
DEV_FRACTION = 10  # without a dev part, every tenth training example is one
MIN_DF = 1  # as TfidfVectorizer has it


@dataclass(frozen=True)
class LinearTextModel:
    """A linear model and the n-grams that it reads."""

    name: str  # such as "LinearSVC(C=0.3) on TF-IDF of words (1-2)"
    dev_score: float
    features: NgramFeatures
    estimator: Any

    def predict(self, rows: Rows) -> np.ndarray:
        return self.estimator.predict(self.features.transform(rows))


def fit_linear_classifier(
    rows: Rows, gold: Sequence[str], dev_rows: Rows = (), dev_gold: Sequence[str] = ()
) -> LinearTextModel:
    """The best on dev, by accuracy, of a linear SVM and logistic regression on words and on characters.

    >>> texts = [(f"{word} film number {i}",) for i in range(20) for word in ("fine", "dull")]
    >>> fit_linear_classifier(texts, ["+", "-"] * 20).predict([("how dull",)]).tolist()
    ['-']
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    def candidates() -> dict[str, Any]:
        if len(set(gold)) > MANY_LABELS:
            return {"LinearSVC(C=1)": LinearSVC(random_state=0)}
        svms = {f"LinearSVC(C={c:g})": LinearSVC(C=c, random_state=0) for c in SVM_C}
        logistic = {
            f"LogisticRegression(C={c:g})": LogisticRegression(C=c, max_iter=MAX_ITERATIONS) for c in LOGISTIC_C
        }
        return svms | logistic

    def accuracy(predicted: np.ndarray, gold: np.ndarray) -> float:
        return float((predicted == gold).mean())

    return _fit_best(candidates, accuracy, (rows, np.array(gold)), (dev_rows, np.array(dev_gold)))


def fit_ridge(
    rows: Rows, gold: Sequence[float], dev_rows: Rows = (), dev_gold: Sequence[float] = ()
) -> LinearTextModel:
    """The best on dev, by squared error, of ridge regression on words and on characters."""
    from sklearn.linear_model import Ridge

    def candidates() -> dict[str, Any]:
        return {f"Ridge(alpha={alpha:g})": Ridge(alpha=alpha, solver="sparse_cg") for alpha in RIDGE_ALPHA}

    def negative_error(predicted: np.ndarray, gold: np.ndarray) -> float:
        return -float(((predicted - gold) ** 2).mean())

    return _fit_best(candidates, negative_error, (rows, np.array(gold)), (dev_rows, np.array(dev_gold)))


def _fit_best(
    candidates: Callable[[], Mapping[str, Any]],
    score: Callable[[np.ndarray, np.ndarray], float],
    train: tuple[Rows, np.ndarray],
    dev: tuple[Rows, np.ndarray],
) -> LinearTextModel:
    """The candidate with the best dev score; without a dev part, one is taken from the training examples."""
    from warnings import catch_warnings, simplefilter

    if not len(dev[0]):
        held_out = np.arange(len(train[0])) % DEV_FRACTION == DEV_FRACTION - 1
        train, dev = _select(train, ~held_out), _select(train, held_out if held_out.any() else ~held_out)
    best: LinearTextModel | None = None
    kinds: tuple[Kind, ...] = tuple(SIZES)
    for kind in kinds:
        features = NgramFeatures.fit(train[0], [kind], MIN_DF)
        inputs, dev_inputs = features.transform(train[0]), features.transform(dev[0])
        sizes = f"{kind} ({min(SIZES[kind])}-{max(SIZES[kind])})"
        for name, estimator in candidates().items():
            with catch_warnings():
                simplefilter("ignore")  # that a solver has not converged to its last digit
                estimator.fit(inputs, train[1])
            value = score(estimator.predict(dev_inputs), dev[1])
            if best is None or value > best.dev_score:
                best = LinearTextModel(f"{name} on TF-IDF of {sizes}", value, features, estimator)
    assert best is not None
    return best


def _select(part: tuple[Rows, np.ndarray], mask: np.ndarray) -> tuple[Rows, np.ndarray]:
    return [row for row, chosen in zip(part[0], mask, strict=True) if chosen], part[1][mask]
