"""A broker for taskiq: tasks wait in a topic of Hocket, and each goes to one worker.

Workers share an index of the topic. A task belongs to a worker for the time of a lease, which is
extended for as long as the worker lives and has not finished the task. So the task of a worker that
dies is given to another one; and a task whose workers have died `max_deliveries` times in a row is
put among the dead letters of the topic instead.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from functools import partial
from typing import Any

from taskiq import AckableMessage, AsyncBroker, BrokerMessage

import hocket.aio
from hocket.errors import Closed, HocketError, NotAllowed

log = logging.getLogger("taskiq_hocket")


class HocketBroker(AsyncBroker):
    """Tasks in `topic`, which is made if it is missing; workers share its index `index`.

    `lease` is how long, in seconds, a worker may be silent until its tasks go to others, and
    `prefetch` how many tasks a worker process holds. `options` are those of `hocket.aio.connect`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        topic: str = "taskiq",
        index: str = "workers",
        partitions: int = 4,
        lease: float = 30.0,
        max_deliveries: int = 5,
        prefetch: int = 10,
        **options: Any,
    ) -> None:
        super().__init__()
        self._url = url
        self._options = options
        self._topic = topic
        self._index = index
        self._partitions = partitions
        self._lease = lease
        self._max_deliveries = max_deliveries
        self._prefetch = prefetch
        self._client: Any = None
        self._subscription: Any = None
        self._held: dict[tuple[int, int], Any] = {}  # what this worker has, and has not finished
        self._keeping: asyncio.Task[None] | None = None

    async def startup(self) -> None:
        self._client = await hocket.aio.connect(self._url, **self._options)
        try:
            await self._client.create_topic(
                self._topic, partitions=self._partitions, delayed=True, exist_ok=True
            )
        except NotAllowed:
            log.debug("topic %r is somebody else's to make", self._topic)
        await super().startup()

    async def shutdown(self) -> None:
        await super().shutdown()
        if self._keeping is not None:
            self._keeping.cancel()
            self._keeping = None
        client, self._client, self._subscription = self._client, None, None
        if client is not None:
            await client.close()  # which tells the broker what is finished
        self._held.clear()  # what is not finished is another worker's

    async def kick(self, message: BrokerMessage) -> None:
        """Returns when the task is stored. The label `delay` is in seconds."""
        if self._client is None:
            raise Closed("this broker of taskiq is not started: `await broker.startup()` first")
        delay = message.labels.get("delay")
        await self._client.publish(
            self._topic,
            message.message,
            headers={
                "task-id": message.task_id.encode(),
                "task-name": message.task_name.encode(),
            },
            delay=None if delay is None else float(delay),
        )

    async def listen(self) -> AsyncGenerator[AckableMessage, None]:
        """Tasks, as taskiq can take them. Those that are finished later may be acknowledged later,
        when nobody listens any more: so the subscription ends with the broker, not here."""
        if self._subscription is None:
            self._subscription = await self._client.subscribe(
                self._topic,
                index=self._index,
                mode="shared",
                lease=self._lease,
                max_deliveries=self._max_deliveries,
                prefetch=self._prefetch,
            )
            self._keeping = asyncio.create_task(self._keep())
        # What waits in the subscription keeps its lease, and counts as delivered to nobody if the
        # worker ends or dies. So nothing is taken before taskiq wants it.
        async for message in self._subscription:
            self._held[message.partition, message.offset] = message
            yield AckableMessage(data=message.value, ack=partial(self._ack, message))

    async def _ack(self, message: Any) -> None:
        self._let_go(message)
        await message.ack()

    def _let_go(self, message: Any) -> None:
        where = (message.partition, message.offset)
        if self._held.get(where) is message:  # else its lease was lost, and it was delivered anew
            del self._held[where]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease / 3)
            for message in list(self._held.values()):
                with suppress(HocketError):  # the connection is away; the client comes back
                    await message.extend()
