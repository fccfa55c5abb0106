"""Windows of records: half of them begin where a record does, as a text that is written does."""

import numpy as np
import pytest

from saccade.data import Example
from saccade.models.build import new
from saccade.models.families import transformer
from saccade.tasks.batches import make_batches
from saccade.tasks.language import Config, Language
from saccade.text.train import train_tokenizer

TUNES = [f"X: {number}\nK:G\n" + "ABc|" * (3 + 40 * (number % 7 == 0)) + "\n\n" for number in range(60)]


def _feed(check: str):
    task = Language(Config(max_tokens=64, record_format=check))
    tokenizer = train_tokenizer(TUNES, "characters")
    model = new("transformer_lm", transformer.Config(vocab=tokenizer.vocab, width=8, layers=1, heads=1, ffn_width=8))
    model.tokenizer = tokenizer
    examples = [Example({"text": tune}) for tune in TUNES]
    ids = task.encode_stream(examples, model)
    return task, make_batches(task, examples, model, batch_tokens=256), ids, model


@pytest.mark.parametrize("check", ["abc", "none"])
def test_every_other_window_begins_where_its_record_does(check):
    _, found, ids, model = _feed(check)
    tokenizer = model.tokenizer
    text = tokenizer.decode(ids.tolist(), keep_special_tokens=True)
    windows = [item for step in range(found.count_steps(3)) for batch in found.batches(step) for item in batch.items]
    begun = 0
    for item in windows:
        row = tokenizer.decode(np.append(item.source, item.gold[-1:]).tolist(), keep_special_tokens=True)
        assert len(item.source) == 64
        assert row in text  # a window is a piece of the text, wherever it begins
        begun += row.startswith("\n\nX:")
    # half of them, but for those that begin over 64 characters behind the beginning of a long tune
    assert (0.3 if check == "abc" else 0.0) <= begun / len(windows) <= (0.6 if check == "abc" else 0.1)


def test_what_a_step_reads_does_not_depend_on_what_was_read_before():
    _, found, _, _ = _feed("abc")
    again = _feed("abc")[1]
    for step in (5, 2, 9, 5):
        for one, two in zip(found.batches(step), again.batches(step), strict=True):
            assert one.source.tokens.equal(two.source.tokens)


def test_text_that_is_no_row_of_records_has_no_beginnings():
    task, _, ids, model = _feed("none")
    assert task.find_record_starts(ids, model) is None
