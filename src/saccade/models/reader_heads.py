"""The heads of readers that were never published: made of the plain parts, as wide as the body they stand on."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from saccade.models.family import HeadSpec
from saccade.parts.heads import ClassificationHead, LMHead, SpanHead, TokenClassificationHead


def label_head(config: Any, body: Any, labels: int) -> nn.Module:
    """The mean of the real tokens, and a score for each label."""
    return ClassificationHead(body.width, labels, dropout=config.dropout)


def tag_head(config: Any, body: Any, labels: int) -> nn.Module:
    """A score for each label at each token."""
    return TokenClassificationHead(body.width, labels, dropout=config.dropout)


def span_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """Where an answer begins and ends."""
    return SpanHead(body.width)


def lm_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """A score for each word, by the words' own vectors where the config ties them."""
    tied = body.words.vectors if config.tie_embeddings else None
    return LMHead(body.width, config.vocab, tied_embedding=tied, bias=True)


HEADS: Mapping[str, HeadSpec] = {
    "lm": HeadSpec(lm_head),
    "label": HeadSpec(label_head),
    "tag": HeadSpec(tag_head),
    "span": HeadSpec(span_head),
}
