"""Names of brokers in other processes, on request: registered, released, found, listed, piped.

A name is the lease's that it was registered with, and the log says so (`core.metadata.names`).
Whether the process behind the lease lives is known by its connection, at the node that it is
connected to. If the connection ends, the process has `name_grace_us` to come back, to this node or
another; then this node frees its names. The root does that for the names of nodes that are dead.

A *pipe* is for processes that cannot reach each other: both open a connection to the node that the
owner of the name is connected to, and the node passes bytes on from one to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from hocket import frames, tickets
from hocket.cluster_model import NameDescription
from hocket.core.metadata.metadata import GROUP
from hocket.core.metadata.names import Changed, Names, Registration
from hocket.core.origin import Origin
from hocket.core.session.session import Demand, Session, failure
from hocket.deadline import in_seconds
from hocket.errors import HocketError, LimitExceeded, RootAway, UnknownBroker
from hocket.frames import Frame
from hocket.model import SECOND_US, EntryKind, check_broker_name
from hocket.node.requests.pages import Page, name_bytes
from hocket.node.requests.registering import Registering
from hocket.node.running.own_requests import NAMING
from hocket.node.wiring import Servant, Wiring

PIPE_BYTES = 16
PIPE_WAIT_US = 5 * SECOND_US  # for the owner to come
PIPES_WAITING_MAX = 10_000
LOOK_EVERY_US = SECOND_US // 2  # for names of nodes that are dead


@dataclass(slots=True)
class Claim:
    """A connection that has registered a name here, whether that is committed or not."""

    connection: int
    lease: str


@dataclass(slots=True)
class Pipe:
    """Somebody waits for the owner of a name to take the other end."""

    connection: int
    request: int
    name: str
    since_us: int


class Naming:
    def __init__(self, wiring: Wiring, names: Names, registering: Registering) -> None:
        self._wiring = wiring
        self._names = names
        self._registering = registering
        self._claims: dict[str, Claim] = {}
        self._unheld: dict[str, int] = {}  # names at this node that no connection holds; since when
        self._orphans: dict[str, int] = {}  # at the root: names of dead nodes; since when
        self._pipes: dict[bytes, Pipe] = {}
        self._looked_us = 0
        self.leads: Callable[[], bool] = lambda: True
        # Have a name of ours freed by whoever leads.
        self.release_by: Callable[[Origin, str, bytes], None] = self._release_here
        # Joins the bytes of two connections; a node without a door has no pipes.
        self.splice: Callable[[int, int], None] | None = None
        # Calls when this node knows all that the root knows.
        self.catch_up: Callable[[Callable[[], None]], None] = lambda again: again()
        self.knows: Callable[[], bool] = lambda: True
        wiring.network.answer_to(self._released, connection=NAMING)

    def servants(self) -> dict[type, Servant]:
        return {
            frames.RegisterName: self._register,
            frames.ReleaseName: self._release,
            frames.FindName: self._find,
            frames.ListNames: self._list,
            frames.OpenPipe: self._open_pipe,
            frames.TakePipe: self._take_pipe,
        }

    def started(self) -> None:
        """Names that were held here in an earlier life wait for their processes."""
        now_us = self._wiring.clock.now_us()
        me = self._wiring.catalogue.me
        for name, held in self._names.committed.items():
            if held.node == me:
                self._unheld[name] = now_us

    # --- registering -----------------------------------------------------------------------------

    def claiming(self, servant: Servant) -> Servant:
        """Serve RegisterName, here or by handing it on, and remember whose the name will be."""

        def serve(connection: int, session: Session, demand: Demand, payload: memoryview) -> None:
            frame = demand.frame
            assert isinstance(frame, frames.RegisterName)
            check_broker_name(frame.name)
            held = self._claims.get(frame.name)
            lease = frame.lease.hex()
            known = self._names.committed.get(frame.name)
            is_its_own = known is not None and known.lease == lease  # whoever else asked for it
            if connection > 0 and (
                held is None or held.lease == lease or is_its_own or not self._lives(held)
            ):
                self._claims[frame.name] = Claim(connection, lease)
            servant(connection, session, demand, payload)

        return serve

    def _register(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.RegisterName)
        wiring = self._wiring
        wiring.partitions.admit(GROUP)
        wanted = Registration(
            frame.name, frame.kind, frame.lease.hex(), frame.key.hex(), self._node(),
            session.rights.user, frame.address, frame.fingerprint.hex(),
        )  # fmt: skip
        append = self._names.register(Origin(connection, 0, frame.request), wanted)
        wiring.append_metadata(EntryKind.NAMES, append.index, append.body)

    def _release(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ReleaseName)
        check_broker_name(frame.name)
        origin = Origin(connection, 0, frame.request)
        # A node that has lost a process frees what is at itself: the process may be at another.
        node = self._node() if session.rights.trusted else ""
        self._append_release(origin, frame.name, frame.lease.hex(), node)

    def _release_here(self, origin: Origin, name: str, lease: bytes) -> None:
        self._append_release(origin, name, lease.hex(), self._wiring.catalogue.me)

    def _append_release(self, origin: Origin, name: str, lease: str, node: str) -> None:
        self._wiring.partitions.admit_tidying(GROUP)
        append = self._names.release(origin, name, lease, node)
        self._wiring.append_metadata(EntryKind.NAMES, append.index, append.body)

    def _node(self) -> str:
        """The node that the process is connected to whose request is served."""
        asked = self._wiring.asked
        return self._wiring.catalogue.me if asked is None else asked.node

    def changed(self, changed: Changed) -> None:
        name, held = changed.name, changed.registration
        origin = changed.origin
        if held is None:
            self._orphans.pop(name, None)
        since_us = self._unheld.pop(name, self._wiring.clock.now_us())
        if held is None or held.node != self._wiring.catalogue.me:
            self._claims.pop(name, None)
        elif not self._is_held(held):
            # Somebody else's attempt to have the name must not make it wait for longer.
            self._unheld[name] = since_us
        if isinstance(origin, Origin):
            self._wiring.answer(origin, frames.Done)

    # --- who lives -------------------------------------------------------------------------------

    def _lives(self, claim: Claim) -> bool:
        return claim.connection in self._wiring.sessions

    def _is_held(self, held: Registration) -> bool:
        claim = self._claims.get(held.name)
        return claim is not None and claim.lease == held.lease and self._lives(claim)

    def disconnected(self, connection: int) -> None:
        """The connection is gone, and its session with it."""
        gone = [name for name, claim in self._claims.items() if claim.connection == connection]
        for name in gone:
            del self._claims[name]
            held = self._names.committed.get(name)
            if held is not None and held.node == self._wiring.catalogue.me:
                self._unheld[name] = self._wiring.clock.now_us()
        for pipe in [pipe for pipe, each in self._pipes.items() if each.connection == connection]:
            del self._pipes[pipe]

    def tick(self, now_us: int) -> None:
        grace_us = self._wiring.settings.name_grace_us
        for name, since_us in list(self._unheld.items()):
            if now_us - since_us >= grace_us:
                self._unheld[name] = now_us  # asked again if nothing comes of it
                held = self._names.committed[name]
                self._try_release(name, held.lease)
        if now_us - self._looked_us >= LOOK_EVERY_US:
            self._looked_us = now_us
            self._look_for_orphans(now_us, grace_us)
        for pipe, waiting in list(self._pipes.items()):
            if now_us - waiting.since_us >= PIPE_WAIT_US:
                del self._pipes[pipe]
                self._no_owner(waiting)

    def _try_release(self, name: str, lease: str) -> None:
        origin = Origin(NAMING, 0, next(self._wiring.network.numbers))
        try:
            if self.leads():
                self._append_release(origin, name, lease, self._wiring.catalogue.me)
            else:
                self.release_by(origin, name, bytes.fromhex(lease))
        except HocketError:  # there is no root, or no room: it is tried again
            pass

    def _released(self, _answer: Frame) -> None:
        """What has become of a release of ours: `changed` has been told if it was done."""

    def _look_for_orphans(self, now_us: int, grace_us: int) -> None:
        if not self.leads():
            self._orphans.clear()
            return
        _version, members = self._registering.members()
        nodes = {each.node for each in members} | {self._wiring.catalogue.me}
        is_dead = self._wiring.catalogue.is_dead
        gone = {
            each.node
            for each in self._names.committed.values()
            if each.node not in nodes or is_dead(each.node)
        }
        for name in [
            name for name in self._orphans if self._names.committed[name].node not in gone
        ]:
            del self._orphans[name]
        if not gone:
            return
        for name, held in list(self._names.committed.items()):
            if held.node not in gone:
                continue
            since_us = self._orphans.setdefault(name, now_us)
            if now_us - since_us >= grace_us:
                self._orphans[name] = now_us  # asked again if nothing comes of it
                with suppress(HocketError):  # there is no room
                    self._append_release(Origin(NAMING, 0, 0), name, held.lease, held.node)

    # --- finding ---------------------------------------------------------------------------------

    def _find(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.FindName)
        check_broker_name(frame.name)
        self._when_known(connection, session, frame, self._tell)

    def _when_known(
        self,
        connection: int,
        session: Session,
        frame: frames.FindName | frames.OpenPipe,
        then: Callable[[int, Session, Frame, Registration], None],
    ) -> None:
        """Go on with the registration; it may have been made at another node a moment ago."""
        held = self._names.committed.get(frame.name)
        if held is not None:
            then(connection, session, frame, held)
            return

        def again() -> None:
            if self._wiring.sessions.get(connection) is not session:
                return
            known = self._names.committed.get(frame.name)
            if known is not None:
                try:
                    then(connection, session, frame, known)
                except HocketError as refusal:
                    self._wiring.network.send(connection, failure(frame.request, refusal))
                return
            error: HocketError = UnknownBroker(f"no broker is called {frame.name!r}")
            if not self.knows():
                error = RootAway(
                    f"no broker called {frame.name!r} is known here, and the root, which would "
                    "know whether it is new, has not answered; try again"
                )
            self._wiring.network.send(connection, failure(frame.request, error))

        self.catch_up(again)

    def _tell(self, connection: int, session: Session, frame: Frame, held: Registration) -> None:
        wiring = self._wiring
        user = session.rights.user
        issued = tickets.issue(bytes.fromhex(held.key), held.name, user, wiring.clock.now_us())
        here = held.node == wiring.catalogue.me
        wiring.network.send(
            connection,
            frames.NameIs(
                frame.request,
                held.kind,
                bytes.fromhex(held.lease)[: tickets.LEASE_BYTES // 2],
                held.address,
                bytes.fromhex(held.fingerprint),
                "" if here else wiring.catalogue.address_of(held.node),
                issued.ticket,
                issued.secret,
            ),
        )

    def _list(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.ListNames)
        page: Page[NameDescription] = Page(paged=True)
        next_ = last = ""
        for name in sorted(self._names.committed):
            if name <= frame.after or not session.rights.sees_name(name):
                continue
            held = self._names.committed[name]
            each = NameDescription(name, held.kind, held.node, held.user, held.address)
            if not page.takes(each, name_bytes(each)):
                next_ = last
                break
            last = name
        answer = frames.NamesAre(frame.request, tuple(page.items), next_)
        self._wiring.network.send(connection, answer)

    # --- pipes -----------------------------------------------------------------------------------

    def _open_pipe(
        self, connection: int, session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.OpenPipe)
        check_broker_name(frame.name)
        self._when_known(connection, session, frame, self._want_pipe)

    def _want_pipe(
        self, connection: int, _session: Session, frame: Frame, held: Registration
    ) -> None:
        if self.splice is None or not self._is_held(held):
            raise UnknownBroker(
                f"the process of broker {held.name!r} is not connected to this node"
            )
        if len(self._pipes) >= PIPES_WAITING_MAX:
            raise LimitExceeded(f"{PIPES_WAITING_MAX} pipes wait for their owners here already")
        pipe = self._wiring.entropy(PIPE_BYTES)
        now_us = self._wiring.clock.now_us()
        self._pipes[pipe] = Pipe(connection, frame.request, held.name, now_us)
        owner = self._claims[held.name].connection
        self._wiring.network.send(owner, frames.PipeWanted(0, held.name, pipe))

    def _take_pipe(
        self, connection: int, _session: Session, demand: Demand, _payload: memoryview
    ) -> None:
        frame = demand.frame
        assert isinstance(frame, frames.TakePipe)
        waiting = self._pipes.pop(frame.pipe, None)
        if waiting is None or self.splice is None:
            raise UnknownBroker("nobody waits for this pipe any more")
        network = self._wiring.network
        network.send(waiting.connection, frames.PipeIs(waiting.request))
        network.send(connection, frames.PipeIs(frame.request))
        self.splice(waiting.connection, connection)

    def _no_owner(self, waiting: Pipe) -> None:
        error = UnknownBroker(
            f"the process of broker {waiting.name!r} did not answer within "
            f"{in_seconds(PIPE_WAIT_US // SECOND_US)}"
        )
        self._wiring.network.send(waiting.connection, failure(waiting.request, error))
