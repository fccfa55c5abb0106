"""What models and tasks hand each other: token ids or pixels, padded into a rectangle, and which of them are real."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from saccade.attention.layout import Layout


@dataclass
class Text:
    """Token ids of several texts; `keep` is None when nothing is padding, so that models need not look."""

    tokens: Tensor  # (B, L)
    keep: Tensor | None = None  # (B, L) True = real
    segment_ids: Tensor | None = None  # (B, L) which part of the input a token belongs to
    global_mask: Tensor | None = (
        None  # (B, L) True = to be seen by all and to see all, such as a question; None = not said
    )
    document_ids: Tensor | None = (
        None  # (B, L) the number of the text that a token is of, where a row holds several; None = one
    )

    @property
    def layout(self) -> Layout:
        """How the tokens lie in their rows, for a stack; which tokens are global, of those that are `marked`, a model decides."""
        return Layout(self.keep, self.document_ids)

    @property
    def keep_mask(self) -> Tensor:
        """Which tokens are real, (B, L): `keep`, or True everywhere where it is None.

        >>> Text.pad([[5, 6], [7]]).keep_mask.tolist(), Text.pad([[5, 6]]).keep_mask.tolist()
        ([[True, True], [True, False]], [[True, True]])
        """
        return torch.ones_like(self.tokens, dtype=torch.bool) if self.keep is None else self.keep

    def gather_last(self, x: Tensor) -> Tensor:
        """Of a value for each token, (B, L, ...), the one of each row's last real token, (B, ...), wherever the padding is.

        >>> Text.pad([[5, 6], [7]]).gather_last(torch.tensor([[1, 2], [3, 4]])).tolist()
        [2, 3]
        """
        if self.keep is None:
            return x[:, -1]
        at = self.keep.size(1) - 1 - self.keep.flip(1).int().argmax(1)
        return x[torch.arange(len(x), device=x.device), at]

    @staticmethod
    def pad(
        rows: Sequence[Sequence[int]],
        *,
        pad_left: bool = False,
        segment_ids: Sequence[Sequence[int]] | None = None,
        global_mask: Sequence[Sequence[bool]] | None = None,
    ) -> "Text":
        """Pad rows of ids to the longest, on the right or on the left, and what goes with them.

        >>> Text.pad([[5, 6], [7]]).keep.tolist()
        [[True, True], [True, False]]
        >>> Text.pad([[5, 6], [7, 8]]).keep is None
        True
        >>> Text.pad([[5, 6], [7]], pad_left=True, global_mask=[[True, False], [True]]).global_mask.tolist()
        [[True, False], [False, True]]
        """
        length = max((len(row) for row in rows), default=0)
        spans = [(length - len(row), length) if pad_left else (0, len(row)) for row in rows]

        def padded(name: str, values: Sequence[Sequence[int]], dtype: torch.dtype = torch.long) -> Tensor:
            if [len(row) for row in values] != [len(row) for row in rows]:
                raise ValueError(
                    f"{name} need a value for each token: texts of {[len(row) for row in rows][:8]} tokens came with "
                    f"{[len(row) for row in values][:8]}."
                )
            out = torch.zeros(len(rows), length, dtype=dtype)
            for i, (row, (start, end)) in enumerate(zip(values, spans, strict=True)):
                out[i, start:end] = torch.tensor(row, dtype=dtype)
            return out

        keep = padded("Texts", [[1] * len(row) for row in rows], torch.bool)
        return Text(
            padded("Texts", rows),
            None if bool(keep.all()) else keep,
            None if segment_ids is None else padded("Segments", segment_ids),
            None if global_mask is None else padded("Marks", global_mask, torch.bool),
        )

    @staticmethod
    def pack(rows: Sequence[Sequence[Sequence[int]]]) -> "Text":
        """Several texts in each row, one after the other; they do not see each other, and each is counted from 0.

        >>> text = Text.pack([[[5, 6], [7]], [[8]]])
        >>> text.tokens.tolist(), text.document_ids.tolist(), text.keep.tolist()
        ([[5, 6, 7], [8, 0, 0]], [[0, 0, 1], [0, 0, 0]], [[True, True, True], [True, False, False]])
        """
        text = Text.pad([[token for one in row for token in one] for row in rows])
        text.document_ids = Text.pad([[number for number, one in enumerate(row) for _ in one] for row in rows]).tokens
        return text

    def to(self, device: torch.device | str) -> "Text":
        values = (self.tokens, self.keep, self.segment_ids, self.global_mask, self.document_ids)
        return Text(*(x if x is None else x.to(device) for x in values))  # type: ignore[arg-type]


@dataclass
class Image:
    """Pixels of several pictures of one size, (B, C, rows, columns)."""

    pixels: Tensor

    def to(self, device: torch.device | str) -> "Image":
        return Image(self.pixels.to(device))


@dataclass
class Features:
    """Several rows of numbers, (B, features)."""

    values: Tensor

    def to(self, device: torch.device | str) -> "Features":
        return Features(self.values.to(device))


@dataclass
class Batch:
    """What goes in, what should come out, and the examples that it was made from."""

    source: Text | Image | Features
    target: Text | None = None
    gold: Tensor | None = None
    items: list[Any] = field(default_factory=list)

    def to(self, device: torch.device | str) -> "Batch":
        target = None if self.target is None else self.target.to(device)
        return Batch(self.source.to(device), target, None if self.gold is None else self.gold.to(device), self.items)
