"""How the tokens of a batch lie in their rows: which are padding, which text each belongs to, which are global."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """What travels with a batch from its text to every attention that reads it.

    >>> Layout()  # one text a row, and nothing is padding
    Layout(keep=None, document_ids=None, global_tokens=None)
    """

    keep: Tensor | None = None  # (B, L) True = real token; None = all real
    document_ids: Tensor | None = (
        None  # (B, L) number of the text that a token is of, where rows hold several; None = one
    )
    global_tokens: Tensor | None = (
        None  # (B, G) positions of tokens that a local mechanism lets everybody see; -1 fills up
    )
