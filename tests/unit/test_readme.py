"""The README's figures are those of the record, not typed by hand."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_figures_is_made_from_the_record():
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "figures.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
