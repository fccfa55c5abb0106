"""Strings to ids and back: tokenizers that are loaded, trained, saved and streamed, on `tokenizers` and `sentencepiece`."""

from saccade.text.frame import FRAMES, Frame
from saccade.text.load import from_llama2c, load
from saccade.text.stream import Stream
from saccade.text.tokenizer import LIMIT, Encoded, Tokenizer
from saccade.text.train import KINDS, SPECIAL, train

__all__ = [
    "FRAMES",
    "KINDS",
    "LIMIT",
    "SPECIAL",
    "Encoded",
    "Frame",
    "Stream",
    "Tokenizer",
    "from_llama2c",
    "load",
    "train",
]
