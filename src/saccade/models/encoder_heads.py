"""Default heads of the text encoders without a published form: lm, label, tag and span."""

from collections.abc import Mapping
from typing import Any

from torch import nn

from saccade.models.family import HeadSpec
from saccade.parts.heads import ClassificationHead, LMHead, SpanHead, TokenClassificationHead


def label_head(config: Any, body: Any, labels: int) -> nn.Module:
    """Classification head: mean pooling, then a logit per label."""
    return ClassificationHead(body.width, labels, dropout=config.dropout)


def tag_head(config: Any, body: Any, labels: int) -> nn.Module:
    """Token classification head: a logit per label for each token."""
    return TokenClassificationHead(body.width, labels, dropout=config.dropout)


def span_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """Span head: start and end logits for each token."""
    return SpanHead(body.width)


def lm_head(config: Any, body: Any, labels: int = 0) -> nn.Module:
    """Language model head, tied to the token embeddings if the config says so."""
    tied = body.words.vectors if config.tie_embeddings else None
    return LMHead(body.width, config.vocab, tied_embedding=tied, bias=True)


HEADS: Mapping[str, HeadSpec] = {
    "lm": HeadSpec(lm_head),
    "label": HeadSpec(label_head),
    "tag": HeadSpec(tag_head),
    "span": HeadSpec(span_head),
}
