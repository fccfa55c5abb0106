"""Files to batches; so far, the batch itself."""

from saccade.data.batch import Batch, Image, Text

__all__ = ["Batch", "Image", "Text"]
