"""The worker threads of the encoder kernels: they outlive no process, and a forked process makes its own."""

import subprocess
import sys

import pytest

from saccade.engine.kernels import library
from saccade.system import cpu_count

pytestmark = [
    pytest.mark.skipif(not library.is_available(), reason=library.unavailable_reason() or "compiled"),
    pytest.mark.skipif(cpu_count() < 2, reason="one core"),
]
BEGIN = """
import os, threading, torch
from saccade.engine.kernels import library
from saccade.engine.kernels.matrix import PackedMatrix
torch.set_num_threads(2)
library.library().saccade_set_join_time(10**10)
matrix, x = PackedMatrix(torch.randn(512, 512), None, "float32"), torch.randn(64, 512)
expected = matrix(x)
"""
SCRIPTS = {
    "ends": "",
    "ends while a worker sleeps": "import time; time.sleep(0.1)",
    "forks": """
child = os.fork()
if not child:
    os._exit(0 if all(matrix(x).equal(expected) for _ in range(50)) else 1)
assert os.waitpid(child, 0)[1] == 0
assert matrix(x).equal(expected)
""",
    "calls from several threads": """
def call():
    found.append(all(matrix(x).equal(expected) for _ in range(50)))
found, callers = [], [threading.Thread(target=call) for _ in range(4)]
for caller in callers: caller.start()
for caller in callers: caller.join()
assert found == [True] * 4
""",
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_process(name):
    command = [sys.executable, "-c", BEGIN + SCRIPTS[name]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
