"""Carries the messages of a subscription to its sink, and the client's settlements back.

At most `window_bytes` are on their way to the sink without an answer (a batch that is larger goes
alone), and as many wait here. A sink that does not answer gets no more than that.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client_core.sharing.verdict import Verdict
from hocket.errors import Closed, HocketError
from hocket.rpc.background import Background
from hocket.rpc.batches import portions_out, write_encoded, write_records
from hocket.rpc.failure import code_of, forget_trace, reason_of
from hocket.rpc.settling import settling

log = logging.getLogger("hocket.rpc")


class Delivery:
    def __init__(
        self,
        subscription: AsyncSubscription,
        sink: Any,
        background: Background,
        *,
        encoded: bool,
        window_bytes: int,
    ) -> None:
        self._subscription = subscription
        self._sink = sink
        self._background = background
        self._encoded = encoded
        self._window_bytes = window_bytes
        self._unanswered_bytes = 0
        self._unanswered: set[asyncio.Task[None]] = set()
        self._answered = asyncio.Event()
        self._closed = False
        self._settling = settling(subscription)
        self._carrying = background.do(self._carry)

    # --- to the sink -----------------------------------------------------------------------------

    async def _carry(self) -> None:
        try:
            while True:
                batch = await self._subscription.receive_batch()
                self._settling.delivered(batch)
                if self._encoded:
                    request = self._sink.deliver_request()
                    size = write_encoded(request.init("batch"), batch)
                    await self._deliver(request, size)
                    continue
                for run, size in portions_out(batch):
                    request = self._sink.deliver_request()
                    write_records(request.init("batch"), run)
                    await self._deliver(request, size)
        except Closed:
            return  # the client closed the subscription
        except HocketError as error:
            forget_trace(error)
            await self._say_ended(error)
        except Exception as error:
            log.exception("%r failed unexpectedly", self)
            forget_trace(error)
            await self._say_ended(HocketError("the broker has failed; its log says how"))
            self._background.do(self.close)

    def __repr__(self) -> str:
        return f"<Delivery of {self._subscription!r}>"

    async def _deliver(self, request: Any, size: int) -> None:
        while self._unanswered_bytes and self._unanswered_bytes + size > self._window_bytes:
            self._answered.clear()
            await self._answered.wait()
        self._unanswered_bytes += size
        task = asyncio.get_running_loop().create_task(self._answer(request.send(), size))
        self._unanswered.add(task)
        task.add_done_callback(self._unanswered.discard)

    async def _answer(self, promise: Any, size: int) -> None:
        try:
            await promise
        except Exception as error:  # noqa: BLE001 - whatever it is, the sink raised it
            if not self._closed:
                log.info("the sink of %r failed: %s", self._subscription, reason_of(error))
                self._background.do(self.close)
        self._unanswered_bytes -= size
        self._answered.set()

    async def _say_ended(self, error: HocketError) -> None:
        try:
            await self._sink.ended(code=code_of(error), message=str(error))
        except Exception as failed:  # noqa: BLE001 - the sink raised it, and this is the end anyway
            log.info("the sink of %r is gone: %s", self._subscription, reason_of(failed))

    # --- from the client -------------------------------------------------------------------------

    def settle(self, verdict: Verdict, partition: int, start: int, end: int) -> None:
        self._settling.settle(verdict, partition, start, end)

    async def commit(self) -> None:
        await self._subscription.commit()

    async def close(self) -> None:
        """Deliver nothing more. When this returns, what was acknowledged is durable."""
        if self._closed:
            return
        self._closed = True
        carrying, self._carrying = self._carrying, None  # the task refers to self: break the cycle
        if carrying is not None:
            carrying.cancel()
        for task in self._unanswered:
            task.cancel()
        await self._subscription.close()

    async def end(self, error: HocketError) -> None:
        """Close, and tell the sink why: the broker goes down."""
        if not self._closed:
            await self.close()
            await self._say_ended(error)
