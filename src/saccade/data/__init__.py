"""Data loading: files to examples, splits and padded batches."""

from saccade.data.batch import Audio, Batch, Features, Image, Media, Source, Text
from saccade.data.data_report import DataReport, inspect_data
from saccade.data.example import ROLES, Example, Records, Role
from saccade.data.read import parse_columns, read_examples, stream_examples, write_rejects
from saccade.data.splits import Splits, find_split_files, open_data
from saccade.data.tables import read_table
from saccade.data.writers import write_examples
from saccade.errors import DataError

__all__ = [
    "ROLES",
    "Audio",
    "Batch",
    "DataError",
    "DataReport",
    "Example",
    "Features",
    "Image",
    "Media",
    "Records",
    "Role",
    "Source",
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
]
