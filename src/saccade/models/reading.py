"""The heads of readers that were never published: made of the plain parts, as wide as the body they stand on."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from saccade.models.family import Head
from saccade.parts.heads import LabelHead, SpanHead, TagHead, WordHead


def label_head(config: Any, body: Any, labels: int) -> nn.Module:
    """The mean of the real tokens, and a score for each label."""
    return LabelHead(body.width, labels, dropout=config.dropout)


def tag_head(config: Any, body: Any, labels: int) -> nn.Module:
    """A score for each label at each token."""
    return TagHead(body.width, labels, dropout=config.dropout)


def span_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """Where an answer begins and ends."""
    return SpanHead(body.width)


def word_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """A score for each word, by the words' own vectors where the config ties them."""
    tied = body.words.vectors if config.tied else None
    return WordHead(body.width, config.vocab, tied=tied, bias=True)


HEADS: Mapping[str, Head] = {
    "words": Head(word_head),
    "label": Head(label_head),
    "tag": Head(tag_head),
    "span": Head(span_head),
}
