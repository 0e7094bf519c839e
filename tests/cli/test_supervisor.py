"""Telling the service manager, over a real socket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from hocket.cli import supervisor


def manager(address: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    made.settimeout(10)
    made.bind(address)
    return made


def test_at_a_path_and_in_the_abstract_namespace(tmp_path: Path, monkeypatch):
    with manager(str(tmp_path / "s")) as at_path, manager("") as unnamed:
        monkeypatch.setenv(supervisor.VARIABLE, str(tmp_path / "s"))
        supervisor.tell(supervisor.READY)
        assert at_path.recv(100) == b"READY=1"
        abstract = unnamed.getsockname()  # the system has chosen a free one
        assert abstract[:1] == b"\0"
        monkeypatch.setenv(supervisor.VARIABLE, "@" + abstract[1:].decode())
        supervisor.tell(supervisor.STOPPING)
        assert unnamed.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("address", ["", "vsock:2:1", "/nonexistent/socket"])
def test_nobody_to_tell_is_no_error(address: str, monkeypatch):
    monkeypatch.setenv(supervisor.VARIABLE, address)
    supervisor.tell(supervisor.READY)
