"""One connection as the broker sees it: who it is, what it has open, and what it may do next.

Rule 1: the first frame must be Hello.
Rule 2: a handle is the permission to use what it stands for; it ends with the connection.
Rule 3: a request that cannot be carried out is answered by a Failure and changes nothing.
Rule 4: what rights a frame needs is said in `core.session.permissions`, and is checked before
        anything else. The right to a handle is checked when the handle is made, and whenever rights
        change.
Rule 5: a request is served by the node that holds all partitions that the request means. If they
        are all on one other node, the answer says on which; if they are on several nodes, the
        client asks each for its own.

The session checks a frame against what it knows (its handles, the catalogue, the limits) and hands
it on as a demand with everything resolved: topics and partitions instead of names and numbers.
Every front door (framed TCP, in-process) drives this one class.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple, TypeVar

from hocket import frames
from hocket.cluster_model import NodeAddress
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue, Topic
from hocket.core.metadata.roster import EVERYTHING
from hocket.core.session.checks import (
    check_delayed,
    check_each_once,
    check_feed,
    check_lease,
    check_partition,
)
from hocket.core.session.failures import failure as failure
from hocket.core.session.numbers import numbers_of, partitions_of, triples as triples
from hocket.core.session.permissions import NO_TOKEN, RULES, Rights, permit_commit
from hocket.core.transactions.participants import PARTICIPANTS_MAX
from hocket.errors import (
    HocketError,
    LimitExceeded,
    NotAllowed,
    OutOfRange,
    ProtocolError,
    UnknownHandle,
    UnknownPartition,
    WrongKind,
    WrongVersion,
)
from hocket.frames import Frame
from hocket.model import (
    DAY_US,
    DEAD_LETTERS as DEAD_LETTERS,
    OWN_PRODUCERS,
    Limits,
    Mode,
    Participant,
    Start,
    check_name,
)

DELAY_US_MAX = 100 * 366 * DAY_US
DELIVERIES_MAX = 250  # of one message: they are counted in a byte
CONSUMER_BYTES = 16
PREFETCH_MAX = 20_000
# Characters of an error's text that are sent: an error may name what it is about, and that may be
# ten thousand topics, which would not fit into the frame.


FrameOfTransaction = TypeVar(
    "FrameOfTransaction",
    bound=frames.OpenProducer
    | frames.CommitTransaction
    | frames.NameParticipants
    | frames.AbortTransaction,
)


class Caller(NamedTuple):
    """Who is at the other end of a connection, as far as the front door can tell."""

    address: str = ""  # where the connection comes from; empty within the process
    trusted: bool = False  # within the process, where it could read the data directory as well
    certified: str = ""  # the user that the TLS certificate names


TRUSTED = Caller(trusted=True)


@dataclass(slots=True)
class OpenedProducer:
    topic: str
    producer_id: bytes
    epoch: int
    transaction: str = ""  # pushed batches are staged for it
    number: int = 0
    delayed: bool = False
    # By partition, the first batch that was refused and has not come again.
    refused: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class OpenedSubscription:
    topic: str
    index: str
    partitions: list[int]
    epochs: dict[int, int]  # of the index, by partition; empty if the client keeps its positions
    whole_topic: bool  # partitions that are added to the topic later belong to it
    # It is a part of a subscription to the whole topic: the client opens later partitions itself.
    part: bool = False
    hold_retention: bool = False
    mode: Mode = "own"
    # Partitions whose index was put elsewhere while the client does not know it yet, each with the
    # request number of the Ping whose answer shows that the client knows.
    unaware: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class OpenedFeed:
    """The bytes of a subscription that is open at another node."""

    topic: str
    index: str
    partitions: list[int]


Opened = OpenedProducer | OpenedSubscription | OpenedFeed


@dataclass(slots=True)
class Named:
    """Participants that were named for a commit which is to come on this connection."""

    transaction: str
    number: int
    participants: list[Participant]

    def is_of(self, frame: frames.CommitTransaction | frames.NameParticipants) -> bool:
        return (self.transaction, self.number) == (frame.transaction, frame.number)


# --- what a session asks of its node --------------------------------------------------------------


@dataclass(slots=True)
class Reply:
    frame: Frame


@dataclass(slots=True)
class Hangup:
    """Close, after this last word if there is one."""

    frame: Frame | None = None


@dataclass(slots=True)
class Demand:
    """A frame that passed every check, with what it refers to."""

    frame: Frame
    topic: Topic | None = None
    opened: Opened | None = None
    partitions: tuple[int, ...] = ()


Effect = Reply | Hangup | Demand


class Session:
    """See the head of the file. `step` never raises: a Failure says what is wrong."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        node: str,
        software: str,
        limits: Limits,
        cluster: str = "",
        nodes: Callable[[], tuple[NodeAddress, ...]] = tuple,
        caller: Caller = TRUSTED,
        access: Access | None = None,
        handed_on: Container[type] = (),
    ) -> None:
        """Frames of the kinds in `handed_on` are judged by another node, to which they go on."""
        self._handed_on = handed_on
        self.caller = caller
        self._access = access or Access()
        self.rights = Rights(self._access, trusted=caller.trusted)
        self.client = ""
        self.greeted = False
        self.handles: dict[int, Opened] = {}
        self.named: Named | None = None
        self._catalogue = catalogue
        self._node = node
        self._software = software
        self._cluster = cluster
        self._nodes = nodes  # to tell clients of, in case that they lose this one
        self._limits = limits
        self._last_handle = 0
        self.has_shown = False  # Hello came with a token, or with a certificate

    def step(self, frame: Frame) -> list[Effect]:
        handler: Callable[..., Effect | None]
        try:
            if not self.greeted:
                handler = Session._hello
            elif type(frame) in self._handlers:
                handler = self._handlers[type(frame)]
                rule = RULES[type(frame)]
                if rule is not None and type(frame) not in self._handed_on:
                    rule(self.rights, frame)
            else:
                handler = Session._unexpected
            effect = handler(self, frame)
        except (ProtocolError, WrongVersion) as error:
            return [Hangup(failure(frame.request, error))]
        except HocketError as error:
            answer = failure(frame.request, error)
            return [Reply(answer) if self.greeted else Hangup(answer)]
        return [] if effect is None else [effect]

    def greet_as(self, user: str) -> None:
        """Another node vouches for who this is."""
        self.greeted = True
        self.rights.user = user

    def welcome(self, request: int, user: str = "") -> Reply:
        """The answer to Hello, once it is known who the client is."""
        self.greeted = True
        self.rights.user = user
        features = (frames.COMMIT_IN_PARTS, frames.DELAYED)
        me = self._catalogue.me
        return Reply(
            frames.Welcome(
                request, frames.PROTOCOL_VERSION, self._node, self._software, features,
                self._limits, self._cluster, me, self._nodes(),
            )
        )  # fmt: skip

    def open(self, opened: Opened) -> int:
        """A new handle. Numbers are never reused within a connection.

        Raises NotAllowed if the right to it was lost since it was demanded.
        """
        self._check_right_to(opened)
        self._last_handle += 1
        self.handles[self._last_handle] = opened
        return self._last_handle

    def without_right(self) -> list[tuple[int, NotAllowed]]:
        """The handles whose right was lost, and why."""
        found = []
        for handle, opened in self.handles.items():
            try:
                self._check_right_to(opened)
            except NotAllowed as error:
                found.append((handle, error))
        return found

    # --- frames ------------------------------------------------------------------------------

    def _hello(self, frame: Frame) -> Effect:
        if not isinstance(frame, frames.Hello):
            raise ProtocolError(f"the first frame must be Hello, not {type(frame).__name__}")
        if self.has_shown:
            raise ProtocolError("a second Hello came before the first was answered")
        version = frames.PROTOCOL_VERSION
        if not frame.version_min <= version <= frame.version_max:
            raise WrongVersion(
                f"this broker speaks version {version} of the protocol, the client "
                f"{frame.version_min} to {frame.version_max}; upgrade the older of the two"
            )
        self.client = frame.client
        if self.rights.trusted:
            return self.welcome(frame.request)
        if self.caller.certified in self._access.in_force.users:
            return self.welcome(frame.request, self.caller.certified)
        self.has_shown = bool(frame.token or self.caller.certified)
        if self.has_shown:  # also while there are no users: there may be some, and not known here
            return Demand(frame)
        if self._access.is_on:
            raise NotAllowed(NO_TOKEN)
        return self.welcome(frame.request)

    def _unexpected(self, frame: Frame) -> Effect:
        raise ProtocolError(f"{type(frame).__name__} is not for a client to send here")

    def _ping(self, frame: frames.Ping) -> Effect:
        return Reply(frames.Done(frame.request))

    def _goodbye(self, _frame: frames.Goodbye) -> Effect:
        return Hangup()

    def _plain(self, frame: Frame) -> Effect:
        return Demand(frame)

    def _whole_topic(self, frame: _OfWholeTopic) -> Effect:
        return Demand(frame, self._catalogue.topic(frame.topic))

    def _of_topic(self, frame: _OfTopic) -> Demand:
        topic = self._catalogue.topic(frame.topic)
        return Demand(frame, topic, None, self._partitions_here(topic, frame.partitions))

    def _open_producer(self, frame: frames.OpenProducer) -> Effect:
        self._check_handles()
        if len(frame.producer_id) not in (0, 16):
            raise OutOfRange(f"a producer id has 16 bytes, not {len(frame.producer_id)}")
        if frame.producer_id.startswith(OWN_PRODUCERS):
            raise OutOfRange("this producer id is one of the broker's own; open one without an id")
        if frame.transaction and frame.delayed:
            raise WrongKind(
                "a transaction takes no delayed messages: publish them when it is committed"
            )
        if frame.transaction:
            frame = self._with_own_id(frame)
        demand = self._of_topic(frame)
        if frame.delayed:
            check_delayed(demand.topic)
        return demand

    def _push(self, frame: frames.Push) -> Effect | None:
        opened = self.handles.get(frame.handle)
        if opened is None and self._has_ended(frame.handle):
            return None
        if not isinstance(opened, OpenedProducer):
            raise UnknownHandle(f"no producer {frame.handle} is open on this connection")
        topic = self._catalogue.topic(opened.topic)
        check_partition(topic, frame.partition)
        return Demand(frame, topic, opened, (frame.partition,))

    def _publish(self, frame: frames.Publish) -> Effect:
        topic = self._catalogue.topic(frame.topic)
        if frame.partition != -1:  # else the batch says which one is meant
            check_partition(topic, frame.partition)
            self._catalogue.check_here(topic, (frame.partition,))
        if frame.delayed:
            check_delayed(topic)
        return Demand(frame, topic, None, (frame.partition,))

    def _open_subscription(self, frame: frames.OpenSubscription) -> Effect:
        self._check_handles()
        topic = self._catalogue.topic(frame.topic)
        if frame.index:
            check_name(frame.index, "an index's name")
        if frame.mode != "own":
            self._check_shared(frame)
        self._check_credit(frame.credit_bytes)
        if frame.part and not frame.partitions:
            raise OutOfRange("a part of a subscription to a whole topic names its partitions")
        partitions = self._partitions_here(topic, frame.partitions)
        for partition in partitions_of(frame.positions):
            check_partition(topic, partition)
        return Demand(frame, topic, None, partitions)

    def _open_feed(self, frame: frames.OpenFeed) -> Effect:
        self._check_handles()
        self._check_credit(frame.credit_bytes)
        topic = self._catalogue.topic(frame.topic)
        return Demand(frame, topic, None, check_feed(topic, list(triples(frame.places))))

    def _of_subscription(self, frame: frames.Credit | frames.Commit) -> Effect | None:
        opened = self.handles.get(frame.handle)
        if opened is None and isinstance(frame, frames.Credit) and self._has_ended(frame.handle):
            return None
        if isinstance(frame, frames.Credit) and isinstance(opened, OpenedFeed):
            self._check_credit(frame.bytes)
            return Demand(frame, None, opened)
        if not isinstance(opened, OpenedSubscription):
            raise UnknownHandle(f"no subscription {frame.handle} is open on this connection")
        if isinstance(frame, frames.Credit):
            self._check_credit(frame.bytes)
            triples(frame.handed)  # raises if they are not three numbers each
        else:
            if not opened.index:
                raise OutOfRange("this subscription has no index at the broker to commit to")
            if opened.mode != "own":
                raise WrongKind(f"index {opened.index!r} is shared: settle its messages instead")
            for partition in partitions_of(frame.positions):
                if partition not in opened.epochs:
                    raise UnknownPartition(f"this subscription has no partition {partition}")
        return Demand(frame, None, opened)

    def _settle(self, frame: frames.Settle) -> Effect:
        opened = self.handles.get(frame.handle)
        if not isinstance(opened, OpenedSubscription):
            raise UnknownHandle(f"no subscription {frame.handle} is open on this connection")
        if opened.mode == "own":
            raise WrongKind(f"index {opened.index!r} is not shared: commit positions instead")
        if frame.action == "extend" and frame.duration_us:
            check_lease(frame.duration_us)
        if frame.duration_us > DELAY_US_MAX:
            raise OutOfRange(f"a delay is at most 100 years, not {frame.duration_us} us")
        ends = dict.fromkeys(opened.partitions, 0)
        for partition, start, end in triples(frame.ranges):
            if partition not in ends:
                raise UnknownPartition(f"this subscription has no partition {partition}")
            if not ends[partition] <= start < end:
                raise OutOfRange(
                    f"the ranges of a partition are in order, not empty, and do not overlap; "
                    f"{start} to {end} came behind {ends[partition]}"
                )
            ends[partition] = end
        return Demand(frame, None, opened)

    def _commit_transaction(self, frame: frames.CommitTransaction) -> Effect:
        frame = self._with_own_id(frame)
        named: list[Participant] = []
        if self.named is not None and self.named.is_of(frame):
            named, self.named = self.named.participants, None
        if frame.named:
            if frame.named != len(named):
                raise OutOfRange(
                    f"{frame.named} participants were to be named on this connection before the "
                    f"commit, and {len(named)} were; name all of them again"
                )
            frame = replace(frame, participants=(*named, *frame.participants), named=0)
            permit_commit(
                self.rights, frame
            )  # again: rights may have changed since they were named
        return Demand(frame)

    def _name_participants(self, frame: frames.NameParticipants) -> Effect:
        frame = self._with_own_id(frame)
        is_next = self.named is not None and self.named.is_of(frame)
        known = len(self.named.participants) if self.named is not None and is_next else 0
        if frame.start not in (0, known):
            raise OutOfRange(
                f"participants are named in order: {known} are known, and these begin at "
                f"{frame.start}"
            )
        if frame.start + len(frame.participants) > PARTICIPANTS_MAX:
            raise LimitExceeded(
                f"a transaction has at most {PARTICIPANTS_MAX} participants; use fewer partitions "
                "or producers"
            )
        return Demand(frame)

    def name(self, frame: frames.NameParticipants) -> None:
        """Keep what a demand of this session names."""
        if not frame.start or self.named is None:
            self.named = Named(frame.transaction, frame.number, [])
        self.named.participants += frame.participants

    def _abort_transaction(self, frame: frames.AbortTransaction) -> Effect:
        return Demand(self._with_own_id(frame))

    def _with_own_id(self, frame: FrameOfTransaction) -> FrameOfTransaction:
        """Each user has ids of their own: nobody can decide, or use up, somebody else's."""
        check_name(frame.transaction, "a transaction's id")
        user = self.rights.user
        return replace(frame, transaction=f"{user}/{frame.transaction}") if user else frame

    def _close_handle(self, frame: frames.CloseHandle) -> Effect:
        opened = self.handles.pop(frame.handle, None)
        if opened is None:
            raise UnknownHandle(f"nothing with handle {frame.handle} is open on this connection")
        return Demand(frame, None, opened)

    def _of_index(
        self, frame: frames.SeekIndex | frames.SkipUnreadable | frames.Revive | frames.DeleteIndex
    ) -> Effect:
        topic = self._catalogue.topic(frame.topic)
        check_name(frame.index, "an index's name")
        if isinstance(frame, frames.DeleteIndex) or (
            isinstance(frame, frames.SeekIndex) and frame.partition == -1
        ):
            partitions = self._partitions_here(topic, frame.partitions)
        else:
            check_partition(topic, frame.partition)
            partitions = (frame.partition,)
            self._catalogue.check_here(topic, partitions)
        return Demand(frame, topic, None, partitions)

    def _has_ended(self, handle: int) -> bool:
        """The handle was open before: the client may not have heard yet that it is not."""
        return 0 < handle <= self._last_handle

    # --- checks ------------------------------------------------------------------------------

    def _check_right_to(self, opened: Opened) -> None:
        if isinstance(opened, OpenedProducer):
            self.rights.need("publish", opened.topic)
        else:
            self.rights.need("subscribe", opened.topic, opened.index or EVERYTHING)

    def _check_handles(self) -> None:
        if len(self.handles) >= self._limits.handles_max:
            raise LimitExceeded(
                f"{len(self.handles)} producers and subscriptions are open on this connection, "
                "which is the most allowed; close some or use another connection"
            )

    def _check_shared(self, frame: frames.OpenSubscription) -> None:
        if not frame.index:
            raise OutOfRange(f"mode {frame.mode!r} needs an index that the consumers share")
        if len(frame.consumer) != CONSUMER_BYTES:
            raise OutOfRange(f"a consumer has {CONSUMER_BYTES} bytes, not {len(frame.consumer)}")
        if not 1 <= frame.prefetch <= PREFETCH_MAX:
            raise OutOfRange(f"prefetch is 1 to {PREFETCH_MAX} messages, not {frame.prefetch}")
        if frame.positions:
            raise OutOfRange("positions are for own indexes; a shared one is put with SeekIndex")
        if frame.lease_us:
            check_lease(frame.lease_us)
        if frame.max_deliveries > DELIVERIES_MAX:
            raise OutOfRange(f"max_deliveries is 1 to {DELIVERIES_MAX}, not {frame.max_deliveries}")
        check_name(frame.topic + DEAD_LETTERS, "the name of a topic's dead letters")
        for partition, start, end in triples(frame.held):
            if start >= end:
                raise OutOfRange(
                    f"a range held of partition {partition} begins at {start} and ends at {end}"
                )

    def _check_credit(self, credit_bytes: int) -> None:
        if not 0 <= credit_bytes <= self._limits.credit_bytes_max:
            raise LimitExceeded(
                f"a credit is 0 to {self._limits.credit_bytes_max} bytes, not {credit_bytes}"
            )

    def _partitions_here(self, topic: Topic, packed: bytes) -> tuple[int, ...]:
        """The partitions that a request means, all of them held by this node."""
        named = numbers_of(packed)
        for partition in named:
            check_partition(topic, partition)
        check_each_once(named)
        partitions = tuple(named) or tuple(range(len(topic.groups)))
        self._catalogue.check_here(topic, partitions)
        return partitions

    _handlers: ClassVar[dict[type, Callable[..., Effect | None]]] = {
        frames.Ping: _ping,
        frames.Done: _plain,
        frames.Goodbye: _goodbye,
        frames.CreateTopic: _plain,
        frames.AlterTopic: _plain,
        frames.DeleteTopic: _plain,
        frames.ListTopics: _plain,
        frames.DescribeTopic: _whole_topic,
        frames.FindOffsets: _of_topic,
        frames.DeleteMessages: _of_topic,
        frames.ListIndexes: _of_topic,
        frames.OpenProducer: _open_producer,
        frames.Push: _push,
        frames.Publish: _publish,
        frames.CloseHandle: _close_handle,
        frames.OpenSubscription: _open_subscription,
        frames.OpenFeed: _open_feed,
        frames.Credit: _of_subscription,
        frames.Commit: _of_subscription,
        frames.SeekIndex: _of_index,
        frames.SkipUnreadable: _of_index,
        frames.Revive: _of_index,
        frames.DeleteIndex: _of_index,
        frames.Settle: _settle,
        frames.CommitTransaction: _commit_transaction,
        frames.NameParticipants: _name_participants,
        frames.AbortTransaction: _abort_transaction,
        frames.CreateUser: _plain,
        frames.RenewToken: _plain,
        frames.DeleteUser: _plain,
        frames.SetRoles: _plain,
        frames.CreateRole: _plain,
        frames.DeleteRole: _plain,
        frames.AddGrant: _plain,
        frames.RemoveGrant: _plain,
        frames.DescribeAccess: _plain,
        frames.ExplainAccess: _plain,
        frames.DescribeRing: _plain,
        frames.LookUpKey: _plain,
        frames.ListNodes: _plain,
        frames.FindLeaders: _whole_topic,
        frames.DescribeTree: _whole_topic,
        frames.ReadAudit: _plain,
        frames.DescribeCluster: _plain,
        frames.DescribePlugins: _plain,
        frames.SetCluster: _plain,
        **dict.fromkeys(frames.OF_NAMES, _plain),
    }


_OfWholeTopic = frames.DescribeTopic | frames.FindLeaders | frames.DescribeTree
_OfTopic = frames.FindOffsets | frames.DeleteMessages | frames.ListIndexes | frames.OpenProducer


def offset_of(start: Start, *, log_start: int, end: int) -> int | None:
    """The offset that a start stands for in a partition; None for a time: the log must be asked."""
    if start.kind == "earliest":
        return log_start
    if start.kind == "latest":
        return end
    if start.kind == "time":
        return None
    if start.value > end:
        raise OutOfRange(f"offset {start.value} lies beyond the partition's end at {end}")
    return max(start.value, log_start)
