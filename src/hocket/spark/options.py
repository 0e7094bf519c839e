"""The options of a reader or a writer, as Spark's Kafka connector names them, parsed and checked.

Spark hands names over in lower case and values as text. A wrong option is refused here, before
anything is planned, under the name that it has in the documentation. No error repeats a secret.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from hocket.client.connection.address import parse_url
from hocket.errors import OutOfRange
from hocket.model import MINUTE_US, NAME_BYTES_MAX, SECOND_US, check_name
from hocket.spark.bounds import Bounds
from hocket.spark.columns import ALL
from hocket.spark.lake import path_of
from hocket.spark.selection import Selection
from hocket.spark.values import LONG_MAX, Given, interval_us, plain, shown
from hocket.wire import codec as codecs

# A micro-batch costs 0.2 s, however few rows it has, and rows pass through tasks without staying.
DEFAULT_ROWS_PER_TRIGGER = 10_000_000
INDEX_SUFFIX = len("-1a2b3c4d")  # added to `groupIdPrefix` for each query

_log = logging.getLogger("hocket.spark")

_CONNECTION = ("servers", "token", "tokenFile", "tlsCa", "tlsCert", "tlsKey")
_STREAM_ONLY = (
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "index", "groupIdPrefix",
    "holdRetention", "idleWaitMs", "tracing",
)  # fmt: skip
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_READING = (
    "assign", "subscribe", "subscribePattern",
    "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets",
    "startingOffsetsByTimestampStrategy", *_ENDING, *_STREAM_ONLY,
    "failOnDataLoss", "minPartitions", "maxRecordsPerPartition", "includeHeaders", "columns",
    "kafkaConsumer.pollTimeoutMs", "pollTimeoutMs", "archive",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "filterPushdown",
)  # fmt: skip
_WRITING = (
    "topic", "includeHeaders", "codec", "delivery", "transactionId", "transactionNumber",
    "commitTimeout", "archive", "tracing",
)  # fmt: skip
_ONLY_TOPICS = ("codec", "delivery", "transactionId", "transactionNumber", "tracing")
# A reader lets a writer's options pass and vice versa: one set of options often serves both.
_OURS = frozenset(map(plain, (*_CONNECTION, *_READING, *_WRITING)))
_LIKENESS_MIN = 0.85  # a name as like as this to one of ours is taken for a slip

_KAFKA_GROUP = "kafka.group.id"
_KAFKA_SECURITY = ("kafka.security.", "kafka.sasl.", "kafka.ssl.")


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Where the broker is, and how to log in there."""

    url: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None  # read on the machine that connects, each time it does
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @staticmethod
    def parse(given: Given, *, needed: bool = True) -> ConnectionOptions:
        """Without `needed` there may be no broker: then the URL is empty."""
        if not needed and not given.has("servers"):
            return ConnectionOptions("")
        token, token_file = given.text("token"), given.text("tokenFile")
        if token is not None and token_file is not None:
            raise OutOfRange("token and tokenFile are both given; give one of them")
        ca, cert, key = given.text("tlsCa"), given.text("tlsCert"), given.text("tlsKey")
        if key is not None and cert is None:
            raise OutOfRange("tlsKey is given without tlsCert, the certificate that it belongs to")
        wants_tls = ca is not None or cert is not None
        return ConnectionOptions(_url(given, wants_tls), token, token_file, ca, cert, key)


