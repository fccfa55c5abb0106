"""Files to batches."""

from saccade.data.batch import Batch, Image, Text
from saccade.data.item import DataError, Example, Role, Table

__all__ = ["Batch", "DataError", "Example", "Image", "Role", "Table", "Text"]
