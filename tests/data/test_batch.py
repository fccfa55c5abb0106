"""What a batch of texts says of itself."""

import pytest
import torch

from saccade.data.batch import Text

ROWS = [[5, 6, 7], [8], [9, 5]]


@pytest.mark.parametrize("left", [False, True])
def test_real_picks_each_row_out_of_its_padding(left: bool) -> None:
    text = Text.pad(ROWS, pad_left=left)
    assert [row[real].tolist() for row, real in zip(text.tokens, text.keep_mask, strict=True)] == ROWS


def test_without_padding_every_token_is_real() -> None:
    text = Text(torch.tensor([[0, 0, 3], [4, 0, 0]]))  # 0 is a token as any other
    assert text.keep_mask.dtype == torch.bool
    assert text.keep_mask.shape == (2, 3)
    assert text.keep_mask.all()


def test_real_is_keep_itself_where_it_is_given() -> None:
    text = Text.pad(ROWS)
    assert text.keep_mask is text.keep
