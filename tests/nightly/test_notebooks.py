"""The notebooks of docs/ run from top to bottom, with the outputs that need no clock as they are shown."""

from pathlib import Path

import pytest

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))
pytestmark = [pytest.mark.nightly, pytest.mark.filterwarnings("ignore")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path):
    book = nbformat.read(path, as_version=4)
    shown = [len(cell.outputs) > 0 for cell in book.cells if cell.cell_type == "code"]
    nbclient.NotebookClient(book, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert [len(cell.outputs) > 0 for cell in book.cells if cell.cell_type == "code"] == shown


def test_there_are_notebooks():
    assert NOTEBOOKS
