"""Transactions for asyncio: messages to any topics, published all together or not at all."""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from hocket import frames
from hocket.client.engines import timeouts
from hocket.client.engines.aio import AioEngine
from hocket.client.faces.aio.producer import AsyncProducer, P
from hocket.client.faces.misuse import AsyncFace
from hocket.client_core.producing.encoding import ABSENT, payload, payloads
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.producing.staging import (
    Deciding,
    StagingCore,
    abort_of,
    participants_of,
    producers_of,
    topic_of,
)
from hocket.client_core.session.answers import closed
from hocket.client_core.timeout import DEFAULT_TIMEOUT, check_timeout
from hocket.deadline import Deadline
from hocket.errors import HocketError, TransactionConflict, WrongKind
from hocket.model import Participant, check_name

if TYPE_CHECKING:
    from typing import Self

    import pyarrow  # type: ignore[import-untyped]
    from typing_extensions import Buffer

    from hocket.client_core.producing.records import Headers
    from hocket.values import Coder

ABORT_SECONDS = 5.0  # that the end of a block waits, when something else went wrong already


class AsyncStagingProducer(AsyncProducer):
    """A transaction's producer for one topic."""

    def __init__(
        self,
        engine: AioEngine,
        topic: str,
        options: ProducerOptions,
        send_timeout: float | None,
        name: tuple[str, int],
    ) -> None:
        super().__init__(_forget_nothing, engine, topic, options, None, send_timeout)
        self._core = self.staging = StagingCore(engine.session, topic, options, *name)


def _forget_nothing(_producer: AsyncProducer[Any]) -> None:
    """The client does not know the producers of a transaction."""


