"""Files to examples: the format is told by looking at the file, the columns by their names, and a bad record by its place."""

from saccade.data.read.columns import parse_columns
from saccade.data.read.formats import FORMATS
from saccade.data.read.reading import digest, read, stream, write_rejects

__all__ = ["FORMATS", "digest", "parse_columns", "read", "stream", "write_rejects"]
