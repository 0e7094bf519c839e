"""A shared index that is in use, and its consumers, as the node keeps them in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.state import ShareSettings
from hocket.errors import HocketError
from hocket.log.model import ReadResult
from hocket.model import Mode
from hocket.node.running.sessions import Address


@dataclass(slots=True)
class Consumer:
    address: Address
    partitions: set[int] = field(default_factory=set)
    # partition -> base offset of the last batch that was sent: the client still has that batch.
    last_batch: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SharedIndex:
    topic: str
    index: str
    mode: Mode
    core: Dispatcher
    groups: dict[int, int]  # partition -> group
    settings: ShareSettings = ShareSettings()  # noqa: RUF009 - it cannot be changed
    consumers: dict[int, Consumer] = field(default_factory=dict)
    reads: dict[int, ReadResult] = field(default_factory=dict)  # by fetch, until it is sent
    used_us: int = 0  # when the index was last seen not to be idle


@dataclass(slots=True)
class Revival:
    """Dead letters that are delivered again, until that is durable."""

    shared: SharedIndex
    partition: int
    done: Callable[[list[tuple[int, int]] | HocketError], None]
    ranges: list[tuple[int, int]] = field(default_factory=list)
