"""Predictions for a whole data file, written beside its columns: `run.predict_file("new.csv", "predictions.csv")`."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from saccade.data import Example
from saccade.data.read.open_text import UTF8_BOM
from saccade.data.table_writer import TableWriter, check_table_path
from saccade.decoding.config import GenerationConfig
from saccade.errors import DataError, UsageError
from saccade.models.capabilities import Generates
from saccade.progress import track
from saccade.tasks.base import Task
from saccade.tasks.interface.predictions import Prediction
from saccade.tasks.runs.stream_predictor import StreamPredictor

COLUMN_PREFIX = "predicted_"  # of the columns that are added


@dataclass(frozen=True)
class PredictionFile:
    """A file of predictions: its path, the number of its rows, and the bad records of the data that were left out."""

    path: Path
    count: int
    rejects: Sequence[DataError] = ()

    def __str__(self) -> str:
        lines = [f"wrote {self.count:,} predictions to {self.path}"]
        return "; ".join([*lines, *describe_rejects(self.rejects)])


def describe_rejects(rejects: Sequence[DataError]) -> list[str]:
    """A message about bad records that were left out; none if there were none."""
    return [f"{len(rejects):,} bad records were left out; the first: {rejects[0]}"] if rejects else []


def check_output_file(path: str | Path, data: Sequence[str | Path]) -> None:
    """Raise an error for an output file that cannot be written or that is one of the data files, before any work is done."""
    check_table_path(path)
    for file in data:
        if Path(path).exists() and Path(file).exists() and Path(path).samefile(file):
            raise UsageError(f"{path} is also the data; write the predictions to another file.")


def default_decoding(task: Task) -> GenerationConfig | None:
    """Greedy decoding with scores for a task that generates text; None for other tasks."""
    return GenerationConfig() if task.needs.generates is Generates.TARGET else None


def write_predictions(
    path: str | Path,
    predictor: StreamPredictor,
    examples: Iterable[Example],
    *,
    data: Sequence[str | Path] = (),
    rejects: Sequence[DataError] = (),
    progress: bool = True,
) -> PredictionFile:
    """Write the columns of each example and its prediction, in order and in constant memory.

    The new columns are the fields of the prediction, such as predicted_label and predicted_probability. A CSV file begins with a
    byte order mark, by which Excel recognizes UTF-8, if the first file of `data` does.
    """
    check_output_file(path, data)
    pairs = track(predictor.iterate_pairs(examples), progress)
    with TableWriter(path, bom=bool(data) and _has_bom(data[0])) as table:
        for row in _make_rows(pairs):
            table.write(row)
    return PredictionFile(Path(path), table.row_count, rejects)


def _make_rows(pairs: Iterable[tuple[Prediction, Example]]) -> Iterator[dict[str, Any]]:
    names: Callable[[str], str] | None = None
    for prediction, example in pairs:
        values = _input_columns(example)
        values |= _joined_text(values, prediction, example)
        names = names or _choose_names(values)
        yield values | {names(name): value for name, value in prediction.as_row().items()}


def _joined_text(columns: Mapping[str, Any], prediction: Prediction, example: Example) -> dict[str, str]:
    """The column of the text that offsets refer to, for records of words, as of CoNLL; empty for records that have a text."""
    if prediction.offset_text is None or "offsets" in example:
        return {}
    return {"joined_text" if "text" in columns else "text": prediction.offset_text}


def _choose_names(columns: Mapping[str, Any]) -> Callable[[str], str]:
    """Names of the new columns: with a prefix and, if the data has predictions already, a number.

    >>> _choose_names({"text": "good"})("label"), _choose_names({"predicted_label": "good"})("label")
    ('predicted_label', 'predicted_label_2')
    """
    taken = set(columns)

    def choose(name: str) -> str:
        new, number = f"{COLUMN_PREFIX}{name}", 2
        while new in taken:
            new, number = f"{COLUMN_PREFIX}{name}_{number}", number + 1
        return new

    return choose


def _input_columns(example: Example) -> dict[str, Any]:
    """All columns of a record but the pixels of images, or the texts of an example that comes from no file."""
    if example.fields is None:
        return {name: value for name, value in example.values.items() if isinstance(value, str)}
    return {name: value for name, value in example.fields.items() if not _is_binary(value)}


def _is_binary(value: Any) -> bool:
    """Whether a value is the content of an image: bytes, or an array of pixels.

    >>> _is_binary(b"PNG"), _is_binary({"bytes": b"PNG", "path": "a.png"}), _is_binary("a.png")
    (True, True, False)
    """
    if isinstance(value, Mapping):
        return any(map(_is_binary, cast(Mapping[Any, Any], value).values()))
    return isinstance(value, bytes) or hasattr(value, "__array__")


def _has_bom(path: str | Path) -> bool:
    if not Path(path).is_file():
        return False
    with Path(path).open("rb") as file:
        return file.read(len(UTF8_BOM)) == UTF8_BOM
