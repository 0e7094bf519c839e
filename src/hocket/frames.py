"""Every frame of the protocol, as plain values: what clients and brokers say to each other.

The contract is `schema/hocket.capnp`; these classes say the same in Python, and `wire` turns one
into the other. The cores, the client and an embedded broker know only these classes. Errors are
values (`Failure`), and a payload (record batches) travels beside its frame, never inside it.

The side that asks chooses `request`, and the answer carries the same number; it is 0 where no
answer is expected. Lists of numbers are packed: little-endian u64, one after the other, as bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from hocket.access_frames import (
    Access as Access,
    AddGrant as AddGrant,
    CreateRole as CreateRole,
    CreateUser as CreateUser,
    DeleteRole as DeleteRole,
    DeleteUser as DeleteUser,
    DescribeAccess as DescribeAccess,
    ExplainAccess as ExplainAccess,
    Explained as Explained,
    RemoveGrant as RemoveGrant,
    RenewToken as RenewToken,
    SetRoles as SetRoles,
    TokenIssued as TokenIssued,
)
from hocket.cluster_frames import (
    AuditIs as AuditIs,
    ClusterIs as ClusterIs,
    DescribeCluster as DescribeCluster,
    DescribePlugins as DescribePlugins,
    DescribeRing as DescribeRing,
    DescribeTree as DescribeTree,
    FindLeaders as FindLeaders,
    KeyIsOwned as KeyIsOwned,
    LeadersAre as LeadersAre,
    ListNodes as ListNodes,
    LookUpKey as LookUpKey,
    NodesAre as NodesAre,
    PluginsAre as PluginsAre,
    ReadAudit as ReadAudit,
    RingIs as RingIs,
    SetCluster as SetCluster,
    TreeIs as TreeIs,
)
from hocket.cluster_model import NodeAddress
from hocket.index_frames import (
    DeleteIndex as DeleteIndex,
    Indexes as Indexes,
    ListIndexes as ListIndexes,
    Revive as Revive,
    SeekIndex as SeekIndex,
    SkipUnreadable as SkipUnreadable,
)
from hocket.model import (
    Failover,
    Limits,
    Mode,
    Participant,
    Settlement,
    Start,
    TopicConfig,
    TopicDescription,
)
from hocket.name_frames import (
    FindName as FindName,
    ListNames as ListNames,
    NameIs as NameIs,
    NamesAre as NamesAre,
    OpenPipe as OpenPipe,
    PipeIs as PipeIs,
    PipeWanted as PipeWanted,
    RegisterName as RegisterName,
    ReleaseName as ReleaseName,
    TakePipe as TakePipe,
)

PROTOCOL_VERSION = 1

# Features of a broker.
COMMIT_IN_PARTS = "commitInParts"  # it knows NameParticipants
DELAYED = "delayed"  # it knows delayed messages: OpenProducer and Publish with `delayed`


Packed = bytes  # for a class that has a field `bytes`


def packed(numbers: Iterable[int]) -> bytes:
    return array("Q", numbers).tobytes()


def unpacked(data: bytes) -> list[int]:
    return array("Q", data).tolist()


# --- the connection ----------------------------------------------------------------------------


# A feature that nobody has. A server that reads lines, as those of HTTP do, would wait for the end
# of ours; with this in a Hello it answers at once, and the client can say who is there.
LINE_END = "\r\n\r\n"
# A feature of a client: it takes DeliverAlike.
ALIKE = "alike"


@dataclass(slots=True)
class Hello:
    """The client's first frame."""

    request: int
    version_min: int = PROTOCOL_VERSION
    version_max: int = PROTOCOL_VERSION
    client: str = ""  # the client's name, for people who look at the broker
    features: tuple[str, ...] = ()
    token: str = field(default="", repr=False)


@dataclass(slots=True)
class Welcome:
    """The broker's answer to Hello. Any other answer but a Failure breaks the protocol."""

    request: int
    version: int
    node: str
    software: str
    features: tuple[str, ...]
    limits: Limits
    cluster: str = ""  # the cluster's id, for ever the same; empty from brokers older than that
    id: str = ""  # of the node's store; empty from brokers older than that
    nodes: tuple[NodeAddress, ...] = ()  # some nodes of the cluster, by which a client may go on


@dataclass(slots=True)
class Goodbye:
    """The sender is about to close the connection, for this reason."""

    request: int
    reason: str


