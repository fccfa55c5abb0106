"""How a command begins: only what it needs is imported, and the garbage collector looks after what comes later."""

import subprocess
import sys

BEGUN = """
import gc, sys
from saccade.cli.exit_codes import run_command

def work():
    assert gc.isenabled() and gc.get_freeze_count() > 10_000
    return 0

assert "torch" not in sys.modules
assert run_command("x", work) == 0
print([name for name in sys.modules if name.startswith(("saccade.training", "saccade.tasks", "sacrebleu"))])
"""
FAILED = """
import sys
from saccade.cli.exit_codes import run_command

def work():
    from saccade.errors import DataError
    raise DataError("a cell is empty", file="a.tsv", line=3, hint="fill it")

assert run_command("x", work) == 3
assert run_command("x", lambda: open("nowhere")) == 5
assert run_command("x", lambda: [].clear() or int("?")) == 1
assert run_command("x", lambda: {}["bug"]) == 1
"""


def ran(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_a_command_that_goes_well_imports_no_training():
    assert ran(BEGUN).stdout == "[]\n"


def test_errors_have_their_codes_though_their_kinds_come_late():
    first, second, *bugs = ran(FAILED).stderr.splitlines()
    assert first.startswith("saccade x: ")
    assert "a.tsv" in first
    assert "nowhere" in second
    assert [line for line in bugs if "Error:" in line] == [
        "ValueError: invalid literal for int() with base 10: '?'",
        "KeyError: 'bug'",
    ]
    assert bugs.count("Traceback (most recent call last):") == 2
    assert sum(line.startswith("This is a bug in saccade") for line in bugs) == 2


def test_a_process_that_has_torch_is_left_as_it_is():
    """Whoever calls commands from Python keeps a collector that sees their objects."""
    import gc

    import torch  # noqa: F401 - there before

    from saccade.cli.exit_codes import run_command

    before = gc.get_freeze_count()
    assert run_command("x", lambda: 0) == 0
    assert gc.get_freeze_count() == before


def test_help_imports_nothing_heavy():
    code = "import sys; from saccade.cli import main; main(['generate', '--help']); "
    code += "print([name for name in ('torch', 'llguidance', 'numpy') if name in sys.modules])"
    *_, last = ran(code).stdout.splitlines()
    assert last == "[]"
