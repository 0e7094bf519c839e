"""The errors this package raises on purpose: one tree, whose root is `HocketError`.

A few that only one package raises stand there, below the same root (`spark.missing.DataLoss`).

The type says what went wrong and whose doing it was; the message says with which value, and what
to do about it. Where a Python caller expects a built-in error (TypeError or ValueError for a wrong
argument, TimeoutError for a timeout), ours is that one too, so that `except TypeError` keeps its
meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class HocketError(Exception):
    """Base of every error this package raises on purpose."""

    may_have_happened = False  # False: the request certainly had no effect
    code = "failed"  # its name on the wire; every error that a broker answers with has its own


# --- what the caller passed was wrong; nothing was changed -----------------------------------


class WrongType(HocketError, TypeError):
    """An argument is of a type that cannot work here."""

    code = "wrongType"


class ReadOnlyBuffer(WrongType):
    """`read` was given a buffer it may not write into."""


class NotAwaited(WrongType, AttributeError):
    """Something of `hocket.aio` was used without `await`, `async with` or `async for`."""


class OutOfRange(HocketError, ValueError):
    """A number (offset, length, port, timeout, capacity) lies outside what is allowed."""

    code = "outOfRange"


class BadName(HocketError, ValueError):
    """A name (of a broker, topic or index) is empty, too long or has characters it may not have."""

    code = "badName"


# --- names and ports ---------------------------------------------------------------------------


class NameInUse(HocketError):
    """Another broker (in the same manager), user or role already has this name."""

    code = "nameInUse"


class UnknownBroker(HocketError):
    """No broker of this name is registered."""

    code = "unknownBroker"


class WrongKind(HocketError):
    """There is a broker or an index of this name, but of a kind that cannot be used like this."""

    code = "wrongKind"


class PortInUse(HocketError):
    """Another accept waits on this port, or, where ports are unique, another broker has it."""


class PortNotBound(HocketError):
    """The other broker exists, but nothing is bound to this port."""

    code = "portNotBound"


# --- waiting -----------------------------------------------------------------------------------


class Timeout(HocketError, TimeoutError):
    """The time given ran out before the thing happened; it has not happened.

    The one exception is its subclass `OutcomeUnknown`. `partial` and `written` are those of
    `read_exactly` and `write_all`, as in `Disconnected`; `written` is also how many messages
    `send_many` and `send_arrow` had handed over.
    """

    partial = b""
    written = 0


class OutcomeUnknown(Timeout):
    """The time given ran out before the broker answered: the thing may have happened, or not.

    The request had left by then, and the broker may still carry it out. Look before you repeat it.
    """

    may_have_happened = True


class WouldBlock(HocketError):
    """A call that never waits found nothing to take, or no room."""


class BusyResource(HocketError):
    """Two users at once where only one can work: two readers at one end of a channel, say."""


class WrongThread(HocketError):
    """A call that waits was made on a pump's own thread, which must never wait."""


class WrongProcess(HocketError):
    """A client, or what came of one, was used in a child that `os.fork` made of its process.

    Its threads and its connection stayed in the parent, which goes on unharmed. Open a client of
    your own in the child.
    """


# --- the end -----------------------------------------------------------------------------------


class Closed(HocketError):
    """It was closed: by you, by its owner, or because it came to its normal end."""


class Disconnected(HocketError):
    """A channel end that is no longer connected was read or written.

    `partial` holds what `read_exactly` had read when it was cut short, `written` how many bytes
    `write_all` had handed over.
    """

    def __init__(self, message: str, *, partial: bytes = b"", written: int = 0) -> None:
        super().__init__(message)
        self.partial = partial
        self.written = written


