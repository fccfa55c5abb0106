"""Files to batches."""

from saccade.data.batch import Batch, Image, Points, Text
from saccade.data.check import Facts, examine
from saccade.data.item import ROLES, Example, Role, Table
from saccade.data.read import parse_columns, read, stream, write_rejects
from saccade.data.split import Splits, open_data, splits
from saccade.data.write import write
from saccade.errors import DataError

__all__ = [
    "ROLES",
    "Batch",
    "DataError",
    "Example",
    "Facts",
    "Image",
    "Points",
    "Role",
    "Splits",
    "Table",
    "Text",
    "examine",
    "open_data",
    "parse_columns",
    "read",
    "splits",
    "stream",
    "write",
    "write_rejects",
]
