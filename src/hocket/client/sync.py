"""The blocking client: `hocket.connect`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from hocket.client import admin
from hocket.client.address import parse_url
from hocket.client.admin import Duration, Size, StartLike
from hocket.client.engine import Engine
from hocket.client.lane import Outcome
from hocket.client.link import Connector
from hocket.client.options import check_callback, producer_options, subscription_options
from hocket.client.producer import Producer, Publisher
from hocket.client.session import closed
from hocket.client.subscription import Subscription
from hocket.client.tcp import TcpConnector
from hocket.client.tls import Path, context_for
from hocket.client.waiters import DEFAULT_TIMEOUT, Deadline, check_timeout
from hocket.errors import HocketError
from hocket.model import IndexDescription, Position, TopicConfig, TopicDescription, check_name

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

    from hocket.client.records import Headers

__all__ = ["Client", "Producer", "Subscription", "connect"]


def connect(
    url: str,
    *,
    token: str | None = None,
    tls_ca: Path | None = None,
    tls_cert: Path | None = None,
    tls_key: Path | None = None,
    timeout: float | None = 10,
    name: str = "",
) -> Client:
    """A client of the broker at `hocket://host:port`; `hockets://` for TLS.

    Several hosts may be given, separated by commas: they are tried in turn, now and whenever the
    connection is lost. Raises NoConnection when none of them answers.
    """
    timeout = check_timeout(timeout)
    target = parse_url(url)
    context = context_for(target, tls_ca, tls_cert, tls_key)
    connector = TcpConnector(target, context, 10.0 if timeout is None else max(timeout, 0.1))
    return Client(connector, token=token, name=name, timeout=timeout)


class Client:
    """A connection to a broker, for any number of threads.

    It comes back by itself when it is lost: what was being produced is sent again and stored once,
    and subscriptions go on where they were. Made by `hocket.connect` and `hocket.embedded`.
    Every call that waits takes a `timeout` in seconds.
    """

    def __init__(
        self,
        connector: Connector,
        *,
        token: str | None = None,
        name: str = "",
        timeout: float | None = 10,
        closing: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = Engine(connector, name=name, token=token or "")
        self._closing = closing  # what else ends with it
        self._closed = True  # until it is open
        self._producers: dict[Producer, None] = {}
        self._subscriptions: dict[Subscription, None] = {}
        self._publisher = Publisher(self._engine)
        self._engine.start(timeout)
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self._engine.abandon(self._closing)
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=2, source=self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else self._engine.session.state
        return f"<Client of {self._engine.session.target}, {state}>"

    def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Deliver what was sent, commit what was acknowledged, and let go.

        Raises the first thing that went wrong, after everything is closed.
        """
        if self._closed:
            return
        deadline = Deadline(check_timeout(timeout))
        self._closed = True
        errors: list[HocketError] = []
        try:
            opened: list[Producer | Subscription] = [*self._producers, *self._subscriptions]
            for each in opened:
                try:
                    each.close(deadline.left())
                except HocketError as error:
                    errors.append(error)
        finally:
            self._engine.stop(closed("the client"))
            self._closing()
        if errors:
            raise errors[0]

    # --- topics ----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication: int | None = None,
        memory_retention: Duration | None = None,
        memory_bytes: Size | None = None,
        disk_retention: Duration | None = None,
        disk_bytes: Size | None = None,
        durability: str = "quorum",
        segment_bytes: Size | None = None,
        exist_ok: bool = False,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Durations are "10m", "7d" or seconds, sizes "64MiB" or bytes; None is the default.

        `disk_retention="forever"` keeps everything. Raises TopicExists, unless `exist_ok`.
        """
        config = admin.configured(
            TopicConfig(),
            partitions=partitions,
            replication=replication,
            memory_retention=memory_retention,
            memory_bytes=memory_bytes,
            disk_retention=disk_retention,
            disk_bytes=disk_bytes,
            durability=durability,
            segment_bytes=segment_bytes,
        )
        self._engine.call(admin.create_topic(name, config, exist_ok=exist_ok), timeout)

    def alter_topic(
        self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT, **changes: Any
    ) -> None:
        """Change what `create_topic` set; what is not given stays. Partitions may only grow."""
        config = self.describe(name, timeout=timeout).config
        self._engine.call(admin.alter_topic(name, admin.configured(config, **changes)), timeout)

    def delete_topic(
        self, name: str, *, missing_ok: bool = False, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        self._engine.call(admin.delete_topic(name, missing_ok=missing_ok), timeout)

    def topics(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> list[str]:
        """The names of all topics, sorted."""
        return self._engine.call(admin.topics(), timeout)

    def describe(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> TopicDescription:
        return self._engine.call(admin.describe(name), timeout)

    def find_offsets(
        self, topic: str, start: StartLike, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> list[int]:
        """Where `start` ("earliest", "latest", an offset, a time) is in each partition."""
        return self._engine.call(admin.find_offsets(topic, start), timeout)

    def ping(self, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        self._engine.call(admin.ping(), timeout)

    # --- indexes ---------------------------------------------------------------------------------

    def indexes(
        self, topic: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> list[IndexDescription]:
        return self._engine.call(admin.indexes(topic), timeout)

    def lag(self, topic: str, index: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> int:
        """How many messages the index is behind, over all partitions."""
        return self._engine.call(admin.lag(topic, index), timeout)

    def seek(
        self,
        topic: str,
        index: str,
        to: StartLike,
        *,
        partition: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int]:
        """Put an index elsewhere, in one partition or in all; returns the offsets.

        A consumer that is attached goes on from there.
        """
        return self._engine.call(admin.seek(topic, index, to, partition), timeout)

    def delete_index(
        self, topic: str, index: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        self._engine.call(admin.delete_index(topic, index), timeout)

    # --- messages --------------------------------------------------------------------------------

    def publish(
        self,
        topic: str,
        value: Buffer,
        *,
        key: Buffer | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Position:
        """Store one message; returns where it stands once it is as durable as its topic demands.

        Those of many threads share frames. It is tried again while `timeout` lasts, and stored
        once. For a stream of messages a `producer` is the better choice.
        """
        return self._publisher.publish(
            topic, value, key, headers, partition, timestamp, check_timeout(timeout)
        )

    def producer(
        self,
        topic: str,
        *,
        linger: float = 0.002,
        batch_bytes: int | str = 1 << 20,
        window_bytes: int | str = 16 << 20,
        codec: str = "none",
        on_delivery: Callable[[Outcome], None] | None = None,
        send_timeout: float | None = None,
        delivery_timeout: float | None = 120,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Producer:
        """A stream of messages to a topic.

        A message waits at most `linger` seconds for others to share its batch; with 0 it leaves at
        once, and what is sent while it is on its way gathers. `send` waits only while
        `window_bytes` are not acknowledged, at most `send_timeout`. `on_delivery` is called for
        each batch with its `Positions`, or with the error, on the client's own thread: it may use
        the client, and must not take long. What cannot be delivered within `delivery_timeout` has
        failed.
        """
        options = producer_options(
            linger=linger,
            batch_bytes=batch_bytes,
            window_bytes=window_bytes,
            codec=codec,
            delivery_timeout=delivery_timeout,
        )
        check_callback(on_delivery, "on_delivery")
        producer = Producer(
            self,
            self._engine,
            check_name(topic),
            options,
            on_delivery,
            check_timeout(send_timeout, "send_timeout"),
        )
        producer._open(check_timeout(timeout))
        self._producers[producer] = None
        return producer

    def subscribe(
        self,
        topic: str,
        *,
        index: str | None = None,
        mode: str = "own",
        start: StartLike = "earliest",
        partitions: Iterable[int] | None = None,
        positions: Mapping[int, int] | None = None,
        hold_retention: bool = False,
        credit_bytes: int | str = 8 << 20,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Subscription:
        """Read a topic, from the place of `index`, which the broker keeps.

        `start` counts only where the index is new. Without an index the subscription begins at
        `start`, or at `positions` (partition -> offset), and you keep the place. The broker sends
        at most `credit_bytes` ahead of what was handed out.
        """
        options = subscription_options(
            index=index,
            mode=mode,
            start=start,
            partitions=partitions,
            positions=positions,
            hold_retention=hold_retention,
            credit_bytes=credit_bytes,
        )
        subscription = Subscription(self, self._engine, check_name(topic), options)
        subscription._open(check_timeout(timeout))
        self._subscriptions[subscription] = None
        return subscription

    def _forget(self, ended: Producer | Subscription) -> None:
        if isinstance(ended, Producer):
            self._producers.pop(ended, None)
        else:
            self._subscriptions.pop(ended, None)
