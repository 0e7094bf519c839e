"""A frame of a client, from its session to the servant of its kind, and to the answer.

The session says what the frame asks for. Two things may have to be waited for before that is
served: a topic that this node does not know may be new, and it catches up with the root; and how
far a partition is that several nodes keep is said only if this node still leads it.
"""

from __future__ import annotations

from collections.abc import Callable

from hocket import frames
from hocket.core.session.session import Demand, Effect, Hangup, Reply, Session, failure
from hocket.errors import (
    Busy,
    HocketError,
    NotAllowed,
    ProtocolError,
    RootAway,
    UnknownPartition,
    UnknownTopic,
)
from hocket.frames import Frame
from hocket.node.identity import audit
from hocket.node.replication.copies import Copies
from hocket.node.wiring import Servant, Wiring

# Of payloads that wait until this node has caught up; more are refused for the moment.
KEPT_BYTES_MAX = 16 << 20
_NO_TOPIC = (UnknownTopic.code, UnknownPartition.code)
_UNKNOWN = (UnknownTopic.code, UnknownPartition.code, NotAllowed.code)

# What these are answered with is how far a partition is. Of a partition that several nodes keep, a
# node that does not know yet that another one leads would answer with something old; a client would
# then call a batch lost that is stored.
_TELLS_HOW_FAR = frozenset({frames.OpenProducer, frames.OpenSubscription, frames.FindOffsets})


class Serving:
    def __init__(self, wiring: Wiring, servants: dict[type, Servant], copies: Copies) -> None:
        self._wiring = wiring
        self._servants = servants  # by the type of the frame; some may be added later
        self._copies = copies
        # Calls when this node knows all that the root knows; None: it is the root, or alone.
        self.catch_up: Callable[[Callable[[], None]], None] | None = None
        # While `catch_up` calls: the root has answered, so that what is unknown here is not there.
        self.knows: Callable[[], bool] = lambda: True
        self._kept_bytes = 0  # of payloads whose topic may become known

    def received(self, connection: int, frame: Frame, payload: memoryview) -> None:
        session = self._wiring.sessions.get(connection)
        if session is None:  # the node hung up while this frame was on its way
            return
        effects = session.step(frame)
        if self.catch_up is None or not _is_about_something_unknown(effects):
            self._carry_out(connection, session, frame, effects, payload)
        elif self._kept_bytes + payload.nbytes > KEPT_BYTES_MAX:
            busy = Busy("too much waits here until this node knows all topics; try again")
            self._carry_out(
                connection, session, frame, [Reply(failure(frame.request, busy))], payload
            )
        else:
            kept = memoryview(bytes(payload))  # what it lies in is used again
            self._kept_bytes += kept.nbytes
            self.catch_up(lambda: self._look_again(connection, session, frame, kept))

    def _look_again(
        self, connection: int, session: Session, frame: Frame, payload: memoryview
    ) -> None:
        """This node did not know what the frame is about, and may know it now."""
        self._kept_bytes -= payload.nbytes
        if self._wiring.sessions.get(connection) is not session:
            return
        effects = session.step(frame)
        if _is_about_something_unknown(effects, _NO_TOPIC) and not self.knows():
            # It may be there all the same, and whoever uses it must not be told that it is gone.
            effects = [Reply(failure(frame.request, _not_known(frame)))]
        self._carry_out(connection, session, frame, effects, payload)

    def _carry_out(
        self,
        connection: int,
        session: Session,
        frame: Frame,
        effects: list[Effect],
        payload: memoryview,
    ) -> None:
        for effect in effects:
            if isinstance(effect, Reply | Hangup):
                audit.denied_if(session, frame, effect.frame)
            if isinstance(effect, Reply):
                self._wiring.network.send(connection, effect.frame)
            elif isinstance(effect, Hangup):
                self._wiring.hang_up(connection, effect.frame)
            elif _tells_how_far(effect):
                self._confirm(connection, session, effect, payload)
            else:
                self._serve(connection, session, effect, payload)

    def _confirm(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        """Serve it if the other replicas say that this node leads what it is about."""
        topic, catalogue = demand.topic, self._wiring.catalogue
        assert topic is not None

        def answered(leads: bool) -> None:
            if self._wiring.sessions.get(connection) is not session:
                return
            known = catalogue.topics.get(topic.name) is topic
            if leads and known and all(catalogue.is_led_here(topic, n) for n in demand.partitions):
                self._serve(connection, session, demand, payload)
            else:
                refusal = failure(demand.frame.request, catalogue.no_leader(topic))
                self._wiring.network.send(connection, refusal)

        self._copies.confirm([topic.groups[number] for number in demand.partitions], answered)

    def _serve(
        self, connection: int, session: Session, demand: Demand, payload: memoryview
    ) -> None:
        try:
            self._servants[type(demand.frame)](connection, session, demand, payload)
        except ProtocolError as error:
            self._wiring.hang_up(connection, failure(demand.frame.request, error))
        except HocketError as error:
            answer = failure(demand.frame.request, error)
            audit.denied_if(session, demand.frame, answer)
            self._wiring.network.send(connection, answer)


def _tells_how_far(demand: Demand) -> bool:
    """And of a partition that several nodes keep."""
    return (
        type(demand.frame) in _TELLS_HOW_FAR
        and demand.topic is not None
        and demand.topic.is_replicated
    )


def _is_about_something_unknown(effects: list[Effect], codes: tuple[str, ...] = _UNKNOWN) -> bool:
    """A topic, a partition of one that has grown, or a right that was just granted."""
    match effects:
        case [Reply(frames.Failure(code=code, request=request))]:
            return code in codes and request != 0
    return False


def _not_known(frame: Frame) -> RootAway:
    topic = getattr(frame, "topic", "")
    return RootAway(
        f"topic {topic!r} is not known here, and the root, which would know whether it is new, "
        "has not answered; try again, or ask another node"
    )
