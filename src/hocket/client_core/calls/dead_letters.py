"""Dead letters as users see them: messages that were delivered in vain, from where, and why.

A dead letter is pending until it is replayed; one that cannot be read never is. For each index that
has given messages up, an own index of the dead-letter topic, `replay.<index>`, keeps how far the
replay has come. Another one, `purged.<index>`, keeps how far the dead letters of the index were
purged: they are listed no more, though their bytes stay as long as others lie before them.

Nothing here waits: `faces.aio.dead_letters` and `faces.blocking.dead_letters` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from hocket import frames
from hocket.client_core.calls.call import Call
from hocket.client_core.calls.topics import check_int
from hocket.client_core.consuming.message import Message
from hocket.frames import packed, unpacked
from hocket.model import (
    NAME_BYTES_MAX,
    PARTITIONS_MAX,
    IndexDescription,
    Position,
    check_name,
)

SUFFIX = ".dlq"
PREFIX = "hocket-dlq-"  # of the headers that the broker adds
LETTERS_MAX = 500  # that are given back by one request
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
    purged: bool = False  # it is listed no more

    @property
    def is_pending(self) -> bool:
        """Whether it can be replayed, and was not."""
        return not (self.replayed or self.unreadable or self.purged)

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


def purge_index(index: str) -> str:
    """The index of the dead-letter topic that keeps how far those of `index` were purged."""
    return replay_index(index).replace("replay.", "purged.", 1)


def of_message(message: Message, positions: Mapping[tuple[str, int], int]) -> DeadLetter | None:
    """The dead letter in this message; None: somebody has put something else into the topic.

    `positions` are those of the indexes that say what was replayed and purged.
    """
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
    replayed = message.offset < positions.get((replay_index(index), message.partition), 0)
    purged = message.offset < positions.get((purge_index(index), message.partition), 0)
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
        purged=purged,
    )


def positions_of(
    indexes: Iterable[IndexDescription], prefix: str = ""
) -> dict[tuple[str, int], int]:
    """Index and partition of the dead letters -> the first offset that it has not come past."""
    return {
        (each.name, one.partition): one.position
        for each in indexes
        if each.name.startswith(prefix)
        for one in each.partitions
    }


def revive(
    topic: str, index: str, partition: int, letters: Sequence[tuple[int, int]], dead_partition: int
) -> Call[list[int]]:
    check_name(index, "an index's name")
    check_int(partition, "a partition", 0, PARTITIONS_MAX - 1)
    check_int(dead_partition, "a partition", 0, PARTITIONS_MAX - 1)
    # Not `changes`: a dead letter is used up once, so saying it twice does no harm.
    return Call(
        frames.Revive(
            0,
            check_name(topic),
            index,
            partition,
            packed(offset for offset, _ in letters),
            packed(letter for _, letter in letters),
            dead_partition,
        ),
        lambda answer: unpacked(answer.offsets),
        frames.Offsets,
    )


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


class Purging:
    """Counts which dead letters go, those before `ends`, and up to where all messages go."""

    def __init__(self, index: str | None, ends: Sequence[int]) -> None:
        self.count = 0
        self.starts = list(ends)  # in each partition, the first message that stays
        self._index = index
        self._ends = ends

    def look_at(self, message: Message, letter: DeadLetter | None) -> None:
        """The next message of the dead-letter topic, and the dead letter in it if there is one."""
        if message.partition >= len(self._ends):
            return
        is_meant = letter is not None and self._index in (None, letter.index)
        if message.offset < self._ends[message.partition]:
            self.count += is_meant and letter is not None and not letter.purged
            if self._index is None or is_meant or (letter is not None and letter.purged):
                return
        starts = self.starts
        starts[message.partition] = min(starts[message.partition], message.offset)


def are_unread(position: Callable[[int], int], ends: Sequence[int]) -> bool:
    """Whether a reader whose next offsets are `position` has not come to these ends yet."""
    return any(position(partition) < end for partition, end in enumerate(ends))
