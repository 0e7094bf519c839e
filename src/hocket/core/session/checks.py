"""What a request may ask of a topic, or of a lease. Each raises what is to be said."""

from __future__ import annotations

from hocket.core.metadata.catalogue import Topic
from hocket.errors import OutOfRange, WrongKind
from hocket.model import HOUR_US

LEASE_US_MIN, LEASE_US_MAX = 10_000, 12 * HOUR_US


def refuse_replicated(topic: Topic, what: str) -> None:
    if topic.is_replicated:
        raise WrongKind(
            f"{what} needs a topic with one replica in this version, and {topic.name!r} has "
            f"{topic.replication}; use a topic of replication 1"
        )


def check_delayed(topic: Topic | None) -> None:
    assert topic is not None
    refuse_replicated(topic, "a delayed message")
    if not topic.config.delayed:
        raise WrongKind(
            f"topic {topic.name!r} takes no delayed messages; an admin of it can change that with "
            f"alter_topic({topic.name!r}, delayed=True) or: hocket topic alter {topic.name} "
            "--delayed"
        )


def check_lease(lease_us: int) -> None:
    if not LEASE_US_MIN <= lease_us <= LEASE_US_MAX:
        raise OutOfRange(
            f"a lease lasts {LEASE_US_MIN} us to {LEASE_US_MAX // HOUR_US} h, not {lease_us} us"
        )
