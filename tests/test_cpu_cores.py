"""How many cores a process may use."""

import os
import subprocess
import sys

import pytest

from saccade.cpu_cores import cpu_count

ONE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
ONE += "from saccade.cpu_cores import cpu_count; print(cpu_count())"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system binds no process to a core")
def test_a_process_that_may_use_one_core_has_one() -> None:
    done = subprocess.run([sys.executable, "-c", ONE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(("counted", "wanted"), [(7, 7), (None, 1)])
def test_where_a_system_does_not_say_it_is_those_of_the_machine(
    counted: int | None, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: counted)
    assert cpu_count() == wanted
