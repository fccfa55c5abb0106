"""Data loading: files to examples, splits and padded batches."""

from saccade.data.batch import Batch, Features, Image, Text
from saccade.data.data_report import DataReport, inspect_data
from saccade.data.example import ROLES, Example, Records, Role
from saccade.data.read import parse_columns, read_examples, stream_examples, write_rejects
from saccade.data.splits import Splits, find_split_files, open_data
from saccade.data.table_writer import write_table
from saccade.data.tables import read_table
from saccade.data.writers import write_examples
from saccade.errors import DataError

__all__ = [
    "ROLES",
    "Batch",
    "DataError",
    "DataReport",
    "Example",
    "Features",
    "Image",
    "Records",
    "Role",
    "Splits",
    "Text",
    "find_split_files",
    "inspect_data",
    "open_data",
    "parse_columns",
    "read_examples",
    "read_table",
    "stream_examples",
    "write_examples",
    "write_rejects",
    "write_table",
]
