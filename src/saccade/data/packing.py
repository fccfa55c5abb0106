"""Short texts side by side in one row, so that little of a batch is padding."""

from collections.abc import Sequence


def pack(lengths: Sequence[int], limit: int) -> list[list[int]]:
    """Rows of at most `limit` tokens, as numbers of texts: each goes where the least room is left that it still fits in.

    Texts are taken in their order, and so are rows; a text beyond the limit gets a row of its own.

    >>> pack([5, 3, 4, 2, 9], 8)
    [[0, 1], [2, 3], [4]]
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}; a row needs room for 1 token at least.")
    rows: list[list[int]] = []
    open_rows: dict[int, list[int]] = {}  # by the room that is left
    rooms = 0  # a bit for each room that some row has left
    for number, length in enumerate(lengths):
        if length < 0:
            raise ValueError(f"Text {number} has {length} tokens; 0 or more are needed.")
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
