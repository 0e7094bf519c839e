"""Whatever a header consists of: a frame or a ProtocolError, soon, and nothing else."""

from __future__ import annotations

import collections
import contextlib
import resource
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from hocket.errors import ProtocolError
from hocket.wire.frame_codec import decode, encode
from tests.support.threads import LONG
from tests.support.wire.damaged_headers import damaged_headers

COUNT = 100_000 if LONG else 4_000
SECONDS_MAX = 2.0  # of the processor, for one header of a few hundred bytes; a bomb takes minutes


@pytest.mark.parametrize("seed", range(5))
def test_a_damaged_header_is_a_frame_or_an_error(seed: int) -> None:
    outcomes: collections.Counter[str] = collections.Counter()
    for message in damaged_headers(seed, COUNT):
        before = time.thread_time()
        try:
            frame = decode(message)
        except ProtocolError:
            outcomes["refused"] += 1
        else:
            outcomes["understood"] += 1
            assert decode(encode(frame)) == frame, message.hex()
        assert time.thread_time() - before < SECONDS_MAX, message.hex()
    # Damage that is never seen, or that always breaks everything, would test nothing.
    assert min(outcomes["refused"], outcomes["understood"]) > COUNT // 20, outcomes


@given(st.binary(max_size=200))
def test_bytes_without_any_meaning(garbage: bytes) -> None:
    body = garbage + bytes(-len(garbage) % 8)
    with pytest.raises(ProtocolError):
        decode(b"\xff\xff\xff\0" + bytes(4) + body)  # 2**24 segments
    try:
        decode(struct.pack("<II", 0, len(body) // 8) + body)
    except ProtocolError:
        return  # only this error is an answer; a frame of defaults is the other one


def test_damaged_headers_leave_nothing_behind() -> None:
    """Each one refused frees what it took, outside of Python's own memory too."""
    messages = list(damaged_headers(99, 2_000))

    def decode_all() -> None:
        for message in messages:
            with contextlib.suppress(ProtocolError):
                decode(message)

    decode_all()
    before = resident_kib()
    for _ in range(10):
        decode_all()
    assert resident_kib() - before < 4 * 1024  # 20,000 that each left 250 bytes would be 5 MiB


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024
