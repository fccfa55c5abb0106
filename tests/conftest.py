"""Shared by all tests: one thread, so that small tensors do not wait for each other, a fixed seed, no network,
and signals as at a terminal.

Whatever a test does in this process, it reaches no other machine; `make nightly` runs the whole suite without a network too.
"""

import ipaddress
import signal
import sys
from typing import Any

import pytest
import torch

from promise_table import pytest_addoption as pytest_addoption
from promise_table import pytest_terminal_summary as pytest_terminal_summary


@pytest.fixture(scope="session", autouse=True)
def _signals_as_at_a_terminal():
    """A background job, `nohup` and some services start what they run with signals ignored, and children inherit that."""
    usual = dict.fromkeys((signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT), signal.SIG_DFL)
    usual[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


@pytest.fixture(autouse=True)
def _quiet_and_repeatable():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture
def unregistered():
    """Whatever the test registers, the tables are as before when it ends."""
    from support.registries import registries_as_before

    with registries_as_before():
        yield


def is_local(host: Any) -> bool:
    """
    >>> is_local("127.0.0.1"), is_local("::1"), is_local(None), is_local("192.0.2.1"), is_local("example.org")
    (True, True, True, False, False)
    """
    if host in (None, "", "localhost", b"localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback or ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def stay_local(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook by which other machines cannot be reached, whether by name or by address: as without a network."""
    if event == "socket.getaddrinfo" and not is_local(arguments[0]):
        raise OSError(f"a test looked up the host {arguments[0]!r}; tests work without a network")
    if (
        event in ("socket.connect", "socket.sendto")
        and isinstance(arguments[1], tuple)
        and not is_local(arguments[1][0])
    ):
        raise OSError(f"a test reached for {arguments[1][0]!r}; tests work without a network")


def pytest_configure(config: pytest.Config) -> None:
    sys.addaudithook(stay_local)
