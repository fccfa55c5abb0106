"""The wrong predictions of an evaluation, most confident or of the largest error first: as records, as a table, as a file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from saccade.data import Example
from saccade.data.read import find_id
from saccade.data.table_writer import write_table
from saccade.errors import UsageError
from saccade.notebook import html_table
from saccade.tasks.base import ErrorRow
from saccade.tasks.interface.presenting import PROBABILITY_CELL

MAX_MISTAKES_SHOWN = 20
MISTAKE_COLUMNS = ("file", "line", "gold", "answer", "probability")  # of a file without mistakes


@dataclass(frozen=True)
class Mistake:
    """A wrong prediction: its cells in a table of mistakes, and the example with its file and line."""

    row: ErrorRow = field(repr=False)
    example: Example = field(repr=False)

    @property
    def cells(self) -> Mapping[str, str]:
        """The input, the gold answer and the prediction as text, by column."""
        return self.row.cells

    @property
    def confidence(self) -> float:
        """Probability that the model gave to its wrong answer; 0 if unknown."""
        return self.row.confidence

    @property
    def absolute_error(self) -> float | None:
        """Absolute error of a predicted number; None for other predictions."""
        return self.row.absolute_error

    @property
    def id(self) -> Any:
        """The id of the record, if its file has a column of ids."""
        return find_id(self.example.fields)

    def as_dict(self) -> dict[str, Any]:
        """File, line and id of the record, its input, the gold answer, the model's answer, and its probability or error."""
        location = {"file": self.example.file, "line": self.example.line}
        location |= {} if self.id is None else {"id": self.id}
        if self.absolute_error is not None:
            return {**location, **self.cells, **self.row.numbers}
        return {**location, **self.cells, PROBABILITY_CELL: self.confidence or None}

    def __repr__(self) -> str:
        return f"Mistake({', '.join(f'{name}={value!r:.60}' for name, value in self.cells.items())})"


class Mistakes(list[Mistake]):
    """Wrong predictions, most confident or of the largest error first, which a notebook shows as a table."""

    def __getitem__(self, index: Any) -> Any:
        selected = super().__getitem__(index)
        return Mistakes(selected) if isinstance(index, slice) else selected

    def as_dicts(self) -> list[dict[str, Any]]:
        """Each mistake as a dictionary."""
        return [mistake.as_dict() for mistake in self]

    def save(self, path: str | Path) -> Path:
        """Write all mistakes as a table: .csv, .tsv, .jsonl or .parquet, by the suffix of the file."""
        write_table(path, self.as_dicts(), columns=() if self else MISTAKE_COLUMNS)
        return Path(path)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each mistake."""
        try:
            import pandas
        except ImportError:
            raise UsageError("to_pandas needs pandas: pip install pandas.") from None
        return pandas.DataFrame(self.as_dicts())

    def _repr_html_(self) -> str:
        shown = self[:MAX_MISTAKES_SHOWN]
        columns = list(dict.fromkeys(name for mistake in shown for name in mistake.cells))
        rows = [[mistake.cells.get(name, "") for name in columns] for mistake in shown]
        order = "most confident first" if not self or self[0].absolute_error is None else "largest absolute error first"
        return html_table(columns, rows, caption=f"{len(self):,} mistakes, {order}")