class Aborted(HocketError):
    """A message queue was cut by force; what was in transit is listed here, not lost unseen.

    `undelivered` are the messages of this side that the other side did not take, `unread` those
    of the other side that this side did not take, each in the order they were sent.

    `in_doubt` are the first of the `undelivered` ones, if the other side is in another process and
    nobody heard how many it took: it may have taken some of these.
    """

    def __init__(
        self, message: str, *, undelivered: Sequence[Any] = (), unread: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.undelivered = list(undelivered)
        self.unread = list(unread)
        self.in_doubt: list[Any] = []


# --- the topic broker: what was asked for is not there, or not so -------------------------------


class UnknownTopic(HocketError):
    """There is no topic of this name."""

    code = "unknownTopic"


class NotHere(HocketError):
    """The topic is there, and its partitions are on another node; the message says on which."""

    code = "notHere"

    def __init__(self, message: str, *, node: str = "", address: str = "") -> None:
        super().__init__(message)
        self.node = node  # the id of the node to ask instead; empty: it is not known
        self.address = address


class SeveralNodes(HocketError):
    """The partitions that are meant are on several nodes: each node is to be asked for its own.

    A client does so by itself, after FindLeaders.
    """

    code = "severalNodes"


class RootAway(HocketError):
    """The node that decides on changes of topics, users and rights does not answer.

    Reading and data go on meanwhile. `may_have_happened` says whether the change was sent to it.
    """

    code = "rootAway"


class TopicExists(HocketError):
    """There is a topic of this name already."""

    code = "topicExists"


class UnknownPartition(HocketError):
    """The topic has no partition of this number."""

    code = "unknownPartition"


class UnknownIndex(HocketError):
    """The topic has no index of this name."""

    code = "unknownIndex"


class UnknownHandle(HocketError):
    """A producer or subscription of this number is not open on this connection."""

    code = "unknownHandle"


class UnknownProducer(HocketError):
    """The broker has forgotten this producer (it was silent too long); open a new one."""

    code = "unknownProducer"


class NotEnoughNodes(HocketError):
    """More replicas were asked for than there are nodes."""

    code = "notEnoughNodes"


class MessageTooLarge(HocketError, ValueError):
    """A message, or a batch of them, is larger than the broker takes."""

    code = "tooLarge"


class UnknownUser(HocketError):
    """There is no user of this name."""

    code = "unknownUser"


class UnknownRole(HocketError):
    """There is no role of this name."""

    code = "unknownRole"


class NotAllowed(HocketError):
    """Your role does not permit this, or who you are could not be shown."""

    code = "notAllowed"


class TooManyAttempts(NotAllowed):
    """Too many wrong tokens came from this address; try again a little later."""

    code = "tooManyAttempts"


class TransactionConflict(HocketError):
    """What is decided, or staged, for a transaction of this id and number is something else."""

    code = "transactionConflict"


class TransactionAborted(HocketError):
    """What was staged for it was dropped, and will not be published; it can be staged again."""

    code = "transactionAborted"


# --- the topic broker: not now, or not any more --------------------------------------------------


class Busy(HocketError):
    """The broker has as much in hand as it allows itself; try again a little later."""

    code = "busy"


class Fenced(HocketError):
    """Another consumer has taken this index over, or another producer or user this id."""

    code = "fenced"


class ProducerConflict(HocketError):
    """The broker has another batch where this one would have to be, so this one is not stored.

    Somebody else uses the same producer id. Our clients take a new id and send the batch again, so
    that you do not see this.
    """

    code = "producerConflict"


class LeaseLost(HocketError):
    """A message of a shared index is not yours (any more): its lease has ended.

    Nothing was changed by what you said about it; it is, or will be, delivered again.
    """

    code = "leaseLost"


class SequenceGap(HocketError):
    """A batch came without the one before it, which was lost or refused; resend from that one."""

    code = "sequenceGap"


class Rejected(HocketError):
    """A plug-in of the broker refuses these messages; its text says why. They are not stored."""

    code = "rejected"


class StorageFull(HocketError):
    """The broker's disk is full: nothing is written until there is room; reading goes on."""

    code = "storageFull"


class StoreStopped(HocketError):
    """The broker's disk failed; it takes no more writes until it is restarted."""

    code = "storeStopped"


class Unencodable(HocketError, ValueError):
    """A value does not fit the type that its producer was opened with; nothing was sent.

    The message names the part of the value that is wrong.
    """


class Undecodable(HocketError, ValueError):
    """The value of a message cannot be read as the type that its subscription was opened with.

    `topic`, `partition` and `offset` say which message it is, `reason` what is wrong with it, and
    `message` is the message itself: its bytes are `message.raw`, and it can be acknowledged or
    rejected like any other. The subscription goes on behind it.
    """

    def __init__(
        self,
        text: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        reason: str,
        message: Any = None,
    ) -> None:
        super().__init__(text)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason
        self.message = message


class CorruptData(HocketError):
    """Records cannot be read: they do not match their checksum, or their producer wrote nonsense.

    They are named here and never delivered. Where it is known which they are, `topic`, `partition`,
    `start` and `end` say so too; `end` is the offset behind the last of them.
    """

    code = "corruptData"

    def __init__(
        self,
        message: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        start: int | None = None,
        end: int | None = None,
    ) -> None:
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


class ShuttingDown(HocketError):
    """The broker is going down; connect again a little later."""

    code = "shuttingDown"


# --- the topic broker: the link and the protocol ----------------------------------------------


class NoConnection(HocketError, ConnectionError):
    """The broker cannot be reached; the request has not left."""

    code = "noConnection"


class NotHocket(NoConnection):
    """Something answers at the address, and it is no Hocket broker: it speaks HTTP, say."""


class ReplyLost(HocketError, ConnectionError):
    """The link broke after the request had left: it may have been carried out, or not."""

    code = "replyLost"
    may_have_happened = True


class AnotherCluster(HocketError):
    """A broker of another cluster answered where the client's own was expected.

    Nothing was asked of it: its topics and offsets may have the same names and numbers, and mean
    something else. The client is at its end; open a new one to use that broker.
    """


class ProtocolError(HocketError):
    """The other side sent what the protocol does not allow; the connection is closed."""

    code = "protocol"


class WrongVersion(HocketError):
    """The two sides have no version of the protocol in common."""

    code = "wrongVersion"


class LimitExceeded(HocketError):
    """A configured limit was reached; the message says which."""

    code = "limitExceeded"


# --- the data directory --------------------------------------------------------------------


class DataDirectoryInUse(HocketError):
    """Another broker is running on this data directory."""


class NotADataDirectory(HocketError):
    """The directory holds something else than a broker's data, or cannot be read."""


class NewerFormat(HocketError):
    """The data was written by a newer version of Hocket than this one."""


def _all_below(error: type[HocketError]) -> list[type[HocketError]]:
    return [error, *(found for below in error.__subclasses__() for found in _all_below(below))]


def unreadable(
    why: str,
    *,
    topic: str,
    index: str,
    partition: int,
    start: int,
    end: int,
    may_pass: bool = False,
    is_away: bool = False,
) -> CorruptData:
    """What a consumer is told of messages that it cannot be given, with the way past them.

    `may_pass`: the disk did not hand them out, and may do so later; `is_away`: nor did a tier.
    """
    which = f"offset {start}" if end - start == 1 else f"offsets {start} to {end - 1}"
    way_out = f"to go on behind them, subscribe from offset {end} of this partition on"
    if may_pass:
        what = "storage tier" if is_away else "disk"
        way_out = f"see to the broker's {what} and try again, or go on behind them with a seek"
    elif index:
        way_out = (
            "acknowledge what came before, close the subscription, and to go on behind them call "
            f"client.skip({topic!r}, {index!r}, partition={partition}, offset={start}), or: hocket "
            f"index skip {topic} {index} --partition {partition} --offset {start}"
        )
    return CorruptData(
        f"topic {topic!r}, partition {partition}: {which} cannot be read: {why}; {way_out}",
        topic=topic,
        partition=partition,
        start=start,
        end=end,
    )


BY_CODE: dict[str, type[HocketError]] = {
    error.code: error for error in _all_below(HocketError) if "code" in vars(error)
}


def from_code(code: str, message: str) -> HocketError:
    """The error that a broker's answer stands for; an unknown code is still an error."""
    return BY_CODE.get(code, HocketError)(message)
