"""Which user of this machine is at the other end of a connection."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket.adapters import socket_owner
from hocket.adapters.socket_owner import TABLES, is_of_another_user

pytestmark = pytest.mark.skipif(
    not Path(TABLES[0]).exists(), reason="this system does not tell whose a socket is"
)
TELLS = socket_owner.netlink_tells
Pair = tuple[socket.socket, socket.socket]


def ways() -> list[tuple[str, str]]:
    """Where to listen, and whom to dial."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:  # this machine has no IPv6
        return [("127.0.0.1", "127.0.0.1")]
    return [("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")]


@pytest.fixture(params=["by netlink", "by the tables"], autouse=True)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by the tables":
        monkeypatch.setattr(socket_owner, "netlink_tells", lambda: False)
    elif not socket_owner.netlink_tells():
        pytest.skip("netlink does not tell here")


@pytest.fixture(params=ways(), ids=" to ".join)
def ends(request: pytest.FixtureRequest) -> Iterator[Pair]:
    here, there = request.param
    is_both = here == "::"
    family = socket.AF_INET6 if ":" in here else socket.AF_INET
    with (
        socket.create_server((here, 0), family=family, dualstack_ipv6=is_both) as server,
        socket.create_connection((there, server.getsockname()[1])) as dialled,
        server.accept()[0] as accepted,
    ):
        yield dialled, accepted


def test_both_ends_are_ours(ends: Pair):
    assert [is_of_another_user(each.fileno()) for each in ends] == [False, False]


def test_both_ends_are_of_another_user(ends: Pair, monkeypatch: pytest.MonkeyPatch):
    """As that other user sees it."""
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    monkeypatch.setattr(socket_owner, "ROOT", 12346)
    assert [is_of_another_user(each.fileno()) for each in ends] == [True, True]


def test_one_that_has_hung_up_is_nobody(ends: Pair):
    """The table would say that it is root's."""
    dialled, accepted = ends
    dialled.sendall(b"what can still be read")
    dialled.close()
    assert is_of_another_user(accepted.fileno())


def test_one_that_has_broken_off_is_nobody(ends: Pair):
    dialled, accepted = ends
    accepted.sendall(b"left unread")
    assert dialled.recv(1) == b"l"
    dialled.close()
    with pytest.raises(ConnectionError):
        accepted.recv(100)
    assert is_of_another_user(accepted.fileno())


def test_where_the_system_does_not_tell_everybody_may_come(
    ends: Pair, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(socket_owner, "netlink_tells", lambda: False)
    monkeypatch.setattr(socket_owner, "TABLES", ("/nowhere", "/nor here"))
    assert not is_of_another_user(ends[0].fileno())


def test_netlink_is_not_asked_where_it_is_not_to_be_had(monkeypatch: pytest.MonkeyPatch):
    tells = TELLS.__wrapped__
    monkeypatch.setattr(socket_owner, "SOCK_DIAG", 31)  # no such protocol
    assert not tells()
    monkeypatch.delattr(socket, "AF_NETLINK")
    assert not tells()
