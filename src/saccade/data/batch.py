"""Batches: token ids, images, sound or features of several examples, padded to one length, with the mask that marks padding.

Every kind of source has `keep`, the padding mask of its positions or None, and `row`, one row of it without padding; those that
are not a text also have `values`, their tensor, and `join`, which makes a batch of several.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from saccade.attention.layout import Layout


@dataclass
class Text:
    """Token ids of a batch of texts; `keep`, the padding mask, is None where nothing is padding."""

    tokens: Tensor  # (B, L)
    keep: Tensor | None = None  # (B, L) True at tokens, False at padding
    segment_ids: Tensor | None = None  # (B, L) the segment of each token, as in BERT's token_type_ids
    global_mask: Tensor | None = (
        None  # (B, L) True at tokens with global attention, such as a question; None = unspecified
    )
    document_ids: Tensor | None = (
        None  # (B, L) the text that a token belongs to, in rows of packed texts; None = one per row
    )

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def layout(self) -> Layout:
        """The layout that a stack reads. Which tokens have global attention is decided by the model, from `global_mask`."""
        return Layout(self.keep, self.document_ids)

    @property
    def keep_mask(self) -> Tensor:
        """The padding mask, (B, L), True at tokens: `keep`, or all True where that is None.

        >>> Text.pad([[5, 6], [7]]).keep_mask.tolist(), Text.pad([[5, 6]]).keep_mask.tolist()
        ([[True, True], [True, False]], [[True, True]])
        """
        return torch.ones_like(self.tokens, dtype=torch.bool) if self.keep is None else self.keep

    def gather_last(self, x: Tensor) -> Tensor:
        """Select from (B, L, ...) the value at the last token of each row, (B, ...), with padding on either side.

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
        """Pad rows of token ids, their segments and their global mask to the longest row, on the right or on the left.

        >>> Text.pad([[5, 6], [7]]).keep.tolist()
        [[True, True], [True, False]]
        >>> Text.pad([[5, 6], [7, 8]]).keep is None
        True
        >>> Text.pad([[5, 6], [7]], pad_left=True, global_mask=[[True, False], [True]]).global_mask.tolist()
        [[True, False], [False, True]]
        """
        length = max((len(row) for row in rows), default=0)
        spans = [(length - len(row), length) if pad_left else (0, len(row)) for row in rows]

        def pad_rows(name: str, values: Sequence[Sequence[int]], dtype: torch.dtype = torch.long) -> Tensor:
            if [len(row) for row in values] != [len(row) for row in rows]:
                raise ValueError(
                    f"{name} has to have one value for each token: got {[len(row) for row in values][:8]} values for texts of "
                    f"{[len(row) for row in rows][:8]} tokens."
                )
            out = torch.zeros(len(rows), length, dtype=dtype)
            for i, (row, (start, end)) in enumerate(zip(values, spans, strict=True)):
                out[i, start:end] = torch.tensor(row, dtype=dtype)
            return out

        keep = pad_rows("keep", [[1] * len(row) for row in rows], torch.bool)
        return Text(
            pad_rows("tokens", rows),
            None if bool(keep.all()) else keep,
            None if segment_ids is None else pad_rows("segment_ids", segment_ids),
            None if global_mask is None else pad_rows("global_mask", global_mask, torch.bool),
        )

    @staticmethod
    def pack(rows: Sequence[Sequence[Sequence[int]]]) -> "Text":
        """Pack several texts into each row: they do not attend to each other, and the positions of each begin at 0.

        >>> text = Text.pack([[[5, 6], [7]], [[8]]])
        >>> text.tokens.tolist(), text.document_ids.tolist(), text.keep.tolist()
        ([[5, 6, 7], [8, 0, 0]], [[0, 0, 1], [0, 0, 0]], [[True, True, True], [True, False, False]])
        """
        text = Text.pad([[token for document in row for token in document] for row in rows])
        ids = [[number for number, document in enumerate(row) for _ in document] for row in rows]
        text.document_ids = Text.pad(ids).tokens
        return text

    def row(self, index: int) -> "Text":
        """One row without padding; (B, L) values other than its tokens are kept, too."""
        kept = slice(None) if self.keep is None else self.keep[index]
        values = (self.segment_ids, self.global_mask, self.document_ids)
        return Text(
            self.tokens[index, kept][None], None, *(None if x is None else x[index, kept][None] for x in values)
        )

    def to(self, device: torch.device | str) -> "Text":
        values = (self.tokens, self.keep, self.segment_ids, self.global_mask, self.document_ids)
        return Text(*(x if x is None else x.to(device) for x in values))  # type: ignore[arg-type]