@dataclass(slots=True)
class Ping:
    request: int


@dataclass(slots=True)
class Done:
    """The request was carried out, durably; also the answer to Ping."""

    request: int


@dataclass(slots=True)
class Failure:
    """The request was not carried out, or it may have been, if `may_have_happened`."""

    request: int
    code: str  # see hocket.errors: every error's `code`
    message: str
    may_have_happened: bool = False
    node: str = ""  # of notHere: the id of the node to ask instead; empty: it is not known
    address: str = ""  # and where it is reached


# --- topics ------------------------------------------------------------------------------------


@dataclass(slots=True)
class CreateTopic:
    request: int
    topic: str
    config: TopicConfig


@dataclass(slots=True)
class AlterTopic:
    """The whole new configuration; partitions may only grow."""

    request: int
    topic: str
    config: TopicConfig


@dataclass(slots=True)
class DeleteTopic:
    request: int
    topic: str


# A question whose answer may be more than a frame takes (ListTopics, DescribeTopic, ListIndexes,
# DescribeAccess) can be asked in parts, `paged`. Then each answer has as much as fits. Its `next`
# is the `after` of the question for the next part; if it is empty, this was the last.


@dataclass(slots=True)
class ListTopics:
    request: int
    paged: bool = False
    after: str = ""


@dataclass(slots=True)
class DescribeTopic:
    request: int
    topic: str
    paged: bool = False
    after: str = ""


@dataclass(slots=True)
class Topics:
    """Answer to ListTopics (without partitions) and DescribeTopic (one topic, with them)."""

    request: int
    topics: tuple[TopicDescription, ...]
    next: str = ""


@dataclass(slots=True)
class FindOffsets:
    """Ask which offset `start` means in every partition of the topic. Answered by Offsets."""

    request: int
    topic: str
    start: Start
    partitions: bytes = b""  # packed: the partitions that are meant; empty for all


@dataclass(slots=True)
class Offsets:
    request: int
    offsets: bytes  # packed, one per partition, in the order of the question or else in order


@dataclass(slots=True)
class DeleteMessages:
    """Delete the messages of a topic that lie before these offsets. Answered by Done."""

    request: int
    topic: str
    offsets: bytes  # packed, one for each of `partitions`
    partitions: bytes = b""  # packed: the partitions that are meant; empty for all, in order


# --- producing -----------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenProducer:
    """`producer_id` is that of an earlier producer, 16 bytes, to go on as it; empty for a new one.

    With a `transaction`, the producer's batches are staged, not published: they are acknowledged
    when durable, without offsets, and nobody sees them until the transaction is committed.

    `delayed`: the timestamps of the records say when they are due, and nobody sees them before. The
    offsets of such batches count the topic's delayed records. They are no offsets of the topic.
    """

    request: int
    topic: str
    producer_id: bytes = b""
    epoch: int = 0
    transaction: str = ""
    number: int = 0  # of the transaction among those of its id
    delayed: bool = False
    partitions: bytes = b""  # packed: those that it pushes to; empty for all


@dataclass(slots=True)
class ProducerOpened:
    request: int
    handle: int
    producer_id: bytes
    epoch: int
    partitions: int  # how many the topic has, wherever they are
    # Packed: the sequence that the next new batch must have, for each partition that was asked for.
    sequences: bytes


@dataclass(slots=True)
class Push:
    """Payload: one or more whole batches for one partition, their sequences consecutive."""

    request: int  # 0: the answers are PushAcked and PushRefused
    handle: int
    partition: int


@dataclass(slots=True)
class PushAcked:
    """Every batch up to `sequence` is as durable as its topic demands. Cumulative."""

    request: int
    handle: int
    partition: int
    sequence: int
    offsets: bytes  # packed: the base offsets of the newly acknowledged batches, the last one last


@dataclass(slots=True)
class PushRefused:
    """The batch `sequence`, and whatever followed it in this partition, was not stored."""

    request: int
    handle: int
    partition: int
    sequence: int
    code: str
    message: str


@dataclass(slots=True)
class Publish:
    """Store one batch, the payload, without a producer."""

    request: int
    topic: str
    partition: int = -1  # -1: the broker chooses, by the first record's key if it has one
    delayed: bool = False  # as in OpenProducer


@dataclass(slots=True)
class Published:
    request: int
    partition: int
    offset: int  # of the batch's first record


