"""Sequence packing: short texts share a row, so that little of a batch is padding (Krell et al. 2021, arXiv 2107.02027)."""

from collections.abc import Sequence


def pack(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Pack texts into rows of at most `limit` tokens by best fit; the rows are lists of indices.

    Each text goes to the row with the least remaining room that it fits into. Texts and rows keep their order; a text above the
    limit gets a row of its own.

    >>> pack([5, 3, 4, 2, 9], 8)
    [[0, 1], [2, 3], [4]]
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; a row has to have room for at least 1 token.")
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}  # rows by the room that they have left
    rooms = 0  # bit n is set if some row has room for exactly n more tokens
    for number, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"Text {number} has {length} tokens; a length has to be 0 or more.")
        enough = rooms >> length << length if length <= limit else 0
        if enough:
            left = (enough & -enough).bit_length() - 1
            row = open_rows[left].pop()
            if not open_rows[left]:
                rooms &= ~(1 << left)
        else:
            left, row = limit, len(rows)
            rows.append([])
        rows[row].append(number)
        if length < left:
            open_rows.setdefault(left - length, []).append(row)
            rooms |= 1 << (left - length)
    return rows
