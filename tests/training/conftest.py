"""A directory with small files to train on."""

from pathlib import Path

import pytest

from support.small_runs import write_files


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return write_files(tmp_path)