@dataclass(slots=True)
class CloseHandle:
    """Close a producer or a subscription. Answered by Done once all that it did is durable."""

    request: int
    handle: int


# --- consuming -----------------------------------------------------------------------------------


@dataclass(slots=True)
class OpenSubscription:
    """Without an `index` the client itself knows how far it is: `start` or `positions` say it."""

    request: int
    topic: str
    index: str = ""
    mode: Mode = "own"
    start: Start = field(default_factory=Start)
    positions: bytes = b""  # packed pairs (partition, offset); overrides `start` where given
    partitions: bytes = b""  # packed: the partitions that are wanted; empty for all
    hold_retention: bool = False
    credit_bytes: int = 0
    # The rest is for shared indexes. A setting of 0 means: as the index has it, or the default.
    consumer: bytes = b""  # 16 bytes of the client's choice, the same again after a lost link
    prefetch: int = 0  # the first credit of messages; more comes with Credit
    lease_us: int = 0
    max_deliveries: int = 0
    failover: Failover = "safe"
    # Packed triples (partition, start, end): messages that the client has and has not settled.
    held: bytes = b""
    # These are for every kind of index again.
    must_exist: bool = False  # do not make the index if it is not there
    resumes: bool = False  # `positions` are where an earlier life of this subscription was
    # For shared indexes: the client is going to say in Credit how far it has handed messages out.
    tells: bool = False
    # `partitions` are some of those of a subscription to the whole topic, whose others are on other
    # nodes: if the topic grows, PartitionsChanged says so, and the client opens the new ones.
    part: bool = False
    # For own indexes, and without an index: the client can take the bytes at another node, by
    # OpenFeed, if the answer names one.
    fed: bool = False
    direct: bool = False  # not now, though: serve it here, for the moment
    unfed: str = ""  # the node at which it was to take them, and could not


@dataclass(slots=True)
class SubscriptionOpened:
    request: int
    handle: int
    positions: bytes  # packed pairs (partition, next offset)
    lease_us: int = 0  # of a shared index
    index_is_new: bool = False  # there was no such index, and it was made
    # Nothing is delivered here: the client takes the bytes at this node, by OpenFeed. Empty: here.
    feeder: tuple[NodeAddress, ...] = ()
    groups: bytes = b""  # packed, for OpenFeed: the groups of the partitions in `positions`


@dataclass(slots=True)
class OpenFeed:
    """Take the bytes of a subscription here, which is open at another node: that node says so.

    The answer is SubscriptionOpened. Deliver, Credit, Moved, HandleEnded and CloseHandle are as for
    a subscription; indexes are looked after at the other node.
    """

    request: int
    topic: str
    index: str = ""  # of the subscription: the right to it is the right to the feed
    places: bytes = b""  # packed triples (partition, its group, the next offset)
    credit_bytes: int = 0


@dataclass(slots=True)
class Deliver:
    """Payload: whole batches of one partition in order. The first may begin before `offset`."""

    request: int  # 0
    handle: int
    partition: int
    offset: int  # of the first record that is meant; earlier records of its batch are to be skipped
    end: int  # the partition's end as the broker knows it now, for the lag


@dataclass(slots=True)
class DeliverAlike:
    """So many Deliver with one payload, for clients that have the feature ALIKE."""

    request: int  # 0
    handles: bytes  # packed: of the subscriptions, each of which gets the whole payload
    partition: int
    offset: int
    end: int


@dataclass(slots=True)
class Credit:
    """The broker may send this many more bytes of payload, and messages of a shared index."""

    request: int  # 0
    handle: int
    bytes: int
    messages: int = 0
    # Of a shared index, packed triples (partition, number of a Lease, offset): the first message
    # that waits in the client. Those before it were handed out, or dropped. The Leases are counted
    # from 1 on this handle. The first triple names what is handed out next.
    handed: Packed = b""


@dataclass(slots=True)
class Commit:
    """Move the index to these positions. Answered by Done when that is durable."""

    request: int
    handle: int
    positions: bytes  # packed pairs (partition, next offset)


@dataclass(slots=True)
class Moved:
    """The subscription goes on at `offset` in this partition; earlier deliveries are void.

    After a seek `lost` is 0. Where retention has removed records that were not read yet, `lost` is
    their number.
    """

    request: int  # 0
    handle: int
    partition: int
    offset: int
    lost: int


