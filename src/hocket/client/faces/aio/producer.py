"""Producing for asyncio: streams of messages, and one-off publishes."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from xxhash import xxh3_64_intdigest

from hocket.client.engines import timeouts
from hocket.client.engines.aio import AioEngine
from hocket.client.faces.misuse import AsyncFace
from hocket.client_core.producing.arrow_rows import arrow_portions
from hocket.client_core.producing.bulk import Portion, list_portions
from hocket.client_core.producing.core import ProducerCore
from hocket.client_core.producing.delays import checked_due_us
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.gathering import Gathering
from hocket.client_core.producing.outgoing import Outcome, Outgoing, Positions
from hocket.client_core.producing.publishing import Publications
from hocket.client_core.producing.records import KEYED_BYTES, RECORD_BYTES, checked
from hocket.client_core.session.answers import again, closed
from hocket.client_core.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.deadline import Deadline
from hocket.errors import Closed, HocketError
from hocket.model import Position, check_name

if TYPE_CHECKING:
    from datetime import datetime
    from typing import Self

    import pyarrow  # type: ignore[import-untyped]
    import typing_extensions
    from typing_extensions import Buffer

    from hocket.client_core.producing.delays import Delay
    from hocket.client_core.producing.records import Headers, Record

    P = typing_extensions.TypeVar("P", bound=Any, default=Buffer)  # the type of values
else:
    P = TypeVar("P")
T = TypeVar("T")


class AsyncProducer(AsyncFace, Generic[P]):
    """A stream of messages to one topic, from any number of tasks; made by `client.producer`.

    Messages of one task with the same key, or to the same partition, are stored in the order they
    were sent, each once. `close`, or the end of the `async with` block, delivers what was sent.
    """

    def __init__(
        self,
        forget: Callable[[AsyncProducer[Any]], None],
        engine: AioEngine,
        topic: str,
        options: ProducerOptions,
        on_delivery: Callable[[Outcome], None] | None,
        send_timeout: float | None,
    ) -> None:
        self._forget = forget  # tells the client that this producer is closed
        self._engine = engine
        self._send_timeout = send_timeout
        # The core does not know this object, so that a client that is dropped can be collected.
        self._report = Reports(engine, on_delivery).settle
        self._core = ProducerCore(engine.session, topic, options, self._report)
        self._delayed: ProducerCore | None = None  # for messages that are delayed
        self._core.tells_all = on_delivery is not None

    @property
    def topic(self) -> str:
        return self._core.topic

    def __repr__(self) -> str:
        return f"<AsyncProducer of {self.topic!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        try:
            await self.close()
        except HocketError:
            if kind is None:  # else the block's own error is the one to be seen
                raise

    # --- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        value: P,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Take a message to be delivered soon; waits only while the window is full.

        With a `delay` ("5m", seconds or a timedelta) or `deliver_at` nobody sees the message before
        it is due; see `publish`. The first such message opens a second producer, and waits for it.

        Raises what is wrong with this message (WrongType, MessageTooLarge, UnknownPartition) at
        once, Timeout after `send_timeout`, and Closed; then the message was not taken. A message
        that is taken and cannot be delivered is reported by `flush`, `close` and `on_delivery`.
        """
        # The usual cases take no lock: `gathering` says why that is safe. Every line here counts,
        # and so would a parameter that is for keywords only: Python calls such a function slower.
        if (
            headers is None
            and timestamp is None
            and partition is None
            and delay is None
            and deliver_at is None
            and type(value) is bytes
        ):
            if key is None:
                gathering = self._core.sticky
                turn = gathering.turn - len(value) - RECORD_BYTES
                if turn >= 0:
                    gathering.turn = turn
                    gathering.items.append(value)
                    if not gathering.awake:
                        self._wake(gathering, value)
                    return
                if self._core.next_turn(len(value) + RECORD_BYTES):
                    await AsyncProducer.send(self, value)
                    return
            elif type(key) is bytes:
                gatherings = self._core.gatherings
                gathering = gatherings[xxh3_64_intdigest(key) % len(gatherings)]
                room = gathering.room - len(value) - len(key) - KEYED_BYTES
                if room >= 0:
                    gathering.room = room
                    record = (value, key, None, None, None)
                    gathering.items.append(record)
                    if not gathering.awake:
                        self._wake(gathering, record)
                    return
        await self._send(value, key, headers, timestamp, partition, None, delay, deliver_at)

    async def send_future(
        self,
        value: P,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        *,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> Future[Position]:
        """`send`, with a future of the message's position. The future costs more than the message.

        Cancelling the future does not take the message back.
        """
        future: Future[Position] = self._engine.new_future()
        await self._send(value, key, headers, timestamp, partition, future, delay, deliver_at)
        return future

    async def send_many(
        self,
        values: Sequence[P],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        *,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        """Take many messages at once, at a fraction of the cost of `send`.

        They are checked first: if one is wrong, it is named and none is taken. A Timeout says in
        `written` how many were taken. A `delay` or a `deliver_at` is for all of them.
        """
        if delay is None and deliver_at is None:
            await self._send_portions(self._core, list_portions(self._core, values, keys, headers))
            return
        due_us = self._due_us(delay, deliver_at, None)
        core = await self._open_delayed()
        await self._send_portions(core, list_portions(core, values, keys, headers, due_us))

    async def send_arrow(
        self, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None:
        """Take the rows of an Arrow batch: its `value`, and `key`, `timestamp`, `headers` if given.

        Keys spread the rows over the partitions, and rows without a key are spread in a few pieces;
        `partition` puts all rows there. They are checked first: if one is wrong, it is named and
        none is taken. A Timeout says in `written` how many were taken.
        """
        portions = arrow_portions(self._core, record_batch, partition)
        await self._send_portions(self._core, portions)

    async def _send_portions(self, core: ProducerCore, portions: Sequence[Portion]) -> None:
        deadline = Deadline(self._send_timeout)
        taken = 0
        for portion in portions:
            start = 0
            while start < portion.count:
                offer = partial(portion.offer, core, start)
                start = await self._when_taken(core, offer, deadline.remaining(), taken + start)
            taken += portion.count

    async def _send(
        self,
        value: object,
        key: Buffer | None,
        headers: Headers | None,
        timestamp: int | None,
        partition: int | None,
        future: Future[Position] | None,
        delay: Delay | None,
        deliver_at: datetime | None,
    ) -> None:
        core = self._core
        if delay is not None or deliver_at is not None:
            timestamp = self._due_us(delay, deliver_at, timestamp)
            checked(value, key, headers, timestamp, future)  # before anything is opened for it
            core = await self._open_delayed()
        record, size = checked(value, key, headers, timestamp, future)
        core.check_usable()
        gathering = core.gathering_of(record[1], partition)
        await self._when_taken(
            core, lambda: core.offer(gathering, record, size) or None, self._send_timeout
        )

    async def _when_taken(
        self,
        core: ProducerCore,
        offer: Callable[[], T | None],
        timeout: float | None,
        taken: int = 0,
    ) -> T:
        return await self._engine.wait_for(
            offer,
            core.settled,
            timeout,
            lambda: timeouts.window_full(core, self._send_timeout, taken),
        )

    def _due_us(
        self, delay: Delay | None, deliver_at: datetime | None, timestamp: int | None
    ) -> int:
        now_us = self._engine.clock.now_us()
        return checked_due_us(delay, deliver_at, now_us=now_us, timestamp=timestamp)

    async def _open_delayed(self) -> ProducerCore:
        """The second producer, for what is delayed; opened by the first message that is."""
        core = self._engine.do(self._delayed_core)
        await wait_until_open(self._engine, core, "topic", self._send_timeout)
        return core

    def _delayed_core(self) -> ProducerCore:
        self._core.check_usable()
        core = self._delayed
        if core is None or core.failure is not None:
            known = self._core
            core = ProducerCore(known.session, known.topic, known.options, self._report)
            core.delayed, core.tells_all = True, known.tells_all
            self._delayed = core
            core.open()
        return core

    def _cores(self) -> list[ProducerCore]:
        return [self._core] if self._delayed is None else [self._core, self._delayed]

    def _wake(self, gathering: Gathering, record: bytes | Record) -> None:
        self._engine.do(partial(self._core.wake_for, gathering, record))

    # --- delivering ------------------------------------------------------------------------------

    async def flush(self, timeout: float | None = None) -> None:
        """Return when all that was sent so far is delivered.

        Raises the first error there was since the last time, even if it was of an earlier message;
        the others go to `on_delivery` and to futures.
        """
        await self._deliver(timeout)
        for core in self._cores():
            if core.failure is not None:
                raise again(core.failure)

    async def _deliver(self, timeout: float | None) -> None:
        deadline = Deadline(check_timeout(timeout))
        error: HocketError | None = None
        for core in self._cores():
            await self._deliver_of(core, deadline.remaining(), timeout)
            error = error or self._engine.do(partial(_take_first_error, core))
        if error is not None:
            raise again(error)

    async def _deliver_of(
        self, core: ProducerCore, remaining: float | None, timeout: float | None
    ) -> None:
        serial = self._engine.do(core.cut_all)
        await self._engine.wait_for(
            lambda: core.is_settled(serial) or None,
            core.settled,
            remaining,
            lambda: timeouts.undelivered(core, timeout),
        )

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Deliver what was sent, and let go; raises an error that nobody was told of yet."""
        if self._engine.refuses or not self._engine.do(self._stop_taking):
            return
        try:
            await self._deliver(timeout)
        finally:
            self._engine.do(self._end)
            self._forget(self)

    def _stop_taking(self) -> bool:
        """False: it is closed already."""
        if isinstance(self._core.failure, Closed):
            return False
        for core in self._cores():
            core.stop_taking()
        return True

    def _end(self) -> None:
        for core in self._cores():
            core.end(closed("the producer"))
            core.told()  # by whatever `close` raises

    async def _open(self, timeout: float | None) -> None:
        try:
            self._engine.do(self._core.open)
            await wait_until_open(self._engine, self._core, "producer", timeout)
        except BaseException:
            self._engine.do(self._end)
            raise


def _take_first_error(core: ProducerCore) -> HocketError | None:
    error = core.first_error
    core.told()
    return error


class Reports:
    """Tells futures and `on_delivery` what became of batches."""

    def __init__(self, engine: AioEngine, on_delivery: Callable[[Outcome], None] | None) -> None:
        self._engine = engine
        self._on_delivery = on_delivery

    def settle(self, batch: Outgoing, outcome: Outcome) -> None:
        if batch.waiters:
            self._engine.tell_futures(partial(_tell_futures, batch, outcome))
        if self._on_delivery is not None:
            self._engine.defer(partial(self._on_delivery, outcome))


def _tell_futures(batch: Outgoing, outcome: Outcome) -> None:
    for number, future in batch.waiters:
        if future.done():  # its owner has cancelled it
            continue
        if isinstance(outcome, Positions):
            future.set_result(outcome.position(number))
        else:
            future.set_exception(outcome)


class AsyncPublisher:
    """The one-off publishes of a client."""

    def __init__(self, engine: AioEngine) -> None:
        self._engine = engine
        self._publications = Publications(engine.session)

    async def publish(
        self,
        topic: str,
        value: Buffer,
        key: Buffer | None,
        headers: Headers | None,
        partition: int | None,
        timestamp: int | None,
        timeout: float | None,
        *,
        delay: Delay | None,
        deliver_at: datetime | None,
    ) -> Position:
        engine = self._engine
        deadline = Deadline(timeout)
        publication = self._publications.new(engine.clock.ticks_us(), timeout)
        delayed = delay is not None or deliver_at is not None
        if delayed:
            now_us = engine.clock.now_us()
            timestamp = checked_due_us(delay, deliver_at, now_us=now_us, timestamp=timestamp)
        record, size = checked(value, key, headers, timestamp, publication)
        core = engine.do(partial(self._publications.core, check_name(topic), delayed=delayed))
        await wait_until_open(engine, core, "topic", deadline.remaining())
        engine.do(lambda: core.offer(core.gathering_of(record[1], partition), record, size))
        try:
            outcome = await engine.wait_for_reply(
                publication,
                deadline.remaining(),
                lambda: timeouts.unpublished(core, core.give_up(record), timeout),
            )
        except BaseException:
            engine.do(partial(core.give_up, record))
            raise
        if isinstance(outcome, HocketError):
            raise outcome
        return outcome


async def wait_until_open(
    engine: AioEngine, core: ProducerCore, what: str, timeout: float | None
) -> None:
    def opened() -> bool | None:
        core.check_usable()
        return core.is_open or None

    await engine.wait_for(
        opened, core.changed, timeout, lambda: timeouts.not_opened(core, what, timeout)
    )
