"""CPU count of a process."""

import os
import subprocess
import sys

import pytest

from saccade.system import cpu_count

PIN_TO_ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
PIN_TO_ONE_CORE += "from saccade.system import cpu_count; print(cpu_count())"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to a core")
def test_a_process_pinned_to_one_core_counts_one() -> None:
    done = subprocess.run([sys.executable, "-c", PIN_TO_ONE_CORE], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize(("machine_cores", "expected"), [(7, 7), (None, 1)])
def test_without_affinity_the_cores_of_the_machine_are_counted(
    machine_cores: int | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: machine_cores)
    assert cpu_count() == expected
