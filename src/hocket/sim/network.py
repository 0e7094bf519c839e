"""A simulated network between one node and its clients: ordered, delayed, and cut at any moment.

It behaves as TCP does: what arrives arrives in order and whole, and when a connection breaks, what
was under way is lost, in both directions, without either side knowing how much arrived. A share
of the frames goes through the real encoding and back, so that the simulation walks that code too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from hocket.frames import Frame
from hocket.sim.scheduler import below
from hocket.wire.frame_codec import decode, encode

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from hocket.node.node import Node
    from hocket.sim.scheduler import Scheduler

ENCODED_SHARE = 0.1


class Far(Protocol):
    """The client's end of a connection."""

    def received(self, frame: Frame, payload: memoryview) -> None: ...
    def lost(self) -> None: ...


@dataclass(slots=True, eq=False)
class Wire:
    far: Far
    up: bool = True
    to_node_at: int = 0  # when the last frame arrives: no frame overtakes another
    to_far_at: int = 0
    held: list[Callable[[], None]] = field(default_factory=list)  # while the node takes nothing


class SimNetwork:
    """The simulated `ports.Network` of a node, and the connections of its clients."""

    def __init__(self, scheduler: Scheduler, *, delay_us_max: int = 2_000) -> None:
        self.node: Node | None = None  # None: the node is down
        self._scheduler = scheduler
        self._random = scheduler.random("network")
        self._delay_us_max = delay_us_max
        self._wires: dict[int, Wire] = {}
        self._last = 0
        self._paused = False
        self.frames = 0  # that arrived somewhere

    # --- the clients' side -----------------------------------------------------------------------

    def connect(self, far: Far) -> int | None:
        """A connection to the node; None if the node is down."""
        if self.node is None:
            return None
        self._last += 1
        self._wires[self._last] = Wire(far)
        self.node.connected(self._last)
        return self._last

    def send_to_node(self, connection: int, frame: Frame, payload: Buffer = b"") -> None:
        wire = self._wires.get(connection)
        if wire is None:
            return
        copied = memoryview(bytes(payload))
        frame = self._through_bytes(frame)

        def arrive() -> None:
            if not wire.up or self.node is None:
                return
            if self._paused:
                wire.held.append(arrive)
                return
            self.frames += 1
            self.node.received(connection, frame, copied)
            self.node.end_turn()

        wire.to_node_at = self._later(wire.to_node_at)
        self._scheduler.at(wire.to_node_at, arrive)

    def cut(self, connection: int) -> None:
        """Cut a connection. Both sides learn of it later; frames under way never arrive."""
        wire = self._wires.pop(connection, None)
        if wire is None:
            return
        wire.up = False
        node = self.node
        self._scheduler.at(self._later(0), wire.far.lost)
        if node is not None:
            self._scheduler.at(self._later(0), lambda: node.disconnected(connection))

    def node_died(self) -> None:
        self.node = None
        self._paused = False
        for connection in list(self._wires):
            self.cut(connection)

    @property
    def connections(self) -> list[int]:
        return list(self._wires)

    # --- the node's side -------------------------------------------------------------------------

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        wire = self._wires.get(connection)
        if wire is None:
            return
        copied = memoryview(b"".join(payload))
        frame = self._through_bytes(frame)

        def arrive() -> None:
            if wire.up:
                self.frames += 1
                wire.far.received(frame, copied)

        wire.to_far_at = self._later(wire.to_far_at)
        self._scheduler.at(wire.to_far_at, arrive)

    def close(self, connection: int) -> None:
        """Close a connection. Frames sent before still arrive, then the end."""
        wire = self._wires.pop(connection, None)
        if wire is not None:
            wire.to_far_at = self._later(wire.to_far_at)
            self._scheduler.at(wire.to_far_at, wire.far.lost)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        for wire in self._wires.values():
            held, wire.held = wire.held, []
            for arrive in held:
                arrive()

    def _later(self, not_before: int) -> int:
        delay_us = 1 + below(self._random.getrandbits, self._delay_us_max - 1)
        return max(self._scheduler.now_us() + delay_us, not_before)

    def _through_bytes(self, frame: Frame) -> Frame:
        return decode(encode(frame)) if self._random.random() < ENCODED_SHARE else frame
