"""The audit log on request: what all nodes of the cluster have denied and changed lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from hocket import frames
from hocket.core.placement.auditing import Page
from hocket.core.session.session import Demand, Session
from hocket.node.identity.trail import Trail
from hocket.node.wiring import Servant, Wiring


class Auditors(Protocol):
    """Those who have audit logs: this node, and the others of its cluster."""

    def gather(self, since_us: int, done: Callable[[Page, tuple[str, ...]], None]) -> None:
        """`done` is called once, soon, with the records and the nodes that did not answer."""


class Alone:
    """A node that is in no cluster."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail

    def gather(self, since_us: int, done: Callable[[Page, tuple[str, ...]], None]) -> None:
        done(self._trail.since(since_us), ())


class ReadingAudit:
    def __init__(self, wiring: Wiring, trail: Trail) -> None:
        self._wiring = wiring
        self.auditors: Auditors = Alone(trail)

    def servants(self) -> dict[type, Servant]:
        return {frames.ReadAudit: self._read}

    def _read(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ReadAudit)

        def done(page: Page, silent: tuple[str, ...]) -> None:
            answer = frames.AuditIs(frame.request, tuple(page.records), page.next_us, silent)
            self._wiring.network.send(connection, answer)

        self.auditors.gather(frame.since_us, done)
