"""The blocking client: `hocket.connect`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from hocket import frames
from hocket.client.calls import access as access_calls
from hocket.client.calls import dead_letters
from hocket.client.calls import topics as admin
from hocket.client.calls.dead_letters import DeadLetter
from hocket.client.calls.options import (
    check_callback,
    check_number,
    producer_options,
    subscription_options,
)
from hocket.client.calls.topics import Duration, Size, StartLike
from hocket.client.connection.address import parse_url
from hocket.client.connection.link import Connector
from hocket.client.connection.session import closed
from hocket.client.connection.tcp import TcpConnector
from hocket.client.connection.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.client.connection.tls import Path, context_for
from hocket.client.engines.threads import Engine
from hocket.client.faces.blocking.producer import Producer, Publisher
from hocket.client.faces.blocking.subscription import Subscription
from hocket.client.faces.blocking.transaction import Transaction, decide, drop
from hocket.client.producing.outgoing import Outcome
from hocket.client.producing.staging import check_participants
from hocket.deadline import Deadline
from hocket.errors import HocketError
from hocket.model import (
    PREFETCH_DEFAULT,
    Decision,
    IndexDescription,
    Participant,
    Position,
    RoleDescription,
    TopicConfig,
    TopicDescription,
    UserDescription,
    check_name,
)

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

    from hocket.client.producing.records import Headers

__all__ = ["Client", "Producer", "Subscription", "Transaction", "connect"]


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
        self._transactions: dict[Transaction, None] = {}
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
            opened: list[Producer | Subscription | Transaction] = [
                *self._producers,
                *self._subscriptions,
                *self._transactions,
            ]
            for each in opened:
                try:
                    each.close(deadline.remaining())
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

    @overload
    def seek(
        self,
        topic: str,
        index: str,
        to: StartLike,
        *,
        partition: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int]: ...

    @overload
    def seek(
        self,
        topic: str,
        index: str,
        to: Mapping[int, StartLike],
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> dict[int, int]: ...

    def seek(
        self,
        topic: str,
        index: str,
        to: StartLike | Mapping[int, StartLike],
        *,
        partition: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[int] | dict[int, int]:
        """Put an index elsewhere, in one partition or in all; returns the offsets.

        With `{partition: place}` each of these partitions is put elsewhere, at once but not as one:
        if one is refused, its error is raised, and the others have moved. A consumer that is
        attached goes on from there.
        """
        if not isinstance(to, Mapping):
            return self._engine.call(admin.seek(topic, index, to, partition), timeout)
        calls = admin.seek_each(topic, index, to, partition)
        offsets = self._engine.call_all(list(calls.values()), timeout)
        return dict(zip(calls, offsets, strict=True))

    def delete_index(
        self, topic: str, index: str, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        self._engine.call(admin.delete_index(topic, index), timeout)

    # --- dead letters ----------------------------------------------------------------------------

    def dead_letters(
        self,
        topic: str,
        *,
        index: str | None = None,
        limit: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> list[DeadLetter]:
        """What shared indexes of the topic have given up, oldest first; of one of them, or all."""
        return dead_letters.find(self, topic, index, limit, check_timeout(timeout))

    def replay_dead_letters(
        self,
        topic: str,
        *,
        index: str | None = None,
        limit: int | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> int:
        """Publish to the topic again what was given up and not replayed yet; returns how many.

        They are new messages, for every index of the topic, with the header `hocket-replayed`.
        """
        return dead_letters.replay(self, topic, index, limit, check_timeout(timeout))

    # --- access ----------------------------------------------------------------------------------

    def create_user(
        self, name: str, roles: Iterable[str] = (), *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> str:
        """A new user; returns its token, which nobody can be shown again.

        The first user turns access control on, at once and for good, and must have the role
        "admin". Raises NameInUse, UnknownRole.
        """
        return self._engine.call(access_calls.create_user(name, roles), timeout)

    def renew_token(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> str:
        """A new token for a user. The old one is void, and who came with it is hung up on."""
        return self._engine.call(access_calls.renew_token(name), timeout)

    def delete_user(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Its connections are closed at once. The last admin cannot be deleted."""
        self._engine.call(access_calls.delete_user(name), timeout)

    def set_roles(
        self, name: str, roles: Iterable[str], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> None:
        """All the roles of a user, in place of those it has. Effective at once."""
        self._engine.call(access_calls.set_roles(name, roles), timeout)

    def create_role(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        self._engine.call(access_calls.create_role(name), timeout)

    def delete_role(self, name: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Whoever has it loses it."""
        self._engine.call(access_calls.delete_role(name), timeout)

    def grant(
        self,
        role: str,
        action: str,
        topic: str = "*",
        index: str = "*",
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Permit an action on the topics, and their indexes, whose names match.

        Actions are publish, subscribe, create, alter, delete and admin, which implies the others.
        In a pattern `*` is any run of characters.
        """
        self._engine.call(access_calls.grant(role, action, topic, index), timeout)

    def revoke(
        self,
        role: str,
        action: str,
        topic: str = "*",
        index: str = "*",
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Take a grant back, given as it was granted. What it kept open ends at once."""
        self._engine.call(access_calls.revoke(role, action, topic, index), timeout)

    def access(
        self, *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> tuple[list[UserDescription], list[RoleDescription]]:
        """All users and all roles. Without users access control is off."""
        return self._engine.call(access_calls.access(), timeout)

    def can(
        self,
        user: str,
        action: str,
        topic: str,
        index: str | None = None,
        *,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Decision:
        """Whether a user may do this, and why. Everybody may ask about himself."""
        return self._engine.call(access_calls.can(user, action, topic, index), timeout)

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

    def transaction(
        self,
        id: str,  # noqa: A002 - the word its users see
        *,
        number: int = 0,
        linger: float = 0.002,
        batch_bytes: int | str = 1 << 20,
        window_bytes: int | str = 16 << 20,
        codec: str = "none",
        send_timeout: float | None = None,
        delivery_timeout: float | None = 120,
    ) -> Transaction:
        """Messages to any number of topics, published all together or not at all.

        The end of the block commits, an exception in it aborts. `id` names a stream of
        transactions, and `number` one of them: numbers only grow. The same number again, with as
        many records for each topic, is done already and not published twice; so whoever does not
        know whether a transaction was committed does it again. The options are those of
        `producer`.
        """
        options = producer_options(
            linger=linger,
            batch_bytes=batch_bytes,
            window_bytes=window_bytes,
            codec=codec,
            delivery_timeout=delivery_timeout,
        )
        transaction = Transaction(
            self,
            self._engine,
            check_name(id, "a transaction's id"),
            check_number(number),
            options,
            check_timeout(send_timeout, "send_timeout"),
        )
        self._transactions[transaction] = None
        return transaction

    def commit_prepared(
        self,
        id: str,  # noqa: A002 - the word its users see
        number: int,
        participants: Iterable[Participant],
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Publish what was prepared, by whoever: all of it, or nothing. See `Transaction.prepare`.

        It is answered like `Transaction.commit`: as many records for each topic as were committed
        before are done already, others are a TransactionConflict. TransactionAborted: something of
        it was dropped; stage it again.
        """
        named = check_participants(participants)
        commit = frames.CommitTransaction(
            0, check_name(id, "a transaction's id"), check_number(number), named
        )
        decide(self._engine, commit, check_timeout(timeout), "commit")

    def drop_prepared(
        self,
        id: str,  # noqa: A002 - the word its users see
        number: int,
        participants: Iterable[Participant],
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> None:
        """Drop what was prepared, and nothing else; the number can be staged again.

        Raises TransactionConflict if the number is committed already.
        """
        name = check_name(id, "a transaction's id"), check_number(number)
        producers = [each.producer_id for each in check_participants(participants)]
        drop(self._engine, name, producers, check_timeout(timeout))

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
        lease: Duration | None = None,
        max_deliveries: int | None = None,
        prefetch: int = PREFETCH_DEFAULT,
        failover: str = "safe",
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> Subscription:
        """Read a topic, from the place of `index`, which the broker keeps.

        `start` counts only where the index is new. Without an index the subscription begins at
        `start`, or at `positions` (partition -> offset), and you keep the place. The broker sends
        at most `credit_bytes` ahead of what was handed out.

        With `mode="shared"` every message goes to one of the index's consumers, and is its own for
        `lease` (seconds, or "30s"); not settled by then, it is delivered again, at most
        `max_deliveries` times, and then goes to the dead letters. None leaves either as the index
        has it: 30 s and 5, unless somebody set it. `mode="key_shared"` also keeps the order of
        each key. At most `prefetch` messages are with it unsettled. After a restart of the broker
        messages that may still be with somebody wait for their leases, unless `failover="fast"`.
        """
        options = subscription_options(
            index=index,
            mode=mode,
            start=start,
            partitions=partitions,
            positions=positions,
            hold_retention=hold_retention,
            credit_bytes=credit_bytes,
            lease=lease,
            max_deliveries=max_deliveries,
            prefetch=prefetch,
            failover=failover,
        )
        subscription = Subscription(self, self._engine, check_name(topic), options)
        subscription._open(check_timeout(timeout))
        self._subscriptions[subscription] = None
        return subscription

    def _forget(self, ended: Producer | Subscription | Transaction) -> None:
        if isinstance(ended, Producer):
            self._producers.pop(ended, None)
        elif isinstance(ended, Transaction):
            self._transactions.pop(ended, None)
        else:
            self._subscriptions.pop(ended, None)
