"""Bad data for pretraining: each says where it stands and what to do, and nothing is trained."""

import json

import pytest

from saccade.errors import DataError
from saccade.training.prepare import Job, prepare

GOOD = "".join(f"Line {i} says that {i} is a number.\n" for i in range(60))
CASES = {  # name: (file, bytes, what a person reads)
    "empty": ("a.txt", b"", "empty|no records|nothing"),
    "blank lines": ("a.txt", b"\n\n\n\n\n\n\n\n\n\n\n\n", "nothing|empty|0 tokens"),
    "NUL": ("a.txt", GOOD.encode() + b"\0\0\0", "NUL|binary"),
    "latin-1": ("a.txt", GOOD.encode() + "gr\xfcn\n".encode("latin-1"), "UTF-8"),
    "a PDF": ("a.pdf", b"%PDF-1.7\n" + GOOD.encode(), "PDF|pdf"),
    "no text column": ("a.jsonl", b"".join(json.dumps({"n": i, "m": "x"}).encode() + b"\n" for i in range(20)), "text"),
    "truncated JSON": ("a.jsonl", b'{"text": "one"}\n{"text": "tw', "JSON|a.jsonl:2"),
}


@pytest.mark.parametrize("objective", ["masked_lm", "bart_denoising"])
@pytest.mark.parametrize("case", list(CASES))
def test_bad_text_is_refused_by_name(tmp_path, case, objective):
    name, content, words = CASES[case]
    path = tmp_path / name
    path.write_bytes(content)
    job = Job("pretrain", (str(path),), task_fields={"objective": objective})
    with pytest.raises(DataError, match=rf"(?i){words}") as caught:
        prepare(job).make_batches()
    assert name in str(caught.value)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(DataError, match=r"no\.txt"):
        prepare(Job("pretrain", (str(tmp_path / "no.txt"),)))
