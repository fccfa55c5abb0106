"""Predictions as small typed records, one class for each kind of output, and the sequence of them that `predict` returns.

`str(prediction)` is the line that a command prints, and `prediction.as_dict()` is the JSON object of `--json`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar, Self, overload

import numpy as np

from saccade.data import Example
from saccade.data.read import find_id
from saccade.errors import UsageError
from saccade.notebook import html_table

MAX_ROWS_SHOWN = 10
LOCATION_FIELDS = ("id", "line")  # of the record that a prediction is for


@dataclass(frozen=True)
class Prediction:
    """The prediction of a task for one example; each kind of output is a subclass.

    A prediction for a record of a data file has the line of the record, and its id if the file has a column of ids.
    """

    id: str | int | None = field(default=None, kw_only=True, compare=False, repr=False)
    line: int | None = field(default=None, kw_only=True, compare=False, repr=False)

    def locate(self, example: Example) -> Self:
        """The prediction with the id and the line of its record, if it comes from a data file."""
        if example.fields is None:
            return self
        return replace(self, id=find_id(example.fields), line=example.line)

    def as_dict(self) -> dict[str, Any]:
        """The fields as JSON-serializable values, without those that are None."""
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: _to_plain_value(value) for name, value in values.items() if value is not None}

    @property
    def offset_text(self) -> str | None:
        """The text that the offsets of the prediction refer to; None for a prediction without offsets."""
        return None

    def as_row(self) -> dict[str, Any]:
        """The prediction as the cells of a table, the same for all predictions of a model: its fields without id and line."""
        return {name: value for name, value in self.as_dict().items() if name not in LOCATION_FIELDS}

    def _repr_html_(self) -> str:
        return html_table(list(self.as_dict()), [list(self.as_dict().values())])


def _to_plain_value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _to_plain_value(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, tuple | list):
        return [_to_plain_value(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _to_plain_value(part) for key, part in value.items()}
    return value


@dataclass(frozen=True)
class LabelPrediction(Prediction):
    """One label of several.

    >>> print(LabelPrediction("positive", 0.98, {"positive": 0.98, "negative": 0.02}))
    positive 98%
    """

    label: str
    probability: float  # of the label
    probabilities: Mapping[str, float]  # of every label, most probable first

    @classmethod
    def from_scores(cls, label: str, scores: Mapping[str, float]) -> "LabelPrediction":
        return cls(label, scores[label], scores)

    def as_row(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability}

    def __str__(self) -> str:
        return f"{self.label} {self.probability:.0%}"


@dataclass(frozen=True)
class ThresholdPrediction(LabelPrediction):
    """One label of two, where the positive label is predicted from a decision threshold other than one half.

    >>> print(ThresholdPrediction("1", 0.46, {"0": 0.54, "1": 0.46}, positive="1", threshold=0.4))
    1 46% (1 from 40% on)
    """

    positive: str
    threshold: float

    def __str__(self) -> str:
        return f"{super().__str__()} ({self.positive} from {self.threshold:.0%} on)"


@dataclass(frozen=True)
class MultiLabelPrediction(Prediction):
    """Any number of labels.

    >>> print(MultiLabelPrediction(("joy",), {"joy": 0.9, "fear": 0.2}))
    joy 90%
    """

    labels: tuple[str, ...]
    probabilities: Mapping[str, float]  # of every label, most probable first

    def as_row(self) -> dict[str, Any]:
        return {"labels": list(self.labels), "probabilities": dict(self.probabilities)}

    def __str__(self) -> str:
        return ", ".join(f"{label} {self.probabilities[label]:.0%}" for label in self.labels) or "none"


@dataclass(frozen=True)
class Entity:
    """A labeled span of a text, such as a named entity: `text[start:end]`."""

    start: int
    end: int
    text: str
    label: str
    score: float | None = None  # probability of the span's tags, averaged over its words


@dataclass(frozen=True)
class EntitiesPrediction(Prediction):
    """The entities of a text.

    >>> print(EntitiesPrediction("Ada was here.", (Entity(0, 3, "Ada", "PER", 0.99),)))
    Ada (PER)
    """

    text: str
    entities: tuple[Entity, ...]

    @property
    def offset_text(self) -> str:
        return self.text

    def as_row(self) -> dict[str, Any]:
        return {"entities": self.as_dict()["entities"]}

    def __str__(self) -> str:
        return ", ".join(f"{entity.text} ({entity.label})" for entity in self.entities) or "no entities"


@dataclass(frozen=True)
class AnswerPrediction(Prediction):
    """The answer to a question: a span of the context, or None where the context has no answer."""

    question: str
    answer: str | None
    start: int | None
    end: int | None
    score: float  # probability among the best spans and no answer
    no_answer: float  # probability that the context has no answer
    best: tuple[Mapping[str, Any], ...] = ()  # the best spans, each with text, start, end and score

    def as_dict(self) -> dict[str, Any]:
        nothing = {} if self.answer is not None else {"answer": None, "start": None, "end": None}
        return {"question": self.question} | nothing | super().as_dict()

    def as_row(self) -> dict[str, Any]:
        names = ("answer", "start", "end", "score", "no_answer")
        return {name: getattr(self, name) for name in names}

    def __str__(self) -> str:
        return f"{self.answer or 'no answer'}  {self.score:.0%}"


@dataclass(frozen=True)
class TextPrediction(Prediction):
    """A generated text: a translation, a summary or a caption."""

    text: str
    score: float | None = None  # score of the decoder, such as the length-normalized log-probability of a beam
    alignment: str | None = None  # word alignment in the Pharaoh format: 0-0 1-2
    image: str | None = None  # file of the image that a caption describes

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class TimedWord:
    """A word of a transcript, and when it is said, in seconds from the start of the recording."""

    text: str
    start: float
    end: float


@dataclass(frozen=True)
class TranscriptPrediction(Prediction):
    """The text that is spoken in a recording, and the times of its words.

    >>> print(TranscriptPrediction("yes please", (TimedWord("yes", 0.1, 0.3), TimedWord("please", 0.4, 0.8))))
    yes please
    """

    text: str
    words: tuple[TimedWord, ...] = ()
    audio: str | None = None  # file of the recording

    def __str__(self) -> str:
        return self.text


def _format_number(value: float) -> str:
    """
    >>> _format_number(3.84712), _format_number(123456.7)
    ('3.847', '123457')
    """
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


@dataclass(frozen=True)
class NumberPrediction(Prediction):
    """A number, with the interval in which the true value lies in 90 % of held-out examples, where one was calibrated.

    >>> print(NumberPrediction(3.25), NumberPrediction(3.25, 2.5, 4.0))
    3.25 3.25 (2.5–4)
    """

    value: float
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return _format_number(self.value)
        return f"{_format_number(self.value)} ({_format_number(self.low)}–{_format_number(self.high)})"


@dataclass(frozen=True)
class ImagePrediction(Prediction):
    """An image painted for a text, as a PNG file in base64."""

    text: str
    png: str
    width: int
    height: int

    def __str__(self) -> str:
        return f"{self.text}: {self.width} x {self.height} pixels; saccade paint writes a file"


@dataclass(frozen=True)
class MeasuredPrediction(Prediction):
    """Measurements of a text or an image, such as its perplexity, for tasks that predict no label."""

    summary: str
    values: Mapping[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def as_dict(self) -> dict[str, Any]:
        location = {name: value for name, value in super().as_dict().items() if name in LOCATION_FIELDS}
        return location | dict(self.values)

    def __str__(self) -> str:
        return self.summary


class Predictions(Sequence[Prediction]):
    """Predictions in the order of their examples.

    >>> given = Predictions([LabelPrediction("good", 0.75, {"good": 0.75, "bad": 0.25})], labels=("bad", "good"))
    >>> given[0].label, given.labels, given.probabilities.tolist()
    ('good', ('bad', 'good'), [[0.25, 0.75]])
    >>> given
    Predictions(1)
    0  good 75%
    """

    def __init__(self, predictions: Iterable[Prediction], *, labels: Sequence[str] = (), index: Any = None):
        self._items = list(predictions)
        self.labels: tuple[str, ...] = tuple(
            labels
        )  # the labels of the model, in the order of the columns of `probabilities`
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

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @property
    def probabilities(self) -> np.ndarray:
        """The probability of each label, (examples, labels); the columns are in the order of `labels`."""
        rows = [getattr(item, "probabilities", None) for item in self._items]
        if not self.labels or any(row is None for row in rows):
            kind = type(self._items[0]).__name__ if self._items else "no predictions"
            raise UsageError(f"Only label predictions have probabilities; got {kind}.")
        return np.array([[row[label] for label in self.labels] for row in rows if row is not None]).reshape(
            len(rows), len(self.labels)
        )

    def as_dicts(self) -> list[dict[str, Any]]:
        """Each prediction as a dictionary, as `saccade predict --json` prints it."""
        return [item.as_dict() for item in self._items]

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a column for each field and the index of the data, if it had one."""
        try:
            import pandas
        except ImportError:
            hint = "Install it with pip install pandas, or use as_dicts(), which returns dictionaries."
            raise UsageError(f"to_pandas needs pandas. {hint}") from None
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
