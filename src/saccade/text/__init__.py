"""Tokenizers: encode text as token ids and decode it; load, train, save, stream; built on `tokenizers` and `sentencepiece`."""

from saccade.text.loading.load import load_llama2c_tokenizer, load_tokenizer
from saccade.text.special_tokens import TEMPLATES, SpecialTokenTemplate
from saccade.text.stream_decoder import StreamDecoder
from saccade.text.tokenizer import MAX_TEXT_CHARACTERS, Encoding, Tokenizer
from saccade.text.train import SPECIAL_TOKENS, TOKENIZER_KINDS, train_tokenizer

__all__ = [
    "MAX_TEXT_CHARACTERS",
    "SPECIAL_TOKENS",
    "TEMPLATES",
    "TOKENIZER_KINDS",
    "Encoding",
    "SpecialTokenTemplate",
    "StreamDecoder",
    "Tokenizer",
    "load_llama2c_tokenizer",
    "load_tokenizer",
    "train_tokenizer",
]
