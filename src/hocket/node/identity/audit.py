"""The audit log: every request that was denied, and every change of users, roles and grants, and of
what is set for the whole cluster.

Rule: a token, or the hash of one, is never handed to this file.

A record goes to the logger `hocket.audit`, and to the trail of the node on whose thread it is made:
a process may have several nodes, each with a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from hocket.core.metadata.roster import Change, in_words
from hocket.core.session.session import Opened, OpenedProducer, Session
from hocket.errors import NotAllowed
from hocket.frames import Failure, Frame

log = logging.getLogger("hocket.audit")

Keep = Callable[[str], None]
_trails: dict[int, Keep] = {}  # by thread

_SHOWN_MAX = 255  # characters of a name that somebody sent
_REASON_MAX = 1_000  # characters of a reason, which may quote several names


@contextmanager
def kept_by(keep: Keep) -> Iterator[None]:
    """Records that are made on this thread meanwhile are handed to `keep`, too."""
    thread = threading.get_ident()
    before = _trails.get(thread)
    _trails[thread] = keep
    try:
        yield
    finally:
        del _trails[thread]
        if before is not None:
            _trails[thread] = before


def _note(level: int, text: str, *values: object) -> None:
    log.log(level, text, *values)
    keep = _trails.get(threading.get_ident())
    if keep is not None:
        keep(text % values)


def denied(session: Session, frame: Frame, why: str) -> None:
    _note(logging.WARNING, "denied: %s %s: %s", who(session), _act(frame), why)


def denied_if(session: Session, frame: Frame, answer: Frame | None) -> None:
    """Write it down if this is what the request is answered with, and it is for want of a right."""
    if isinstance(answer, Failure) and answer.code == NotAllowed.code:
        denied(session, frame, answer.message)


def wrong_token(session: Session, user: str | None, why: str) -> None:
    shown = "without a user" if user is None else f"as user {user[:_SHOWN_MAX]!r}"
    _note(logging.WARNING, "denied: %s Hello %s: %s", who(session), shown, why)


def foreign_producer(session: Session, topic: str, producer_id: bytes) -> None:
    """Somebody has used a producer id that belongs to another user."""
    _note(
        logging.WARNING, "denied: %s producer id %s in topic %r: it belongs to another user",
        who(session), producer_id.hex(), topic[:_SHOWN_MAX],
    )  # fmt: skip


def handshake_refused(address: str, why: str) -> None:
    """TLS did not come about: one of the two does not take what the other one shows."""
    _note(logging.WARNING, "denied: TLS handshake address=%s: %s", address, why[:_REASON_MAX])


def link_refused(address: str, node: str, code: str, why: str) -> None:
    """Something that says it is a node of the cluster was not let in."""
    _note(
        logging.WARNING, "denied: link address=%s node=%r: %s: %s",
        address, node[:_SHOWN_MAX], code, why[:_REASON_MAX],
    )  # fmt: skip


def node_refused(address: str, why: str) -> None:
    """This node has called another one, and does not believe that it is who it should be."""
    _note(logging.WARNING, "denied: node at %s: %s", address[:_SHOWN_MAX], why[:_REASON_MAX])


def more_refused(count: int, addresses: str) -> None:
    """Refusals that came too fast to be written down one by one."""
    _note(
        logging.WARNING, "denied: %d more links and TLS handshakes within a minute, from %s",
        count, addresses,
    )  # fmt: skip


def changed(who: str, change: Change) -> None:
    _note(logging.INFO, "changed: %s %s %r%s", who, change.kind, change.name, _of(change))


def _of(change: Change) -> str:
    if change.grant is not None:
        return f" {in_words(change.grant)}"
    return f" roles={list(change.roles)}" if change.kind in ("createUser", "setRoles") else ""


def may_have_changed(who: str, change: Change) -> None:
    """This node has proposed it, and leads no more: the next root decides about it."""
    _note(logging.INFO, "perhaps changed: %s %s %r%s", who, change.kind, change.name, _of(change))


def preferred(who: str, replication: int) -> None:
    _note(logging.INFO, "changed: %s setCluster replication=%d", who, replication)


def ended(session: Session, opened: Opened, why: str) -> None:
    """A producer or subscription was ended, because its user lost the right to it."""
    what = "producer" if isinstance(opened, OpenedProducer) else "subscription"
    _note(logging.INFO, "ended: %s %s of topic %r: %s", who(session), what, opened.topic, why)


def hung_up(session: Session, why: str) -> None:
    """A connection was closed, with all that its user had open."""
    _note(logging.INFO, "ended: %s connection: %s", who(session), why)


def who(session: Session) -> str:
    if session.rights.trusted:
        where = session.caller.address  # empty, unless another node has handed the request on
        return f"user=(a node's process) address={where}" if where else "user=(this process)"
    user = repr(session.rights.user) if session.rights.user else "(nobody)"
    return f"user={user} address={session.caller.address or '(unknown)'}"


def _act(frame: Frame) -> str:
    """The kind of a frame and the names in it, and nothing else: there may be a token in it."""
    words = [type(frame).__name__]
    for field in ("topic", "index", "name", "role", "user", "transaction"):
        value = getattr(frame, field, "")
        if value:
            words.append(f"{field}={value[:_SHOWN_MAX]!r}")
    return " ".join(words)
