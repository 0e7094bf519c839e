"""Dead letters as users see them: messages that were delivered in vain, from where, and why.

A dead letter is pending until it is replayed; one that cannot be read never is. For each index that
has given messages up, an own index of the dead-letter topic, `replay.<index>`, keeps how far the
replay has come.

Nothing here waits: `faces.aio.dead_letters` and `faces.blocking.dead_letters` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from hocket.client.consuming.message import Message
from hocket.model import NAME_BYTES_MAX, IndexDescription, Position, check_name

SUFFIX = ".dlq"
PREFIX = "hocket-dlq-"  # of the headers that the broker adds
REPLAYED = "hocket-replayed"  # the header of a message that was published again: where it had been


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that an index has given up, where it was, and why it was given up."""

    source: Position
    index: str  # that gave it up
    deliveries: int
    reason: str
    value: bytes = field(repr=False)
    key: bytes | None
    headers: dict[str, bytes | None]
    timestamp: int  # of the message; microseconds
    died: int  # when it was given up; microseconds
    position: Position  # among the dead letters
    replayed: bool = False
    # What could not be read: a "batch" (`value` has all its bytes, as they are stored, or this part
    # of them), a "record" (`value`, `key` and `headers` are what can be told of it), or something
    # "damaged" on the broker's disk (`value` is empty). Empty: it was a message like any other.
    unreadable: str = ""
    end: int = 0  # the offset behind the last message that this dead letter stands for
    part: str = "1/1"  # which part of a batch that is too large for one dead letter

    @property
    def is_pending(self) -> bool:
        """Whether it can be replayed, and was not."""
        return not self.replayed and not self.unreadable

    def headers_for_replay(self) -> dict[str, bytes | None]:
        """Its headers, and one that says where it was among the dead letters."""
        where = f"{self.position.topic}/{self.position.partition}/{self.position.offset}"
        return self.headers | {REPLAYED: where.encode()}


def topic_of(topic: str) -> str:
    """The name of the topic that holds a topic's dead letters, which may be given itself."""
    check_name(topic)
    return topic if topic.endswith(SUFFIX) else topic + SUFFIX


def replay_index(index: str) -> str:
    """The index of the dead-letter topic that keeps how far the replay for `index` has come."""
    name = f"replay.{index}"
    if len(name) <= NAME_BYTES_MAX:
        return name
    return f"replay.{blake2b(index.encode(), digest_size=16).hexdigest()}"


def of_message(message: Message, replayed_to: Mapping[tuple[str, int], int]) -> DeadLetter | None:
    """The dead letter in this message; None: somebody has put something else into the topic."""
    about = {
        name.removeprefix(PREFIX): (data or b"").decode(errors="replace")
        for name, data in message.headers.items()
        if name.startswith(PREFIX)
    }
    try:
        source = Position(about["topic"], int(about["partition"]), int(about["offset"]))
        index, reason = check_name(about["index"], "an index's name"), about["reason"]
        deliveries, timestamp = int(about["deliveries"]), int(about["timestamp"])
        end = int(about.get("end", source.offset + 1))
    except (KeyError, ValueError):  # BadName among them
        return None
    headers = {name: data for name, data in message.headers.items() if not name.startswith(PREFIX)}
    unreadable = about.get("unreadable", "")
    replayed = message.offset < replayed_to.get((replay_index(index), message.partition), 0)
    return DeadLetter(
        source=source,
        index=index,
        deliveries=deliveries,
        reason=reason,
        value=message.value,
        key=message.key,
        headers=headers,
        timestamp=timestamp,
        died=message.timestamp,
        position=Position(message.topic, message.partition, message.offset),
        replayed=replayed and not unreadable,
        unreadable=unreadable,
        end=end,
        part=about.get("part", "1/1"),
    )


def replayed_so_far(indexes: Iterable[IndexDescription]) -> dict[tuple[str, int], int]:
    """Index and partition of the dead letters -> the first offset that is still pending."""
    return {(each.name, one.partition): one.position for each in indexes for one in each.partitions}


class Quota:
    """How many more dead letters may be replayed: up to `limit`, or any number for None."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self.counted = 0

    @property
    def is_left(self) -> bool:
        return self._limit is None or self.counted < self._limit

    def count(self) -> None:
        self.counted += 1


def are_unread(position: Callable[[int], int], ends: Sequence[int]) -> bool:
    """Whether a reader whose next offsets are `position` has not come to these ends yet."""
    return any(position(partition) < end for partition, end in enumerate(ends))
