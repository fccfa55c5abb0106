"""How a command begins: only what it needs is imported, and the garbage collector looks after what comes later."""

import subprocess
import sys

BEGUN = """
import gc, sys
from saccade.cli.running import guarded

def work():
    assert gc.isenabled() and gc.get_freeze_count() > 10_000
    return 0

assert "torch" not in sys.modules
assert guarded("x", work) == 0
print([name for name in sys.modules if name.startswith(("saccade.training", "saccade.tasks", "sacrebleu"))])
"""
FAILED = """
import sys
from saccade.cli.running import guarded

def work():
    from saccade.data import DataError
    raise DataError("a cell is empty", file="a.tsv", line=3, cure="fill it")

assert guarded("x", work) == 3
assert guarded("x", lambda: [].clear() or int("?")) == 4
assert guarded("x", lambda: open("nowhere")) == 5
try:
    guarded("x", lambda: {}["bug"])
except KeyError:
    print("whole")
"""


def ran(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_command_that_goes_well_imports_no_training():
    assert ran(BEGUN).stdout == "[]\n"


def test_errors_have_their_codes_though_their_kinds_come_late():
    told = ran(FAILED)
    assert told.stdout == "whole\n"
    first, second, third = told.stderr.splitlines()
    assert first.startswith("saccade x: ")
    assert "a.tsv" in first
    assert "invalid literal" in second
    assert "nowhere" in third


def test_a_process_that_has_torch_is_left_as_it_is():
    """Whoever calls commands from Python keeps a collector that sees their objects."""
    import gc

    import torch  # noqa: F401 - there before

    from saccade.cli.running import guarded

    before = gc.get_freeze_count()
    assert guarded("x", lambda: 0) == 0
    assert gc.get_freeze_count() == before
