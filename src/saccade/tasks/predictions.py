"""`Predictions`: the predictions of a task for many examples, as a sequence that prints well and turns into a DataFrame."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from saccade.errors import UsageError
from saccade.notebook import html_table
from saccade.tasks.interface.predictions import Prediction

MAX_ROWS_SHOWN = 10


class Predictions(Sequence[Prediction]):
    """Predictions in the order of their examples.

    >>> from saccade.tasks.interface.predictions import LabelPrediction
    >>> given = Predictions([LabelPrediction("good", 0.75, {"good": 0.75, "bad": 0.25})], labels=("bad", "good"))
    >>> given[0].label, given.labels, given.probabilities.tolist()
    ('good', ('bad', 'good'), [[0.25, 0.75]])
    >>> given
    Predictions(1)
    0  good 75%
    """

    def __init__(self, predictions: Iterable[Prediction], *, labels: Sequence[str] = (), index: Any = None):
        self._items = list(predictions)
        self.labels = tuple(labels)  # the labels of the model, in the order of the columns of `probabilities`
        self.row_index = index  # the index of the pandas object that the examples came in

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Prediction: ...
    @overload
    def __getitem__(self, index: slice) -> "Predictions": ...
    def __getitem__(self, index: int | slice) -> "Prediction | Predictions":
        if isinstance(index, slice):
            part = None if self.row_index is None else self.row_index[index]
            return Predictions(self._items[index], labels=self.labels, index=part)
        return self._items[index]

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self._items)

    def __eq__(self, other: object) -> bool:
        return self._items == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @property
    def probabilities(self) -> np.ndarray:
        """The probability of each label, (examples, labels); the columns are in the order of `labels`."""
        rows = [getattr(item, "probabilities", None) for item in self._items]
        if not self.labels or any(row is None for row in rows):
            kind = type(self._items[0]).__name__ if self._items else "no predictions"
            raise UsageError(f"Probabilities are those of labels, and these are predictions of another kind: {kind}.")
        return np.array([[row[label] for label in self.labels] for row in rows if row is not None]).reshape(
            len(rows), len(self.labels)
        )

    def as_dicts(self) -> list[dict[str, Any]]:
        """Every prediction as plain values, as `saccade predict --json` prints them."""
        return [item.as_dict() for item in self._items]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a column for each field and the index of the data, if it had one."""
        try:
            import pandas
        except ImportError:
            raise UsageError(
                "to_pandas needs pandas: pip install pandas. as_dicts() gives plain dictionaries."
            ) from None
        return pandas.DataFrame(self.as_dicts(), index=self.row_index)

    def __repr__(self) -> str:
        lines = [f"{number}  {item}" for number, item in enumerate(self._items[:MAX_ROWS_SHOWN])]
        more = [f"... and {len(self) - MAX_ROWS_SHOWN:,} more"] if len(self) > MAX_ROWS_SHOWN else []
        return "\n".join([f"Predictions({len(self):,})", *lines, *more])

    def _repr_html_(self) -> str:
        rows = self.as_dicts()[:MAX_ROWS_SHOWN]
        columns = list(dict.fromkeys(name for row in rows for name in row))
        return html_table(
            columns, [[row.get(name, "") for name in columns] for row in rows], caption=f"{len(self):,} predictions"
        )