@dataclass(frozen=True, slots=True)
class ReadOptions:
    connection: ConnectionOptions
    selection: Selection
    starting: Bounds
    ending: Bounds  # of a batch; a stream has no end
    columns: tuple[str, ...]  # in the order of the schema
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None  # None: DEFAULT_ROWS_PER_TRIGGER
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_us: int = 15 * MINUTE_US
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    index: str | None = None  # None: each query gets a name that begins with `index_prefix`
    index_prefix: str = "spark-hocket"
    hold_retention: bool = False
    poll_timeout: float = 120.0  # seconds a read waits for a record that must be there
    retries: int = 3
    retry_interval: float = 0.01  # seconds
    idle_wait: float = 0.5  # seconds that a stream waits for records before it says there are none
    push_filters: bool = False
    archive: str | None = None  # the path of a lake, which has what the topic has no more
    tracing: bool = False

    @staticmethod
    def parse(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        given = _checked(options, (*_CONNECTION, *_READING))
        if streaming:
            _refuse(given, _ENDING, "is for batches: a stream has no end")
        else:
            _warn_of_ignored(given, _STREAM_ONLY, "counts in streams only")
        most = given.optional_integer("maxOffsetsPerTrigger", least=1)
        least = given.optional_integer("minOffsetsPerTrigger", least=1)
        rows_max = DEFAULT_ROWS_PER_TRIGGER if most is None else most
        if least is not None and least > rows_max:
            default = " (its default)" if most is None else ""
            raise OutOfRange(
                f"minOffsetsPerTrigger={least} is more than maxOffsetsPerTrigger={rows_max}"
                f"{default}"
            )
        archive = given.text("archive")
        if archive is not None:
            path_of(archive)
        return ReadOptions(
            connection=ConnectionOptions.parse(given, needed=archive is None),
            selection=Selection.parse(given),
            starting=Bounds.parse(given, "starting", streaming=streaming),
            ending=Bounds.parse(given, "ending", streaming=streaming),
            columns=_columns(given),
            fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_us=_duration(given, "maxTriggerDelay", 15 * MINUTE_US, bare_us=1000),
            min_partitions=given.optional_integer("minPartitions", least=1),
            max_records_per_partition=given.optional_integer("maxRecordsPerPartition", least=1),
            index=_index(given),
            index_prefix=_index_prefix(given),
            hold_retention=given.boolean("holdRetention", default=False),
            poll_timeout=_poll_timeout(given),
            retries=given.integer("fetchOffset.numRetries", least=0, default=3, most=1_000_000),
            retry_interval=given.seconds_of_ms("fetchOffset.retryIntervalMs", default=0.01),
            idle_wait=given.seconds_of_ms("idleWaitMs", default=0.5),
            push_filters=given.boolean("filterPushdown", default=False),
            archive=archive,
            tracing=streaming and given.boolean("tracing", default=False),
        )


DELIVERIES = ("exactly-once", "at-least-once")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    connection: ConnectionOptions
    topic: str | None = None  # None: the column `topic` names it
    include_headers: bool = False
    codec: str = "none"
    transaction: str | None = None  # of a batch: with `number` it makes the write idempotent
    number: int = 0
    commit_timeout: float = 600.0  # seconds
    exactly_once: bool = True
    archive: str | None = None  # the path of the lake to write, instead of a topic
    tracing: bool = False

    @staticmethod
    def parse(options: Mapping[str, str], *, streaming: bool) -> WriteOptions:
        given = _checked(options, (*_CONNECTION, *_WRITING))
        if (archive := given.text("archive")) is not None:
            path_of(archive)
            _refuse(given, ("servers", "topic", *_ONLY_TOPICS), "is for topics, not for a lake")
            return WriteOptions(ConnectionOptions(""), archive=archive)
        if streaming:
            _refuse(
                given,
                ("transactionId", "transactionNumber"),
                "is for batches: a stream's own id and batch number make it exactly-once",
            )
        transaction = given.text("transactionId")
        number = given.optional_integer("transactionNumber", least=0)
        if (transaction is None) != (number is None):
            raise OutOfRange(
                "transactionId and transactionNumber belong together: the id names a stream of "
                "writes, and the number, which only grows, one of them"
            )
        delivery = given.text("delivery") or DELIVERIES[0]
        if delivery not in DELIVERIES:
            raise OutOfRange(f"delivery must be one of {', '.join(DELIVERIES)}, not {delivery}")
        exactly_once = delivery == DELIVERIES[0]
        if transaction is not None and not exactly_once:
            raise OutOfRange("transactionId is for delivery=exactly-once: without it there is none")
        codec = given.text("codec") or "none"
        codecs.by_name(codec)
        topic = given.text("topic")
        commit_us = _duration(given, "commitTimeout", 600 * SECOND_US, bare_us=SECOND_US)
        if not commit_us:
            raise OutOfRange("commitTimeout must be more than 0: nothing is committed in no time")
        return WriteOptions(
            connection=ConnectionOptions.parse(given),
            topic=None if topic is None else check_name(topic, "topic"),
            include_headers=given.boolean("includeHeaders", default=False),
            codec=codec,
            transaction=None if transaction is None else check_name(transaction, "transactionId"),
            number=number or 0,
            commit_timeout=commit_us / SECOND_US,
            exactly_once=exactly_once,
            tracing=given.boolean("tracing", default=False),
        )


# --- names ---------------------------------------------------------------------------------------


def _checked(options: Mapping[str, str], known: tuple[str, ...]) -> Given:
    """Let unknown names pass, as everywhere in Spark, except those that look like a slip."""
    given = Given(options)
    ignored = []
    for name in given.names():
        if name.startswith(_KAFKA_SECURITY):
            raise OutOfRange(
                f"{name} means nothing to a Hocket broker; use the options token or tokenFile, "
                "and tlsCa, tlsCert and tlsKey"
            )
        if name.startswith("kafka."):
            if name != _KAFKA_GROUP:
                ignored.append(name)
        elif name not in _OURS:
            _refuse_slip(name, known)
    if "kafka.bootstrap.servers" in ignored and not given.has("servers"):
        raise OutOfRange(
            "kafka.bootstrap.servers is Kafka's; name the Hocket broker in the option servers, as "
            "in host:4150"
        )
    if ignored:
        _log.warning("ignored, as they are for Kafka: %s", ", ".join(sorted(ignored)))
    return given


def _refuse_slip(name: str, known: tuple[str, ...]) -> None:
    documented = {plain(each): each for each in known}
    close = difflib.get_close_matches(name, documented, n=1, cutoff=_LIKENESS_MIN)
    # Two letters exchanged make a short name, as topci, too unlike to be found above.
    close += [each for each in documented if sorted(each) == sorted(name)]
    if close:
        raise OutOfRange(f"{name} is not an option; did you mean {documented[close[0]]}?")


def _refuse(given: Given, names: tuple[str, ...], why: str) -> None:
    for name in names:
        if given.has(name):
            raise OutOfRange(f"{name} {why}")


def _warn_of_ignored(given: Given, names: tuple[str, ...], why: str) -> None:
    found = [name for name in names if given.has(name)]
    if found:
        _log.warning("ignored: %s %s", ", ".join(found), why)


# --- values --------------------------------------------------------------------------------------


def _url(given: Given, wants_tls: bool) -> str:
    servers = given.text("servers")
    if servers is None:
        raise OutOfRange("servers is missing: say where the broker is, as in host:4150")
    if "@" in servers:  # what stands before the @ may be secret
        raise OutOfRange("servers names hosts only; give the token in the option token")
    target = parse_url(servers, tls=wants_tls)
    if wants_tls and not target.tls:
        raise OutOfRange(
            f"servers={servers} is without TLS, so tlsCa, tlsCert and tlsKey mean nothing; write "
            "hockets://"
        )
    return str(target)


def _columns(given: Given) -> tuple[str, ...]:
    with_headers = given.boolean("includeHeaders", default=False)
    text = given.text("columns")
    if text is None:
        return ALL if with_headers else ALL[:-1]
    by_plain_name = {plain(name): name for name in ALL}
    found: list[str] = []
    for each in text.split(","):
        name = by_plain_name.get(plain(each.strip()))
        if name is None:
            raise OutOfRange(f"columns has {shown(each.strip())}; the columns are {', '.join(ALL)}")
        if name in found:
            raise OutOfRange(f"columns has {name} twice")
        found.append(name)
    if "headers" in found and given.has("includeHeaders") and not with_headers:
        raise OutOfRange("columns has headers, and includeHeaders is false; which is it?")
    if with_headers and "headers" not in found:
        found.append("headers")
    return tuple(found)


def _index(given: Given) -> str | None:
    index, group = given.text("index"), given.text(_KAFKA_GROUP)
    if index is not None and group is not None and index != group:
        raise OutOfRange(f"index={shown(index)} and {_KAFKA_GROUP}={shown(group)} differ")
    if index is not None:
        return check_name(index, "index")
    return None if group is None else check_name(group, _KAFKA_GROUP)


def _index_prefix(given: Given) -> str:
    prefix = given.text("groupIdPrefix") or "spark-hocket"
    check_name(prefix, "groupIdPrefix")
    if len(prefix) + INDEX_SUFFIX > NAME_BYTES_MAX:
        raise OutOfRange(
            f"groupIdPrefix must be {NAME_BYTES_MAX - INDEX_SUFFIX} characters at most, and has "
            f"{len(prefix)}"
        )
    return prefix


def _poll_timeout(given: Given) -> float:
    """The poll timeout, by the connector's name for it or by ours."""
    names = [name for name in ("pollTimeoutMs", "kafkaConsumer.pollTimeoutMs") if given.has(name)]
    if not names:
        return 120.0
    found = {given.integer(name, least=1, default=0, most=LONG_MAX // 1000) for name in names}
    if len(found) > 1:
        raise OutOfRange(f"{' and '.join(names)} differ")
    return found.pop() / 1000


def _duration(given: Given, name: str, default: int, *, bare_us: int) -> int:
    text = given.text(name)
    return default if text is None else interval_us(text, name, bare_us=bare_us)
