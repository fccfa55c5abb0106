"""Flags and inputs that all prediction commands share: the file of predictions, the batch size, and bad records of the data."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from saccade.cli.argument_types import optional_argument
from saccade.errors import DataError, UsageError


@dataclass(frozen=True)
class PredictionFlags:
    """Output file, batch size, and handling of bad records."""

    out: Annotated[str, optional_argument("FILE")] = ""
    """Write the predictions to a file, as columns added to those of the data: .csv, .tsv, .jsonl or .parquet."""
    batch_size: Annotated[int | None, optional_argument("INT")] = None
    """Batch size: number of examples per forward pass. Default: as many as fit in 8,192 tokens."""
    on_bad_record: Literal["error", "skip"] = "error"
    """Bad records: stop at the first one (error), or leave them out (skip)."""
    max_bad_fraction: float = 0.01
    """Maximum fraction of bad records that may be skipped."""


PredictionFileFlags = Annotated[tyro.conf.OmitArgPrefixes[PredictionFlags], tyro.conf.arg(name="prediction")]


@dataclass(frozen=True)
class Inputs:
    """Inputs of a prediction: texts of the command line, data files or, without either, standard input."""

    texts: Sequence[str]
    data: Sequence[str]
    columns: str
    flags: PredictionFlags = PredictionFlags()
    rejects: list[DataError] = field(default_factory=list)  # bad records of the data files that were left out

    def check_output(self, *, as_json: bool) -> None:
        """Raise an error for an output file that cannot be written, before the model is loaded."""
        if not self.flags.out:
            return
        from saccade.api.prediction_file import check_output_file

        if as_json:
            raise UsageError(
                "--json prints the predictions and --out writes them to a file; use --out FILE.jsonl for JSON."
            )
        check_output_file(self.flags.out, self.data)
