"""What is set for the whole cluster, on request: told, and changed."""

from __future__ import annotations

from collections.abc import Callable

from hocket import frames
from hocket.core.metadata.metadata import GROUP
from hocket.core.metadata.preferences import Changed, Preferences
from hocket.core.origin import Origin
from hocket.core.session.session import Demand, Session
from hocket.errors import OutOfRange
from hocket.model import EntryKind
from hocket.node.identity import audit
from hocket.node.requests.registering import Registering
from hocket.node.wiring import Servant, Wiring


class Preferring:
    def __init__(self, wiring: Wiring, preferences: Preferences, registering: Registering) -> None:
        self._wiring = wiring
        self._preferences = preferences
        self._registering = registering
        self._asked: dict[Origin, str] = {}  # who has asked, for the audit log

    def servants(self) -> dict[type, Servant]:
        return {frames.DescribeCluster: self._describe, frames.SetCluster: self._set}

    @property
    def replications(self) -> tuple[int, int]:
        """(Of topics that do not say so themselves, that which the cluster was founded with.)"""
        return self._preferences.replication, self._preferences.founded

    def found(self, replication: int, done: Callable[[], None]) -> None:
        """Write what the founder has said, and call `done` when it holds; at once if it was."""
        if self._preferences.is_founded:
            done()
            return
        self._wiring.partitions.admit(GROUP)
        append = self._preferences.found(done, replication)
        self._wiring.append_metadata(EntryKind.PREFERENCES, append.index, append.body)

    def _describe(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        self._wiring.network.send(
            connection,
            frames.ClusterIs(
                demand.frame.request,
                self._wiring.cluster,
                self._wiring.catalogue.nodes(),
                self._preferences.replication,
                self._registering.successors,
            ),
        )

    def _set(self, connection: int, session: Session, demand: Demand, _payload: memoryview) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.SetCluster)
        if not frame.replication:
            raise OutOfRange("nothing is to be set: say which replication new topics are to have")
        self._wiring.partitions.admit_tidying(GROUP)
        origin = Origin(connection, 0, frame.request)
        append = self._preferences.set_replication(
            origin, frame.replication, self._wiring.catalogue.nodes()
        )
        self._asked[origin] = audit.who(session)
        self._wiring.append_metadata(EntryKind.PREFERENCES, append.index, append.body)

    def forget(self, origin: Origin) -> None:
        """Who asked is told something else."""
        self._asked.pop(origin, None)

    def changed(self, changed: Changed) -> None:
        origin = changed.origin
        if isinstance(origin, Origin):
            who = self._asked.pop(origin, None)
            if who is not None:  # else another node has been asked, and the root writes it down
                audit.preferred(who, changed.replication)
            self._wiring.answer(origin, frames.Done)
        elif callable(origin):
            origin()