@dataclass
class Image:
    """Pixels of a batch of images of one size, (B, C, rows, columns)."""

    pixels: Tensor
    keep: ClassVar[None] = None

    @property
    def values(self) -> Tensor:
        return self.pixels

    def __len__(self) -> int:
        return len(self.pixels)

    def to(self, device: torch.device | str) -> "Image":
        return Image(self.pixels.to(device))

    def row(self, index: int) -> "Image":
        return Image(self.pixels[index : index + 1])

    @staticmethod
    def join(sources: Sequence["Image"]) -> "Image":
        return Image(torch.cat([source.pixels for source in sources]))


@dataclass
class Audio:
    """Log-mel spectrograms of a batch of recordings; `keep`, the padding mask, is None where nothing is padding."""

    frames: Tensor  # (B, T, M)
    keep: Tensor | None = None  # (B, T) True at frames, False at padding

    @property
    def values(self) -> Tensor:
        return self.frames

    def __len__(self) -> int:
        return len(self.frames)

    @staticmethod
    def pad(rows: Sequence[Tensor]) -> "Audio":
        """Pad spectrograms (T, M) to the longest one, on the right.

        >>> audio = Audio.pad([torch.ones(2, 3), torch.ones(1, 3)])
        >>> audio.frames.shape, audio.keep.tolist(), len(audio.row(1).frames[0])
        (torch.Size([2, 2, 3]), [[True, True], [True, False]], 1)
        """
        lengths = torch.tensor([len(row) for row in rows])
        keep = torch.arange(int(lengths.max())) < lengths[:, None]
        return Audio(pad_sequence(list(rows), batch_first=True), None if bool(keep.all()) else keep.to(rows[0].device))

    def to(self, device: torch.device | str) -> "Audio":
        return Audio(self.frames.to(device), None if self.keep is None else self.keep.to(device))

    def row(self, index: int) -> "Audio":
        frames = self.frames[index]
        return Audio((frames if self.keep is None else frames[self.keep[index]])[None])

    @staticmethod
    def join(sources: Sequence["Audio"]) -> "Audio":
        return Audio.pad([source.row(index).frames[0] for source in sources for index in range(len(source))])


@dataclass
class Features:
    """Numeric features of a batch, (B, features)."""

    values: Tensor
    keep: ClassVar[None] = None

    def __len__(self) -> int:
        return len(self.values)

    def to(self, device: torch.device | str) -> "Features":
        return Features(self.values.to(device))

    def row(self, index: int) -> "Features":
        return Features(self.values[index : index + 1])

    @staticmethod
    def join(sources: Sequence["Features"]) -> "Features":
        return Features(torch.cat([source.values for source in sources]))


Media = Image | Audio | Features  # a source that is not a text
Source = Text | Media


@dataclass
class Batch:
    """The inputs, the target text or the gold labels, and the encoded examples that they were made from."""

    source: Source
    target: Text | None = None
    gold: Tensor | None = None
    items: list[Any] = field(default_factory=list)

    def to(self, device: torch.device | str) -> "Batch":
        target = None if self.target is None else self.target.to(device)
        return Batch(self.source.to(device), target, None if self.gold is None else self.gold.to(device), self.items)