class AsyncTransaction(AsyncFace):
    """Made by `client.transaction`. The end of the `async with` block commits; an exception aborts.

    It may be used by any number of tasks, until it is committed, aborted or prepared.
    """

    def __init__(
        self,
        forget: Callable[[AsyncTransaction], None],
        engine: AioEngine,
        transaction: str,
        number: int,
        options: ProducerOptions,
        send_timeout: float | None,
        staging: type[AsyncStagingProducer],
    ) -> None:
        self.id = transaction
        self.number = number
        self.committed = False
        self.aborted = False
        self.prepared: tuple[Participant, ...] | None = None  # what `prepare` has returned
        self._forget = forget  # tells the client that this transaction is over
        self._engine = engine
        self._options = options
        self._send_timeout = send_timeout
        self._staging = staging
        self._producers: dict[str, AsyncStagingProducer] = {}
        self._opening = Lock()  # held while a producer is opened, so that there is one per topic
        self._ending = False

    def __repr__(self) -> str:
        state = "committed" if self.committed else "aborted" if self.aborted else "open"
        if self.prepared is not None:
            state = "prepared"
        return f"<AsyncTransaction {self.id!r} number {self.number}, {state}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if self._is_over:
            return
        if kind is not None:
            await self._give_up()
            return
        try:
            await self.commit()
        except HocketError as error:
            if not error.may_have_happened:
                await self._give_up()
            raise

    # --- sending ---------------------------------------------------------------------------------

    @overload
    async def send(
        self,
        topic: str,
        message: Buffer = ...,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        *,
        value: Buffer = ...,
    ) -> None: ...

    @overload
    async def send(
        self,
        topic: str,
        message: P,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        *,
        value: type[P] | Coder[P] | None,
    ) -> None: ...

    async def send(
        self,
        topic: str,
        message: Any = ABSENT,
        key: Buffer | None = None,
        headers: Headers | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        *,
        value: Any = ABSENT,
        delay: object = None,
        deliver_at: object = None,
    ) -> None:
        """Take a message; waits only while the window is full, or to open the topic.

        The message is bytes, or a value of the type that `value` names: see `hocket.values`.

        A transaction takes no delayed messages: with `delay` or `deliver_at` it raises WrongKind.

        Raises what is wrong with this message at once; then it was not taken. What goes wrong
        later, so that not all of the transaction can be staged, is raised by the next call.
        """
        if delay is not None or deliver_at is not None:
            raise WrongKind(
                "a transaction takes no delayed messages: publish them when it is committed"
            )
        if value is not ABSENT:
            message = payload(topic, message, value)
        producer = await self._producer(topic)
        await producer.send(message, key, headers, timestamp, partition)

    @overload
    async def send_many(
        self,
        topic: str,
        values: Sequence[Buffer],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
    ) -> None: ...

    @overload
    async def send_many(
        self,
        topic: str,
        values: Sequence[P],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        *,
        value: type[P] | Coder[P] | None,
    ) -> None: ...

    async def send_many(
        self,
        topic: str,
        values: Sequence[Any],
        keys: Sequence[Buffer | None] | None = None,
        headers: Sequence[Headers | None] | None = None,
        *,
        value: Any = None,
    ) -> None:
        """Take many messages at once; if one is wrong, it is named and none is taken."""
        if value is not None:
            values = payloads(topic, values, value)
        producer = await self._producer(topic)
        await producer.send_many(values, keys, headers)

    async def send_arrow(
        self, topic: str, record_batch: pyarrow.RecordBatch, partition: int | None = None
    ) -> None:
        """Take the rows of an Arrow batch; see `AsyncProducer.send_arrow`."""
        producer = await self._producer(topic)
        await producer.send_arrow(record_batch, partition)

    async def _producer(self, topic: str) -> AsyncStagingProducer:
        producer = self._producers.get(topic)
        if producer is None:
            check_name(topic)
            self._engine.check_process()  # first: who has the lock may have stayed in the parent
            async with self._opening:
                producer = self._producers.get(topic)
                if producer is None:
                    self._check_open()
                    name = self.id, self.number
                    producer = self._staging(
                        self._engine, topic, self._options, self._send_timeout, name
                    )
                    await producer._open(DEFAULT_TIMEOUT)
                    self._producers[topic] = producer
        return producer

    @property
    def _is_over(self) -> bool:
        return self.committed or self.aborted or self.prepared is not None

    def _check_open(self) -> None:
        if self._ending:
            raise closed("the transaction")

    # --- deciding --------------------------------------------------------------------------------

    async def commit(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Publish all of it; when this returns, all of it can be read.

        What was committed before, by whoever and with as many records for each topic, is fine and
        not published again; with others it is a TransactionConflict. After OutcomeUnknown it is not
        known whether it is committed: call it again, or begin anew with the same id and number.
        """
        if self.committed:
            return
        if self._is_over:
            raise closed("the transaction")
        deadline = Deadline(check_timeout(timeout))
        cores = await self._stop_taking()
        await self._wait_until_staged(cores, deadline, timeout)
        commit = frames.CommitTransaction(0, self.id, self.number, participants_of(cores))
        await decide(self._engine, commit, deadline.remaining(), "commit", topic_of(cores))
        self.committed = True
        self._end(cores)

    async def prepare(self, timeout: float | None = DEFAULT_TIMEOUT) -> tuple[Participant, ...]:
        """Have all of it staged, durably, and let go of it undecided.

        What is returned can be pickled. Whoever has it, in whatever process and together with what
        others have prepared for the same id and number, decides by `client.commit_prepared` or
        `client.drop_prepared`. If nobody does, the broker drops it after a day.
        """
        if self.prepared is not None:
            return self.prepared
        if self._is_over:
            raise closed("the transaction")
        deadline = Deadline(check_timeout(timeout))
        cores = await self._stop_taking()
        try:
            await self._wait_until_staged(cores, deadline, timeout)
        except HocketError:
            if self.prepared is not None:  # another task was first
                return self.prepared
            raise
        self.prepared = participants_of(cores)
        self._end(cores)
        return self.prepared

    async def _wait_until_staged(
        self, cores: list[StagingCore], deadline: Deadline, timeout: float | None
    ) -> None:
        for core in cores:
            await self._engine.wait_for(
                lambda core=core: core.is_staged() or None,  # type: ignore[misc]
                core.settled,
                deadline.remaining(),
                lambda core=core: timeouts.undelivered(core, timeout),  # type: ignore[misc]
            )

    async def abort(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Drop all of it. Raises TransactionConflict if it is committed already.

        Only what was sent here is dropped; the id and number can be used again.
        """
        if self.aborted:
            return
        if self.committed:
            raise TransactionConflict(f"{self!r} cannot be aborted any more")
        if self._is_over:
            raise closed("the transaction")
        timeout = check_timeout(timeout)
        cores = await self._stop_taking()
        self._end(cores)
        name = self.id, self.number
        await drop(self._engine, name, producers_of(cores), timeout, topic_of(cores))
        self.aborted = True

    async def close(self, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Let go: abort it if anything was sent and it is neither committed nor prepared."""
        if self._engine.refuses:
            return
        try:
            if self._producers and not self._is_over:
                await self.abort(timeout)
        except TransactionConflict:  # a commit of it that somebody gave up waiting for has won
            return
        finally:
            self._end([])

    async def _stop_taking(self) -> list[StagingCore]:
        self._engine.check_process()
        async with self._opening:  # nobody opens another producer from now on
            self._ending = True
            cores = [producer.staging for producer in self._producers.values()]
        for core in cores:
            self._engine.do(core.stop_taking)
        return cores

    def _end(self, cores: list[StagingCore]) -> None:
        for core in cores:
            self._engine.do(partial(core.end, closed("the transaction")))
        self._forget(self)

    async def _give_up(self) -> None:
        """The broker would find out by itself, but much later."""
        try:
            await self.abort(ABORT_SECONDS)
        except HocketError:
            return


async def decide(
    engine: AioEngine,
    frame: frames.CommitTransaction | frames.AbortTransaction,
    timeout: float | None,
    what: str,
    topic: str,
) -> None:
    """Ask the broker to commit or abort, again and again, until it has said what became of it.

    `topic` is one of those that it is about; empty: there is none.
    """
    deciding = engine.do(partial(Deciding, engine.session, frame, topic))
    try:
        answer = await engine.wait_for_reply(
            deciding.reply, timeout, lambda: timeouts.undecided(what, deciding.refusal, timeout)
        )
    finally:
        engine.do(deciding.cancel)
    if isinstance(answer, HocketError):
        raise answer


async def drop(
    engine: AioEngine,
    name: tuple[str, int],
    producers: Iterable[bytes],
    timeout: float | None,
    topic: str,
) -> None:
    """Abort what these producers have staged; without producers there is nothing to ask for."""
    frame = abort_of(*name, producers)
    if frame is not None:
        await decide(engine, frame, timeout, "abort", topic)
