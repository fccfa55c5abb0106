"""Marian's lexical shortlist: files written here in its layout, and the allowed words by brute force."""

import struct

import pytest
import torch

from saccade.data import Text
from saccade.models.foreign.marian_shortlist import MAGIC, read_shortlist

LISTS = [[], [20, 21], [9], [], [8, 9, 10, 11], *([[]] * 18)]  # 23 words


def written(path, lists=LISTS, *, frequent=3, magic=MAGIC):
    starts = [sum(len(one) for one in lists[:n]) for n in range(len(lists) + 1)]
    words = [word for one in lists for word in one]
    head = struct.pack("<6Q", magic, 0, frequent, 4, len(starts), len(words))
    path.write_bytes(head + struct.pack(f"<{len(starts)}Q{len(words)}I", *starts, *words))
    return path


def by_hand(row):
    """The most frequent, the source itself and its lists; then the next frequent ones up to a multiple of eight."""
    found = {0, 1, 2} | set(row) | {word for token in row for word in LISTS[token]}
    for word in range(3, len(LISTS)):
        if len(found) % 8:
            found.add(word)
    return found


def test_what_is_allowed_and_chosen(tmp_path):
    rows = [[4, 2, 1, 4], [22], [12, 13, 14, 15]]
    source = Text.pad(rows)
    shortlist = read_shortlist(written(tmp_path / "lex.bin"))
    allowed = shortlist.allowed_mask(source)
    assert allowed.shape == (3, 23)
    assert [set(row.nonzero()[:, 0].tolist()) for row in allowed] == [by_hand(row) for row in rows]
    scores = torch.randn(3, 23, generator=torch.Generator().manual_seed(1))
    best = [max(by_hand(row), key=lambda word, i=i: scores[i, word].item()) for i, row in enumerate(rows)]
    assert shortlist.make_greedy_step(source)(scores).tolist() == best
    assert scores.argmax(-1).tolist() != best


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda file: file[:20], "20 bytes; a shortlist has from 48"),
        (lambda file: file[:-1], "the file is damaged"),
        (lambda file: b"\0" * 8 + file[8:], "not a binary Marian shortlist"),
        (lambda file: file[:32] + struct.pack("<Q", 2**61) + file[40:], "the file is damaged"),
        (lambda file: file[:16] + struct.pack("<Q", 24) + file[24:], "exceed the file or the vocabulary"),
        (lambda file: file[:56] + struct.pack("<Q", 2**63) + file[64:], "exceed the file or the vocabulary"),
        (lambda file: file[:-4] + struct.pack("<I", 23), "exceed the file or the vocabulary"),
    ],
)
def test_damaged_files_are_refused(tmp_path, damage, said):
    path = written(tmp_path / "lex.bin")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=said):
        read_shortlist(path)
