"""State machines: a CircularBuffer against a bytearray, a pair of Channels against two.

Every call is made with no partner at work and `timeout=0`, so what it must do follows from the
model alone.
"""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hocket.errors import Disconnected, OutOfRange, Timeout, WouldBlock
from hocket.local import Channel, CircularBuffer

small = st.integers(min_value=0, max_value=40)


class BufferAgainstByteArray(RuleBasedStateMachine):
    """The model is the bytes that wait, in order."""

    @initialize(capacity=st.integers(min_value=1, max_value=24))
    def start(self, capacity: int) -> None:
        self.ring = CircularBuffer(capacity)
        self.model = bytearray()

    @rule(data=st.binary(max_size=40), offset=small, length=st.none() | small)
    def write(self, data: bytes, offset: int, length: int | None) -> None:
        if offset > len(data) or (length is not None and offset + length > len(data)):
            with pytest.raises(OutOfRange):
                self.ring.write(data, offset, length)
            return
        span = data[offset:] if length is None else data[offset : offset + length]
        count = self.ring.write(data, offset, length)
        assert count == min(len(span), self.ring.capacity - len(self.model))
        self.model += span[:count]

    @rule(size=small, offset=small, length=st.none() | small)
    def read(self, size: int, offset: int, length: int | None) -> None:
        target = bytearray(b"." * size)
        if offset > size or (length is not None and offset + length > size):
            with pytest.raises(OutOfRange):
                self.ring.read(target, offset, length)
            assert target == b"." * size
            return
        room = size - offset if length is None else length
        count = self.ring.read(target, offset, length)
        assert count == min(room, len(self.model))
        expected = bytearray(b"." * size)
        expected[offset : offset + count] = self.model[:count]
        assert target == expected
        del self.model[:count]

    @rule(byte=st.integers(min_value=0, max_value=255))
    def push(self, byte: int) -> None:
        if len(self.model) == self.ring.capacity:
            with pytest.raises(WouldBlock):
                self.ring.push(byte)
        else:
            self.ring.push(byte)
            self.model.append(byte)

    @rule()
    def pull(self) -> None:
        if self.model:
            assert self.ring.pull() == self.model.pop(0)
        else:
            with pytest.raises(WouldBlock):
                self.ring.pull()

    @invariant()
    def counts_agree(self) -> None:
        assert len(self.ring) == len(self.model)
        assert self.ring.empty() == (not self.model)
        assert self.ring.full() == (len(self.model) == self.ring.capacity)

    def teardown(self) -> None:
        rest = bytearray(self.ring.capacity)
        count = self.ring.read(rest)
        assert rest[:count] == self.model
        assert self.ring.empty()


class ChannelPairAgainstByteArrays(RuleBasedStateMachine):
    """`in_transit[side]` is what `side` has yet to read; `gone[side]` whether it disconnected."""

    @initialize(capacity=st.integers(min_value=1, max_value=24))
    def start(self, capacity: int) -> None:
        self.capacity = capacity
        self.ends = Channel.pair(buffer_bytes=capacity)
        self.in_transit = (bytearray(), bytearray())
        self.gone = [False, False]

    sides = st.integers(min_value=0, max_value=1)

    def room_towards(self, side: int) -> int:
        return self.capacity - len(self.in_transit[side])

    def write_refused(self) -> bool:
        return any(self.gone)

    def read_refused(self, side: int) -> bool:
        return self.gone[side] or (self.gone[1 - side] and not self.in_transit[side])

    @rule(side=sides, data=st.binary(max_size=40))
    def write(self, side: int, data: bytes) -> None:
        end, towards = self.ends[side], 1 - side
        if not data:
            assert end.write(data, timeout=0) == 0
        elif self.write_refused():
            with pytest.raises(Disconnected):
                end.write(data, timeout=0)
        elif not self.room_towards(towards):
            with pytest.raises(Timeout):
                end.write(data, timeout=0)
        else:
            count = end.write(data, timeout=0)
            assert 1 <= count <= min(len(data), self.room_towards(towards))
            self.in_transit[towards].extend(data[:count])

    @rule(side=sides, data=st.binary(max_size=40))
    def write_all(self, side: int, data: bytes) -> None:
        end, towards = self.ends[side], 1 - side
        room = self.room_towards(towards)
        if data and self.write_refused():
            with pytest.raises(Disconnected) as cut:
                end.write_all(data, timeout=0)
            assert cut.value.written == 0
        elif len(data) > room:
            with pytest.raises(Timeout) as late:
                end.write_all(data, timeout=0)
            assert late.value.written == room
            self.in_transit[towards].extend(data[:room])
        else:
            end.write_all(data, timeout=0)
            self.in_transit[towards].extend(data)

    @rule(side=sides, size=small)
    def read(self, side: int, size: int) -> None:
        end, waiting = self.ends[side], self.in_transit[side]
        target = bytearray(b"." * size)
        if not size:
            assert end.read(target, timeout=0) == 0
        elif self.read_refused(side):
            with pytest.raises(Disconnected):
                end.read(target, timeout=0)
        elif not waiting:
            with pytest.raises(Timeout):
                end.read(target, timeout=0)
        else:
            count = end.read(target, timeout=0)
            assert 1 <= count <= min(size, len(waiting))
            assert target == waiting[:count] + b"." * (size - count)
            del waiting[:count]

    @rule(side=sides, size=small)
    def read_exactly(self, side: int, size: int) -> None:
        end, waiting = self.ends[side], self.in_transit[side]
        if not size:
            assert end.read_exactly(0, timeout=0) == b""
        elif self.gone[side]:
            with pytest.raises(Disconnected) as refused:
                end.read_exactly(size, timeout=0)
            assert refused.value.partial == b""
        elif size > len(waiting):
            kind = Disconnected if self.gone[1 - side] else Timeout
            with pytest.raises(kind) as cut:
                end.read_exactly(size, timeout=0)
            assert cut.value.partial == waiting
            waiting.clear()
        else:
            assert end.read_exactly(size, timeout=0) == waiting[:size]
            del waiting[:size]

    @precondition(lambda self: not all(self.gone))
    @rule(side=sides)
    def disconnect(self, side: int) -> None:
        self.ends[side].disconnect()
        self.gone[side] = True

    @invariant()
    def disconnected_agrees(self) -> None:
        told = [end.disconnected for end in self.ends]
        assert told == [self.read_refused(0), self.read_refused(1)]

    def teardown(self) -> None:
        """Whoever has not left still reads every byte in transit, and no more."""
        for side in (0, 1):
            if self.gone[side]:
                continue
            rest = bytes(self.in_transit[side])
            assert self.ends[side].read_exactly(len(rest), timeout=0) == rest
            with pytest.raises(Disconnected if self.gone[1 - side] else Timeout):
                self.ends[side].read(bytearray(1), timeout=0)


TestBufferAgainstByteArray = BufferAgainstByteArray.TestCase
TestBufferAgainstByteArray.settings = settings(stateful_step_count=60)
TestChannelPairAgainstByteArrays = ChannelPairAgainstByteArrays.TestCase
TestChannelPairAgainstByteArrays.settings = settings(stateful_step_count=60)
