"""Data file readers: the format is detected from the content, columns by name; errors name file, line and column."""

from saccade.data.read.columns import parse_columns
from saccade.data.read.formats import FORMATS
from saccade.data.read.reader import hash_data, read_examples, stream_examples, write_rejects

__all__ = ["FORMATS", "hash_data", "parse_columns", "read_examples", "stream_examples", "write_rejects"]
