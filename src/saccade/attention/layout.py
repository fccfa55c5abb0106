"""The layout of a batch: padding mask, document ids of packed rows, and global tokens."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Which tokens of a batch are padding, which packed text each belongs to, and which are global; all layers receive it.

    >>> Layout()  # one text per row, no padding
    Layout(keep=None, document_ids=None, global_tokens=None)
    """

    keep: Tensor | None = None  # (B, L) padding mask: True = real token; None = no padding
    document_ids: Tensor | None = (
        None  # (B, L) which text of a packed row each token belongs to; None = one text per row
    )
    global_tokens: Tensor | None = None  # (B, G) positions of global tokens for local attention; padded with -1