@dataclass(slots=True)
class Lease:
    """Messages of a shared index, for this consumer alone until their lease ends.

    Payload: the batches that hold the messages, in order. With `continued`, the first of these is
    the last batch of the previous Lease of the same handle and partition, and is not sent again.
    """

    request: int  # 0
    handle: int
    partition: int
    end: int  # the partition's end as the broker knows it now
    ranges: bytes  # packed triples (start, end, delivery count), in order
    continued: bool = False
    alone: bool = False  # nothing more comes before this is settled


@dataclass(slots=True)
class Settle:
    """What has become of messages that this consumer holds. Answered by Settled when durable."""

    request: int
    handle: int
    action: Settlement
    ranges: bytes  # packed triples (partition, start, end)
    duration_us: int = 0  # nack: the delay; extend: the new lease, 0 for one of the usual length
    reason: str = ""  # of a reject
    again: bool = False  # it was said before, on a connection that broke before the answer


@dataclass(slots=True)
class Settled:
    request: int
    # Packed triples (partition, start, end) that this consumer does not hold. What was said `again`
    # is not refused where it holds already: an acked message that is settled, a rejected one that
    # is settled or on its way to the dead letters.
    refused: bytes


@dataclass(slots=True)
class HandleEnded:
    """The broker ended a producer or subscription: fenced, topic deleted, corrupt data."""

    request: int  # 0
    handle: int
    code: str
    message: str
    commits: bool = False  # nothing more is delivered, but commits are taken until it is closed
    partition: int = -1  # where data is corrupt; -1: it is about something else
    start: int = 0  # the first offset there that cannot be read,
    end: int = 0  # and the one behind the last of them


@dataclass(slots=True)
class PartitionsChanged:
    """The topic has more partitions now; a part of a subscription hears it when opened, too."""

    request: int  # 0
    handle: int
    partitions: int
    # The new partitions do not belong to this subscription, because some of them are on other
    # nodes, or because it is a part: the client opens them.
    part: bool = False


# --- transactions ------------------------------------------------------------------------------


@dataclass(slots=True)
class CommitTransaction:
    """Publish everything that these producers have staged, or nothing.

    Answered by Done when all of it is published.
    """

    request: int
    transaction: str
    number: int
    participants: tuple[Participant, ...]
    named: int = 0  # how many more were named before, by NameParticipants on this connection


@dataclass(slots=True)
class NameParticipants:
    """Name some participants of a commit that is to come on this connection. Answered by Done.

    For more than one frame takes. The broker keeps them, in memory, until the commit comes or the
    connection ends.
    """

    request: int
    transaction: str
    number: int
    start: int  # how many were named before; 0 begins anew
    participants: tuple[Participant, ...]


@dataclass(slots=True)
class AbortTransaction:
    """Drop what these producers have staged. Other producers can use the number again."""

    request: int
    transaction: str
    number: int
    producers: tuple[bytes, ...]


# What clients ask about names of brokers.
OF_NAMES = (RegisterName, ReleaseName, FindName, ListNames, OpenPipe, TakePipe)

Frame = (
    Hello | Welcome | Goodbye | Ping | Done | Failure
    | CreateTopic | AlterTopic | DeleteTopic | ListTopics | DescribeTopic | Topics
    | FindOffsets | Offsets | OpenProducer | ProducerOpened | Push | PushAcked | PushRefused
    | Publish | Published | CloseHandle
    | OpenSubscription | SubscriptionOpened | Deliver | Credit | Commit | Moved | HandleEnded
    | PartitionsChanged
    | ListIndexes | Indexes | SeekIndex | DeleteIndex
    | Lease | Settle | Settled
    | CommitTransaction | AbortTransaction
    | CreateUser | RenewToken | TokenIssued | DeleteUser | SetRoles | CreateRole | DeleteRole
    | AddGrant | RemoveGrant | DescribeAccess | Access | ExplainAccess | Explained
    | SkipUnreadable | NameParticipants
    | Revive | DeleteMessages
    | DescribeRing | RingIs | LookUpKey | KeyIsOwned | ListNodes | NodesAre
    | FindLeaders | LeadersAre | ReadAudit | AuditIs
    | DescribeCluster | ClusterIs | SetCluster | OpenFeed | DescribeTree | TreeIs
    | RegisterName | ReleaseName | FindName | NameIs | ListNames | NamesAre
    | OpenPipe | PipeWanted | TakePipe | PipeIs | DeliverAlike
    | DescribePlugins | PluginsAre
)  # fmt: skip
