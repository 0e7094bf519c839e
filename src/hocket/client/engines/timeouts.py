"""The errors of calls that took too long: what the call waited for, and whether it may yet happen.

`Timeout`, or `NoConnection`: it has not happened. `OutcomeUnknown`: it may have happened.
"""

from __future__ import annotations

from typing import Protocol

from hocket.client_core.calls.asking import Asking
from hocket.client_core.producing.delivery import Pusher
from hocket.client_core.session.router import Router
from hocket.client_core.session.session import Routing, Session
from hocket.deadline import in_seconds
from hocket.errors import HocketError, NoConnection, OutcomeUnknown, StorageFull, Timeout

# A client that was dropped without being closed has so long to deliver what was sent, and looks so
# often whether that is done.
ABANDONED_SECONDS = 10.0
ABANDONED_LOOK_SECONDS = 0.02


class Placed(Protocol):
    """A producer or a subscription, as far as it matters here."""

    session: Session
    topic: str


def unanswered(router: Router, asking: Asking, timeout: float | None) -> HocketError:
    name, session = type(asking.request.frame).__name__, asking.session
    tried = _tried(router, asking.topic)
    if asking.may_have_happened:
        away = "" if asking.left else f", and there is no connection ({session.last_error})"
        return OutcomeUnknown(
            f"{name} was not answered within {in_seconds(timeout)}{away}{tried}; it may have been "
            "carried out"
        )
    if asking.left:
        return Timeout(f"{name} was not answered within {in_seconds(timeout)}{tried}")
    if tried:
        return NoConnection(
            f"{name} found no node to answer it within {in_seconds(timeout)}{tried}"
        )
    return NoConnection(
        f"{name} could not be sent to {session.target} within {in_seconds(timeout)}: "
        f"there is no connection ({session.last_error})"
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


def not_opened(core: Pusher, what: str, timeout: float | None) -> HocketError:
    if core.session.link is None:
        return _not_opened_without_link(core, what, timeout)
    tried = _tried(core.session.router, core.topic)
    return Timeout(f"the broker did not open the {what} within {in_seconds(timeout)}{tried}")


def not_subscribed(core: Placed, may_be_opened: bool, timeout: float | None) -> HocketError:
    """`may_be_opened`: somebody was asked to, and has not said that it is not."""
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


def window_full(producer: Pusher, timeout: float | None, taken: int) -> HocketError:
    full = producer.full_disk
    why = f"the broker refuses more: {full}" if full else "the broker does not keep up, or is away"
    error = Timeout(
        f"the window of {producer.options.window_bytes} bytes was full for {in_seconds(timeout)}; "
        f"{why}"
    )
    error.written = taken
    return error


def undelivered(producer: Pusher, timeout: float | None) -> HocketError:
    session = producer.session
    if producer.full_disk is not None:
        return _full(
            f"{producer.unacked_bytes} bytes for topic {producer.topic!r} were not stored within "
            f"{in_seconds(timeout)}",
            producer.full_disk,
            may_have_happened=True,
        )
    state = f"they are still being sent{_tried(session.router, producer.topic)}"
    if session.link is None:
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


def unpublished(producer: Pusher, withdrawn: bool, timeout: float | None) -> HocketError:
    if producer.full_disk is not None:
        what = f"the message was not stored within {in_seconds(timeout)}"
        return _full(what, producer.full_disk, may_have_happened=not withdrawn)
    tried = _tried(producer.session.router, producer.topic)
    if not withdrawn:
        return OutcomeUnknown(
            f"the message was not acknowledged within {in_seconds(timeout)}{tried}; it may be "
            "stored"
        )
    session = producer.session
    why = "the broker has not answered those before it yet" + tried
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


def no_message(topic: str, timeout: float | None) -> HocketError:
    return Timeout(f"no message of topic {topic!r} came within {in_seconds(timeout)}")


def not_committed(topic: str, timeout: float | None) -> HocketError:
    return OutcomeUnknown(
        f"what was said about messages of topic {topic!r} was not confirmed within "
        f"{in_seconds(timeout)}"
    )


def not_sought(timeout: float | None) -> HocketError:
    return OutcomeUnknown(
        f"the seek was not confirmed within {in_seconds(timeout)}; it may yet happen"
    )


def not_closed(timeout: float | None) -> HocketError:
    return OutcomeUnknown(
        f"the broker did not confirm the end of the subscription within {in_seconds(timeout)}"
    )
