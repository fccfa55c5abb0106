"""A process that was launched does not outlive its launcher, even one that was killed."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

LAUNCHER = """
import os, subprocess, sys, time
from saccade.training.exit_report import EXIT_REPORT_VARIABLE
worker = "from saccade.training.exit_report import stop_with_launcher; stop_with_launcher(poll_seconds=0.05)\\n"
worker += "\\nimport time; print('ready', flush=True)\\nwhile True: time.sleep(0.05)"
started = subprocess.Popen([sys.executable, "-c", worker], env=os.environ | {EXIT_REPORT_VARIABLE: sys.argv[1]})
print(started.pid, flush=True)
time.sleep(600)
"""


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_worker_ends_when_its_launcher_is_killed(tmp_path: Path):
    launcher = subprocess.Popen([sys.executable, "-c", LAUNCHER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    worker = int(launcher.stdout.readline())
    try:
        assert launcher.stdout.readline() == "ready\n"
        time.sleep(0.3)
        assert is_alive(worker)
        launcher.kill()
        launcher.wait()
        limit = time.monotonic() + 60
        while is_alive(worker) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not is_alive(worker)
    finally:
        launcher.kill()
        if is_alive(worker):
            os.kill(worker, signal.SIGKILL)
        launcher.stdout.close()
