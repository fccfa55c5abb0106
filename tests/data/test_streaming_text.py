"""Running text that is too large to be held gives the same tokens as one that is held, and a run that goes on."""

import numpy as np
import pytest

from saccade.data.example import TEXT_LINE
from saccade.data.splits import open_data
from saccade.data.streaming import text
from saccade.data.streaming.text import StreamedExamples
from saccade.errors import DataError
from saccade.training.prepare import Job, prepare
from saccade.training.run import Message, RunResult, run_training

TINY = {"width": 16, "layers": 1, "ffn_width": 32, "heads": 2}


@pytest.fixture
def story(tmp_path):
    path = tmp_path / "story.txt"
    path.write_text("".join(f"line {i} of {i * i} and a little more of it\n" for i in range(3000)), encoding="utf-8")
    return path


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(text, "MIN_STREAMED_BYTES", 1000)
    monkeypatch.setattr(text, "MAX_SAMPLE_CHARACTERS", 20_000)
    monkeypatch.setattr(text, "MAX_DEV_CHARACTERS", 5_000)


def test_the_whole_text_is_there_once(story, small):
    found = open_data([story], [TEXT_LINE], contiguous=True)
    assert isinstance(found.train.examples, StreamedExamples)
    whole = "".join(e["text"] for e in found.train.examples) + "".join(e["text"] for e in found.dev.examples)
    assert whole == story.read_text(encoding="utf-8")
    assert 4_000 < sum(len(e["text"]) for e in found.dev.examples) < 6_000
    held = {e["text"] for e in found.dev.examples}
    assert not held & {e["text"] for e in found.train.examples.sample}
    assert 10_000 < sum(len(e["text"]) for e in found.train.examples.sample) < 60_000
    assert found.train.examples[7]["text"].startswith("line 7 of 49")
    assert any("not held in memory" in line for line in found.notes)


def test_shelved_tokens_are_those_of_the_text_in_memory(story, small, tmp_path):
    made = prepare(Job("language", (str(story),), model_fields=TINY, task_fields={"max_tokens": 32}))
    assert list(made.write_token_shards(tmp_path / "tokens"))[-1].endswith(f"tokens into {tmp_path / 'tokens'}")
    held = list(made.splits.train.examples)
    assert np.array_equal(made.token_shards[0 : len(made.token_shards)], made.task.encode_stream(held, made.model))
    feed = made.make_batches()
    assert feed.size == len(made.token_shards)
    batch = feed.batches(3)[0]
    row = batch.items[0]
    assert np.array_equal(row.source[1:], row.gold[:-1])


def test_a_dev_file_is_held_and_the_training_file_is_not(story, small, tmp_path):
    dev = tmp_path / "dev.txt"
    dev.write_text("line 1 of 1 and more\nline 2 of 4\n", encoding="utf-8")
    train = story.rename(tmp_path / "train.txt")
    found = open_data([train, dev], [TEXT_LINE], contiguous=True)
    assert len(found.train.examples) == 3000
    assert len(found.dev.examples) == 2


def test_a_run_tokenises_once_and_goes_on(story, small, tmp_path):
    def job(steps):
        fields = {"max_steps": steps, "batch_tokens": 256, "max_eval_examples": 4, "epochs": 1}
        return prepare(
            Job("language", (str(story),), model_fields=TINY, task_fields={"max_tokens": 32}, train_fields=fields)
        )

    out = tmp_path / "run"
    first = list(run_training(job(3), out))
    assert isinstance(first[-1], RunResult)
    written = (out / "tokens" / "00000.bin").stat().st_mtime_ns
    second = list(run_training(job(5), out))
    assert (out / "tokens" / "00000.bin").stat().st_mtime_ns == written
    assert any(isinstance(event, Message) and "resuming at step 3" in event.text for event in second)
    assert second[-1].steps == 5


def test_one_endless_line_is_refused(small, tmp_path):
    path = tmp_path / "endless.txt"
    path.write_text("a b " * 2000, encoding="utf-8")
    with pytest.raises(DataError, match="Break it into lines"):
        open_data([path], [TEXT_LINE], contiguous=True)
