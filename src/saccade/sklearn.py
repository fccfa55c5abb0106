"""scikit-learn estimators: `TextClassifier` and `TextRegressor` work in `Pipeline`, `cross_val_score`, `GridSearchCV` and pickle.

    from saccade.sklearn import TextClassifier
    cross_val_score(TextClassifier(epochs=5), texts, labels, cv=5)

`fit` trains a run in a temporary directory, or in `out`; `run_` is that run. A pickle holds the files of the run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Self
from weakref import finalize

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from saccade.api.run import Run
from saccade.api.train import train as train_run
from saccade.tasks.interface.predictions import NumberPrediction

RESERVED_LABELS = ("", "?", "-1", "nan")  # which a data file may use for a label that is not known
PICKLED_FILES = ("config.toml", "result.json")  # of a run, besides its model


class _TextEstimator(BaseEstimator):
    """What both estimators share: one text per example in, a run of a task behind it."""

    _task: str

    def __init__(
        self,
        *,
        model: str = "",
        minutes: float | None = None,
        epochs: int | None = None,
        lr: float | None = None,
        architecture: Mapping[str, Any] | None = None,
        task: Mapping[str, Any] | None = None,
        train: Mapping[str, Any] | None = None,
        out: str | Path | None = None,
        engine: str = "auto",
        random_state: int = 0,
    ):
        self.model = model
        self.minutes = minutes
        self.epochs = epochs
        self.lr = lr
        self.architecture = architecture
        self.task = task
        self.train = train
        self.out = out
        self.engine = engine
        self.random_state = random_state

    def _fit(self, texts: Sequence[str], targets: Sequence[Any], role: str) -> Self:
        if len(texts) != len(targets):
            raise ValueError(f"X has {len(texts)} texts and y {len(targets)} values; give one value for each text.")
        directory = self._make_directory() / "run" if self.out is None else Path(self.out)
        given = {"epochs": self.epochs, "lr": self.lr}
        settings = {name: value for name, value in given.items() if value is not None}
        rows = [{"text": text, role: target} for text, target in zip(texts, targets, strict=True)]
        self.run_ = train_run(
            self._task,
            rows,
            out=directory,
            model=self.model,
            columns={"text": "text", role: role},
            minutes=self.minutes,
            architecture=self.architecture,
            task=self.task,
            train={"seed": self.random_state, **settings, **(self.train or {})},
            on_event=lambda event: None,
        )
        return self

    def _make_directory(self) -> Path:
        """A temporary directory that is removed with this estimator."""
        directory = mkdtemp(prefix="saccade-")
        finalize(self, rmtree, directory, ignore_errors=True)
        return Path(directory)

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(vars(self))
        run = state.pop("run_", None)
        if run is not None:
            state["_files"] = _read_run_files(Path(run.path))
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        files = state.pop("_files", None)
        vars(self).update(state)
        if files is not None:
            directory = self._make_directory() / "run"
            for name, content in files.items():
                path = directory / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.run_ = Run(directory)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.target_tags.required = True
        return tags


class TextClassifier(ClassifierMixin, _TextEstimator):
    """Text classification as a scikit-learn estimator.

    Args:
        model: Weights to start from, or the name of a family; see `saccade.train`.
        minutes: Time budget of a fit.
        epochs: Passes over the training data; default: chosen by the data.
        lr: Learning rate; default: chosen by the data.
        architecture, task, train: Further settings by name; see `saccade.train`.
        out: Directory of the run; default: a temporary one, which lives as long as the estimator.
        engine: Engine of inference; see `Run.predict`.
        random_state: Seed of training.

    Attributes:
        classes_: The labels, sorted, in the order of the columns of `predict_proba`.
        run_: The trained run.
    """

    _task = "label"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their labels."""
        texts = _as_texts(X, 1)
        check_classification_targets(y)
        self.classes_, codes = np.unique(np.asarray(y), return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y has one class, {self.classes_[0]!r}; a classifier needs two or more.")
        names = _label_names(self.classes_)
        self._fit(texts, [names[code] for code in codes], "label")
        self._columns = [self.run_.task.labels.index(name) for name in names]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (texts, classes)."""
        check_is_fitted(self, "run_")
        texts = _as_texts(X)
        if not texts:
            return np.zeros((0, len(self.classes_)))
        return self.run_.predict(texts, engine=self.engine, progress=False).probabilities[:, self._columns]

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each text."""
        best = self.predict_proba(X).argmax(1)
        return self.classes_[best]


class TextRegressor(RegressorMixin, _TextEstimator):
    """Regression on texts as a scikit-learn estimator, such as the number of stars of a review; see `TextClassifier`."""

    _task = "grade"

    def fit(self, X: Any, y: Any) -> Self:
        """Train on texts and their numbers."""
        return self._fit(_as_texts(X, 1), np.asarray(y, dtype=float).tolist(), "score")

    def predict(self, X: Any) -> np.ndarray:
        """The number of each text."""
        check_is_fitted(self, "run_")
        found = self.run_.predict(_as_texts(X), engine=self.engine, progress=False)
        return np.array([one.value for one in found if isinstance(one, NumberPrediction)])


def _as_texts(X: Any, min_examples: int = 0) -> list[str]:
    """The texts of a list, a Series, an array or a frame with one column."""
    values = np.asarray(X, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    texts = values.tolist()
    if values.ndim != 1 or not all(isinstance(text, str) for text in texts):
        raise ValueError("X has to be one-dimensional, with a string for each example; select the column of the text.")
    if len(texts) < min_examples:
        raise ValueError("X has no texts; at least one is needed.")
    return texts


def _label_names(classes: np.ndarray) -> list[str]:
    """A label for each class: the class itself where it is a text that no data file takes for a missing label.

    >>> _label_names(np.array(["bad", "good"])), _label_names(np.array([-1, 1]))
    (['bad', 'good'], ['class 0', 'class 1'])
    """
    names = [value if isinstance(value, str) else "" for value in classes.tolist()]
    plain = all(name.strip() == name and name.lower() not in RESERVED_LABELS for name in names)
    return names if plain else [f"class {number}" for number in range(len(classes))]


def _read_run_files(directory: Path) -> dict[str, bytes]:
    """The files of a run that predictions need: its model, its settings and its scores."""
    paths = [directory / name for name in PICKLED_FILES] + sorted((directory / "model").rglob("*"))
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths if path.is_file()}
