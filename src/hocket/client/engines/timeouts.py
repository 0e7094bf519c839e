"""The errors of calls that took too long: what the call waited for, and whether it may yet happen.

`Timeout`, or `NoConnection`: it has not happened. `OutcomeUnknown`: it may have happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from hocket.client_core.calls.asking import Asking
from hocket.client_core.consuming.reader import Reader, TopicReader
from hocket.client_core.producing.placing import Placing
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Routing, Session
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NoConnection, OutcomeUnknown, RootAway, StorageFull, Timeout

# A client that was dropped without being closed has so long to deliver what was sent, and looks so
# often whether that is done.
ABANDONED_SECONDS = 10.0
ABANDONED_LOOK_SECONDS = 0.02


AnyReader = Reader[Any, Any]
AnyTopicReader = TopicReader[Any, Any]


class Placed(Protocol):
    """A producer or a subscription, as far as it matters here."""

    @property
    def session(self) -> Session: ...

    @property
    def topic(self) -> str: ...


def unanswered(
    router: Router, asking: Asking, timeout: float | None, together: Iterable[Asking] = ()
) -> HocketError:
    """`together`: all that was asked for with it, by one call."""
    name, session = asking.name + asking.missing, asking.session
    tried = _tried(router, asking.topic)
    if any(each.may_have_happened for each in (asking, *together)):
        away = "" if asking.left else f", and there is no connection ({session.last_error})"
        return OutcomeUnknown(
            f"{name} was not answered within {in_seconds(timeout)}{away}{tried}; it may have been "
            "carried out"
        )
    if asking.refusal is not None:
        return RootAway(f"{asking.refusal} ({name} was tried for {in_seconds(timeout)})")
    if asking.left:
        return Timeout(f"{name} was not answered within {in_seconds(timeout)}{tried}")
    if tried:
        return NoConnection(
            f"{name} found no node to answer it within {in_seconds(timeout)}{tried}"
        )
    return NoConnection(
        f"{name} could not be sent to {session.target} within {in_seconds(timeout)}: "
        f"there is no connection ({session.last_error or 'it is being opened'})"
    )


def _tried(router: Routing | None, topic: str) -> str:
    tried = router.tried(topic) if router is not None else ""
    return f" (tried: {tried})" if tried else ""


def not_connected(session: Session) -> HocketError:
    last = f" (last: {session.last_error})" if session.last_error else ""
    return NoConnection(
        f"no broker answered at {session.target} in time{last}. Is it running? Start one with: "
        "hocket serve"
    )


def not_opened(core: Placing, what: str, timeout: float | None) -> HocketError:
    if core.session.link is None:
        return _not_opened_without_link(core, what, timeout)
    tried = _tried(core.session.router, core.topic)
    return Timeout(f"the broker did not open the {what} within {in_seconds(timeout)}{tried}")


def not_subscribed(core: AnyReader, may_be_opened: bool, timeout: float | None) -> HocketError:
    """`may_be_opened`: somebody was asked to, and has not said that it is not."""
    away = core.away()
    if away:
        text = f"the subscription was not opened within {in_seconds(timeout)}: {away}"
        if not may_be_opened:
            return NoConnection(text)
        return OutcomeUnknown(f"{text}; it may have been, or may have made the index elsewhere")
    if not may_be_opened:
        return _not_opened_without_link(core, "subscription", timeout)
    tried = _tried(core.session.router, core.topic)
    return OutcomeUnknown(
        f"the broker did not open the subscription within {in_seconds(timeout)}{tried}; it may "
        "have made the index, or replaced the consumer that had it"
    )


def _not_opened_without_link(core: Placed, what: str, timeout: float | None) -> HocketError:
    session = core.session
    tried = _tried(session.router, core.topic)
    if session.link is not None:
        return NoConnection(
            f"the {what} could not be opened within {in_seconds(timeout)}: no node answers for "
            f"it{tried}"
        )
    return NoConnection(
        f"the {what} could not be opened within {in_seconds(timeout)}: there is no connection to "
        f"{session.target} ({session.last_error or 'it is being opened'}){tried}"
    )


def window_full(producer: Placing, timeout: float | None, taken: int) -> HocketError:
    full = producer.full_disk
    why = f"the broker refuses more: {full}" if full else "the broker does not keep up, or is away"
    if full is None and len(producer.pushers) > 1:
        why = producer.missing()
    error = Timeout(
        f"the window of {producer.options.window_bytes} bytes was full for {in_seconds(timeout)}; "
        f"{why}"
    )
    error.written = taken
    return error


def undelivered(producer: Placing, timeout: float | None) -> HocketError:
    session = producer.session
    if producer.full_disk is not None:
        return _full(
            f"{producer.unacked_bytes} bytes for topic {producer.topic!r} were not stored within "
            f"{in_seconds(timeout)}",
            producer.full_disk,
            may_have_happened=True,
        )
    state = f"they are still being sent{_tried(session.router, producer.topic)}"
    if len(producer.pushers) > 1:
        state = producer.missing()
    elif session.link is None:
        state = f"there is no connection ({session.last_error})"
    return OutcomeUnknown(
        f"{producer.unacked_bytes} bytes for topic {producer.topic!r} were not acknowledged within "
        f"{in_seconds(timeout)}; {state}"
    )


def _full(what: str, full: StorageFull, *, may_have_happened: bool) -> StorageFull:
    """It took too long, and the broker has said why."""
    error = StorageFull(f"{what}: {full}")
    error.may_have_happened = may_have_happened
    return error


def unpublished(producer: Placing, withdrawn: bool, timeout: float | None) -> HocketError:
    if producer.full_disk is not None:
        what = f"the message was not stored within {in_seconds(timeout)}"
        return _full(what, producer.full_disk, may_have_happened=not withdrawn)
    tried = _tried(producer.session.router, producer.topic)
    missing = producer.missing()
    late = f" ({missing})" if missing else tried
    if not withdrawn:
        return OutcomeUnknown(
            f"the message was not acknowledged within {in_seconds(timeout)}{late}; it may be stored"
        )
    session = producer.session
    why = "no node takes it" + tried if tried else "the broker has not answered those before it yet"
    if session.link is None:
        why = f"there is no connection ({session.last_error})"
    return Timeout(f"the message was not sent within {in_seconds(timeout)}: {why}")


def undecided(what: str, refusal: HocketError | None, timeout: float | None) -> HocketError:
    if isinstance(refusal, StorageFull):
        slow = f"the {what} was not carried out within {in_seconds(timeout)}; it may yet happen"
        return _full(slow, refusal, may_have_happened=True)
    last = f" (the broker's last word: {refusal})" if refusal else ""
    return OutcomeUnknown(
        f"the {what} was not answered within {in_seconds(timeout)}{last}; it may yet happen"
    )


def no_message(core: AnyReader, timeout: float | None) -> HocketError:
    away = core.away()
    missing = f"; not reached: {away}" if away else ""
    return Timeout(f"no message of topic {core.topic!r} came within {in_seconds(timeout)}{missing}")


def not_committed(core: AnyReader, acked: object, timeout: float | None) -> HocketError:
    late = core.unconfirmed(acked)
    where = f": {late}" if late else ""
    return OutcomeUnknown(
        f"what was said about messages of topic {core.topic!r} was not confirmed within "
        f"{in_seconds(timeout)}{where}"
    )


def not_sought(core: AnyTopicReader, partition: int, timeout: float | None) -> HocketError:
    there = core.place_of(partition)
    where = f" by {there}" if there else ""
    return OutcomeUnknown(
        f"the seek was not confirmed within {in_seconds(timeout)}{where}; it may yet happen"
    )


def not_closed(timeout: float | None) -> HocketError:
    return OutcomeUnknown(
        f"the broker did not confirm the end of the subscription within {in_seconds(timeout)}"
    )
