"""Where something from outside may look at what passes a node, and change it (`hocket.plugins`).

Rule: a hook that nobody has set is None, and each place looks at it once for a batch, a login or a
request, never for a record. So a node without plug-ins pays for one comparison.

All of them are called on the node's own thread, and must not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from hocket.cluster_model import PluginState
from hocket.core.origin import Origin
from hocket.core.ring.contact import Contact
from hocket.model import TopicConfig
from hocket.node.running.sessions import Address
from hocket.wire.batch import BatchInfo

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Passing(NamedTuple):
    """A batch of a client that was checked and is about to be stored."""

    topic: str
    partition: int
    user: str  # empty: nobody in particular
    payload: memoryview  # in which the batch lies
    info: BatchInfo
    delayed: bool = False
    transaction: bool = False


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
Authenticate = Callable[[str, str], str | None]  # token, address: whose token it is, if anybody's
OnTopic = Callable[[str, str, TopicConfig | None], None]  # "create", "alter", "delete"; topic
OnMembers = Callable[[tuple[Contact, ...]], None]  # the nodes of the cluster, from now on


class Meter(Protocol):
    """Measures publishing: told of each batch, when it comes and when it is acked."""

    def pushed(self, origin: Origin, partition: int, sequence: int) -> None: ...
    def acked(self, origin: Origin, partition: int, sequence: int, batches: int) -> None: ...


class Hooks:
    __slots__ = (
        "authenticate", "meter", "on_deliver", "on_members", "on_publish", "on_topic", "states",
    )  # fmt: skip

    def __init__(self) -> None:
        self.on_publish: OnPublish | None = None
        self.meter: Meter | None = None
        self.on_deliver: OnDeliver | None = None
        self.authenticate: Authenticate | None = None
        self.on_topic: OnTopic | None = None
        self.on_members: OnMembers | None = None
        self.states: Callable[[], tuple[PluginState, ...]] = tuple  # how plug-ins fare, for people
