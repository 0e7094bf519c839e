"""Where something from outside may look at what passes a node, and change it (`hocket.plugins`).

Rule: a hook that nobody has set is None, and each place looks at it once for a batch, a login or a
request, never for a record. So a node without plug-ins pays for one comparison.

All of them are called on the node's own thread, and must not wait. What has to be asked elsewhere
is asked, and answered by a call on the node's thread: within the question, or later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hocket.cluster_model import PluginState
from hocket.core.origin import Origin
from hocket.core.ring.contact import Contact
from hocket.errors import HocketError
from hocket.model import TopicConfig
from hocket.node.running.sessions import Address
from hocket.wire.batch import BatchInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Sample(NamedTuple):
    """A number that a node tells about itself, as Prometheus would read it."""

    name: str  # such as "hocket_records_taken_total"
    labels: dict[str, str]
    value: float
    kind: str  # "counter", "gauge" or "histogram"


class Passing(NamedTuple):
    """A batch of a client that was checked and is about to be stored."""

    topic: str
    partition: int
    user: str  # empty: nobody in particular
    payload: memoryview  # in which the batch lies
    info: BatchInfo
    delayed: bool = False
    transaction: bool = False


# The same from a tuple of all of them, in half the time: it is made for each batch.
passing_of: Callable[[tuple[str, int, str, memoryview, BatchInfo, bool, bool]], Passing] = partial(
    tuple.__new__, Passing
)


class Given(NamedTuple):
    """Batches that are about to be sent to a consumer."""

    address: Address
    topic: str
    partition: int
    start: int  # the first offset
    end: int  # behind the last one
    records: int
    payload: Sequence[Buffer]  # whole batches; the first may begin before `start`


# A new batch of the same records instead; None: as it is. Raises HocketError: it is not stored.
OnPublish = Callable[[Passing], bytes | None]
OnDeliver = Callable[[Given], None]
# Whose token it is, if anybody's; an error: nobody can say at the moment.
Vouched = Callable[[str | HocketError | None], None]
Authenticate = Callable[[str, str, Vouched], None]  # token, address, who is told
OnTopic = Callable[[str, str, TopicConfig | None], None]  # "create", "alter", "delete"; topic
OnMembers = Callable[[tuple[Contact, ...]], None]  # the nodes of the cluster, from now on
OnMetrics = Callable[[list[Sample]], None]  # called on a thread of the metrics, not the node's
# Entries of a group are sent to a node; what is returned is called when they are durable there.
OnSent = Callable[[int, str, bytes | memoryview], Callable[[], None] | None]


# A new batch of the same records; None: as it is; an error: it is not stored.
Judged = Callable[[bytes | HocketError | None], None]


class Judges(Protocol):
    """All that `on_publish` asks, if something of it is not in this process, and answers later."""

    def look_at(self, topic: str) -> bool:
        """Whether one of those elsewhere wants to see what is published there."""

    def ask(self, passing: Passing, judged: Judged) -> None:
        """The payload must not be changed any more. `judged` is called once, in any case."""


class Meter(Protocol):
    """Measures publishing: told of each batch, when it comes and when it is acked."""

    def pushed(self, origin: Origin, partition: int, sequence: int) -> None: ...
    def acked(self, origin: Origin, partition: int, sequence: int, batches: int) -> None: ...


class Tracer(Protocol):
    """Told of each batch whose records have headers: when it comes, and when it is answered."""

    def arrived(
        self, origin: Origin, topic: str, partition: int, payload: memoryview, info: BatchInfo
    ) -> None: ...
    def acked(self, origin: Origin, partition: int, sequence: int, offsets: list[int]) -> None: ...
    def refused(self, origin: Origin, partition: int, sequence: int, code: str) -> None: ...


class Hooks:
    __slots__ = (
        "authenticate", "judges", "meter", "on_deliver", "on_members", "on_metrics", "on_publish",
        "on_topic", "states", "tracer",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on_publish: OnPublish | None = None
        self.judges: Judges | None = None  # asked instead of `on_publish` where they look
        self.meter: Meter | None = None
        self.tracer: Tracer | None = None
        self.on_metrics: OnMetrics | None = None
        self.on_deliver: OnDeliver | None = None
        self.authenticate: Authenticate | None = None
        self.on_topic: OnTopic | None = None
        self.on_members: OnMembers | None = None
        self.states: Callable[[], tuple[PluginState, ...]] = tuple  # how plug-ins fare, for people
