"""Data of one task given to another: read in a sensible way, or refused by name with the file and the cure."""

import pytest

from saccade.cli import main
from saccade.data.samples import SAMPLES
from saccade.errors import DataError, UsageError
from saccade.tasks.registry import TASKS
from saccade.training.prepare import Job, prepare

READABLE = {  # what else a sample can be read as: any text is running text, and any text beside another is a translation
    **{name: {"summarize"} for name in ("dates", "numbers", "spelled", "counts")},
    **{name: {"language", "pretrain"} for name in ("topics", "ratings")},
    **{name: {"pretrain"} for name in ("tunes", "molecules", "proteins")},
    "scenes": {"label"},
    "syllables": {"language", "pretrain"},
    "reports": {"translate"},
}


@pytest.fixture(scope="module")
def file_of(tmp_path_factory):
    """A file of each sample, in the format that `data get` writes it in."""
    home, made = tmp_path_factory.mktemp("samples"), {}

    def find(name):
        for suffix in ("tsv", "jsonl", "txt"):
            path = home / f"{name}.{suffix}"
            if name not in made and main(["data", "get", name, str(path), "--count", "60"]) == 0:
                made[name] = path
        return made[name]

    return find


@pytest.mark.parametrize("name", SAMPLES)
def test_data_of_another_task_is_refused_by_name(name, file_of):
    path = file_of(name)
    for task in TASKS:
        if task.name in SAMPLES[name].tasks:
            continue
        if task.name in READABLE.get(name, ()):
            prepare(Job(task.name, (str(path),)))
            continue
        with pytest.raises((DataError, UsageError)) as error:
            prepare(Job(task.name, (str(path),)))
        assert path.name in str(error.value), (task.name, str(error.value))
        assert error.value.exit_code in (2, 3)
