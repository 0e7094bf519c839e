"""Frames made and read by Cap'n Proto's own `capnp` tool: a client that shares no code with us."""

from __future__ import annotations

import shutil
import struct
import subprocess
from importlib import resources

import pytest
from crc32c import crc32c

TOOL = shutil.which("capnp")

needs_tool = pytest.mark.skipif(
    TOOL is None, reason="the `capnp` tool is not installed (Debian: apt-get install capnproto)"
)


def encode_with_tool(text: str) -> bytes:
    """The message of a Frame written as text: `(request = 1, ping = ())`."""
    return _run("encode", text.encode())


def decode_with_tool(header: bytes) -> str:
    """The text of a Frame, in one line."""
    return _run("decode", header, "--short").decode().strip()


def framed(header: bytes, payload: bytes = b"") -> bytes:
    """A frame as it is on the wire, made as docs/protocol.md says."""
    prefix = struct.pack("<IIQ", len(header), crc32c(header), len(payload))
    return prefix + header + payload + bytes(-len(payload) % 8)


def _run(action: str, data: bytes, *options: str) -> bytes:
    assert TOOL is not None
    with resources.as_file(resources.files("hocket") / "schema" / "hocket.capnp") as schema:
        command = [TOOL, action, *options, str(schema), "Frame"]
        done = subprocess.run(command, input=data, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
