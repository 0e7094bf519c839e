"""Who is at the other end if nobody there speaks our protocol: told by the first bytes.

The first four bytes of a connection are the length of a header, which is small before the Welcome:
no text begins like that, and no TLS record either. So four bytes are enough to know a stranger.
"""

from __future__ import annotations

import re

from hocket.errors import ProtocolError

FIRST_BYTES_MAX = 48  # that are kept of what a stranger says, to show it to people

# The first four bytes are all that may have come.
_HTTP = re.compile(
    rb"HTTP|GET |HEAD|POST|PUT |DELE|OPTI|PATC|CONN|TRAC|PRI |\s*<(?:!doctype|!do|html|htm)",
    re.IGNORECASE,
)
_TLS = re.compile(rb"[\x14-\x17]\x03")  # the kinds of records, and the version
_SSH = re.compile(rb"SSH-")
# A message of Cap'n Proto's RPC: one segment, not long; its root has one word and one pointer.
_RPC = re.compile(rb"\x00{4}.[\x00-\x0f]\x00{6}\x01\x00\x01\x00", re.DOTALL)
_NAMES = ((_HTTP, "HTTP"), (_TLS, "TLS"), (_SSH, "SSH"), (_RPC, "Cap'n Proto RPC"))


class Stranger(ProtocolError):
    """The first bytes of a connection are none of ours."""

    first = b""  # what came, or its beginning


def stranger(first: bytes, why: str) -> Stranger:
    error = Stranger(why)
    error.first = first[:FIRST_BYTES_MAX]
    return error


def language(first: bytes) -> str:
    """What is spoken there: "HTTP", "TLS" and the like; empty if that cannot be told."""
    for pattern, name in _NAMES:
        if pattern.match(first):
            return name
    return ""
