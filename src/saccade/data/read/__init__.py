"""Data file readers: the format is detected from the content, columns by name; errors name file, line and column."""

from saccade.data.read.columns import find_id, parse_columns
from saccade.data.read.formats import FORMATS
from saccade.data.read.reader import hash_data, read_examples, stream_examples, write_rejects

__all__ = ["FORMATS", "find_id", "hash_data", "parse_columns", "read_examples", "stream_examples", "write_rejects"]
