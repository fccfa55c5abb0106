"""Settings that make no sense for a task are refused before anything is read or learnt, and nothing that is bad is lost."""

import json

import numpy as np
import pytest

from saccade.cli import main
from saccade.data import Example
from saccade.tasks.caption import _image_key
from saccade.tasks.pretrain import Pretrain
from saccade.tasks.registry import TASKS, task_class
from saccade.training.prepare import Job, prepare

CHOOSING = [task.name for task in TASKS if task.metric_names]


@pytest.mark.parametrize("name", CHOOSING)
def test_a_metric_that_is_none_is_refused_with_those_that_are(name):
    kind = task_class(name)
    for known in kind.metric_names:
        kind(kind.Config(metric=known))
    with pytest.raises(ValueError, match=rf"task.metric is 'blue'; known are {kind.metric_names[0]}"):
        kind(kind.Config(metric="blue"))


def test_paint_learns_from_whole_steps():
    with pytest.raises(ValueError, match=r"paint cannot split a step into micro-batches; drop train\.micro_batches"):
        prepare(Job("paint", train_fields={"micro_batches": 2}))


def test_every_objective_can_be_fitted():
    for objective in ("causal_lm", "masked_lm", "span_corruption", "bart_denoising", "replaced_token_detection"):
        Pretrain(Pretrain.Config(objective=objective)).fit([Example({"text": "a\n"})])


def test_a_border_that_the_tokenizer_drops_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("CCO\nCCN\nCCC\nCNC\n" * 20)
    job = Job("language", (str(tmp_path / "text.txt"),), task_fields={"record_format": "smiles", "tokenizer": "words"})
    with pytest.raises(ValueError, match=r"whose records end with .* tokenizer drops it"):
        prepare(job)


def test_pictures_are_told_apart_however_they_are_held():
    array = np.zeros((1, 2, 2), np.uint8)
    keys = [_image_key("a.png"), _image_key(b"png"), _image_key(b"gnp"), _image_key(array), _image_key(array + 1)]
    assert len(set(keys)) == 5
    assert _image_key(b"png") == keys[1]


def test_bad_records_of_every_file_are_written_down(tmp_path, capsys):
    rows = "".join(f"{'good' if i % 2 else 'bad'}\ttext number {i}\n" for i in range(40))
    (tmp_path / "train.tsv").write_text("label\ttext\n" + rows)
    (tmp_path / "dev.tsv").write_text("label\ttext\n" + rows + "good\n")
    out = tmp_path / "run"
    words = ["train", "label", "--data", str(tmp_path / "train.tsv"), str(tmp_path / "dev.tsv"), "--out", str(out)]
    words += ["--on-bad-record", "skip", "--max-bad-fraction", "0.5", "--train.max-steps", "1", "--model.width", "16"]
    assert main([*words, "--model.layers", "1", "--model.heads", "2", "--model.ffn-width", "16"]) == 0
    (bad,) = [json.loads(line) for line in (out / "bad_records.jsonl").read_text().splitlines()]
    assert bad["file"].endswith("dev.tsv")
    assert bad["line"] == 42
    assert main(["evaluate", str(out)]) == 0  # which reads the same data again
