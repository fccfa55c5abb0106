"""A first signal asks, a second ends, and afterwards everything is as it was."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from saccade.training import signals as module
from saccade.training.distributed.launch import signals_to_handle
from saccade.training.signals import StopSignals

BOTH = (signal.SIGINT, signal.SIGTERM)


def handlers() -> list[object]:
    return [signal.getsignal(number) for number in BOTH]


@pytest.mark.parametrize("number", BOTH)
def test_the_first_signal_is_a_flag(number):
    before = handlers()
    with StopSignals() as stops:
        assert stops.signal_number is None
        assert handlers() != before
        os.kill(os.getpid(), number)
        for _ in range(100):  # a signal from outside is heard between two steps of the interpreter
            if stops.signal_number is not None:
                break
            time.sleep(0.01)
        assert stops.signal_number == number
    assert handlers() == before
    assert stops.signal_number == number


def test_handlers_come_back_after_an_error_and_when_nested():
    before = handlers()
    with pytest.raises(KeyError), StopSignals():
        raise KeyError
    assert handlers() == before
    with StopSignals() as outer:
        with StopSignals() as inner:
            signal.raise_signal(signal.SIGTERM)
        assert (outer.signal_number, inner.signal_number) == (None, signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        assert outer.signal_number == signal.SIGINT
    assert handlers() == before


def test_elsewhere_than_in_the_main_thread_nothing_happens():
    before, seen = handlers(), []

    def work() -> None:
        with StopSignals() as stops:
            seen.append((handlers(), stops.signal_number))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(before, None)]
    assert handlers() == before


CHILD = """
import signal, sys, time
from saccade.training import signals as module
module.ECHO_SECONDS = float(sys.argv[1])
try:
    with module.StopSignals() as stops:
        for number in map(int, sys.argv[2:]):
            signal.raise_signal(number)
            print("heard", stops.signal_number, flush=True)
            time.sleep(0.05)
finally:
    print("ended", flush=True)
"""


@pytest.mark.parametrize(
    ("echo", "numbers", "heard", "code"),
    [
        (1.0, [15], ["heard 15", "ended"], 0),
        (1.0, [15, 15], ["heard 15"], -15),
        (1.0, [2, 2], ["heard 2"], -2),
        (
            1e9,
            [2, 15, 2],
            ["heard 2", "heard 2"],
            -2,
        ),  # what the terminal sent comes again from the launcher, then in earnest
        (0.0, [2, 15], ["heard 2"], -15),
    ],
)
def test_the_second_signal_ends_the_process_at_once(echo, numbers, heard, code):
    """Not even `finally` runs; the shell sees a process that the signal ended."""
    args = [sys.executable, "-c", CHILD, str(echo), *map(str, numbers)]
    done = subprocess.run(args, capture_output=True, text=True)
    assert (done.stdout.splitlines(), done.returncode) == (heard, code), done.stderr


def test_an_echo_is_shorter_than_a_person():
    assert module.ECHO_SECONDS <= 1


def test_what_is_ignored_stays_ignored_and_the_other_is_heard():
    """As in a background job, for which a shell ignores SIGINT."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with StopSignals() as stops:
            signal.raise_signal(signal.SIGINT)
            assert stops.signal_number is None
            signal.raise_signal(signal.SIGTERM)
            assert stops.signal_number == signal.SIGTERM
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_several_processes_ignore_what_their_launcher_was_told_to():
    """`nohup` ignores SIGHUP, and torchrun would listen to it all the same."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert signals_to_handle() == ["SIGTERM", "SIGINT", "SIGQUIT"]
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signals_to_handle() == ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"]
