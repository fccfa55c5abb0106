"""No test reaches another machine: the guard of `tests/conftest.py` works, and loopback addresses pass."""

import socket

import pytest


def test_another_machine_is_not_reached():
    with socket.socket() as one, pytest.raises(OSError, match=r"reached for '192\.0\.2\.1'"):
        one.connect(("192.0.2.1", 9))  # an address for documentation, which nobody has
    with pytest.raises(OSError, match=r"looked up the host 'example\.org'"):
        socket.getaddrinfo("example.org", 80)


def test_this_machine_is():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()[:2]) as one:
        assert one.getpeername() == server.getsockname()
