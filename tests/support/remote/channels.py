"""Channels and thread brokers whose two sides are in two processes, for the suites of level 1.

The suites say what holds at once within a process: a byte that was written can be read. Between
processes it holds as soon as it has come. So each end here first waits until nothing is on its way,
unless another call is going on at the same channel: then time passes anyway.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.support.remote.far import Far
from tests.support.remote.served import NodeAt
from tests.support.remote.worlds import Place
from tests.support.threads import Running, until


class Sides:
    """The client's side and the server's: with two processes the client is in that of the test,
    with three in one of its own. `others` is in the test's process, for everybody else."""

    def __init__(self, node: NodeAt, fars: list[Far], count: int) -> None:
        self._fars = fars[: count - 1]
        given = (node.way, node.address, node._certificates)
        for far in self._fars:
            far.begin()
        self.others = Place(*given)
        there = [far.call(Place, *given) for far in self._fars]
        self.here, self.there = [self.others, *there][-2:]
        self._places = [self.others, *there]
        self._numbers = itertools.count()
        self._opened: list[Any] = []

    def pair(self, buffer_bytes: Any = 1 << 20) -> tuple[End, End]:
        """`Channel.pair`, with the first end here and the second one there.

        What is on its way lies in the buffers of both brokers: together they hold `buffer_bytes`.
        """
        number = next(self._numbers)
        halves = [buffer_bytes, buffer_bytes]
        if type(buffer_bytes) is int and buffer_bytes > 1:
            halves = [buffer_bytes - buffer_bytes // 2, buffer_bytes // 2]
        with (
            self.here.thread_broker(f"here {number}", {"buffer_bytes": halves[0]}) as here,
            self.there.thread_broker(f"there {number}", {"buffer_bytes": halves[1]}) as there,
            Running(there.accept, 1, timeout=30) as accepting,
        ):
            mine = here.connect(there.name, 1, timeout=30)
            self._opened += [mine, theirs := accepting.result()]
        transit = Transit(self)
        return End(mine, transit), End(theirs, transit)

    def until_quiet(self) -> None:
        seen: list[Any] = []

        def still() -> bool:
            seen.append([place.traffic() for place in self._places])
            return len(seen) > 1 and seen[-1] == seen[-2]

        until(still)

    def close(self, *, verify: bool) -> None:
        for each in self._opened:
            each.disconnect()
        for place in self._places:
            place.close()
        for far in self._fars:
            far.end(verify=verify)


class Transit:
    """What may be on its way between the two ends of a channel."""

    def __init__(self, sides: Sides) -> None:
        self._sides = sides
        self._lock = threading.Lock()
        self._calls = 0  # that are going on
        self._stirred = True  # something may be on its way

    @contextmanager
    def call(self) -> Iterator[None]:
        with self._lock:
            self._calls += 1
            settles = self._calls == 1 and self._stirred
        if settles:
            self._sides.until_quiet()
        try:
            yield
        finally:
            with self._lock:
                self._calls -= 1
                self._stirred = True


class End:
    """One end of a channel, wherever it is."""

    def __init__(self, channel: Any, transit: Transit) -> None:
        self._channel = channel
        self._transit = transit

    @property
    def disconnected(self) -> bool:
        with self._transit.call():
            return bool(self._channel.disconnected)

    def read(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return self._channel.read(*given, **named)

    def write(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return self._channel.write(*given, **named)

    def read_exactly(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return self._channel.read_exactly(*given, **named)

    def write_all(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return self._channel.write_all(*given, **named)

    async def read_async(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return await self._channel.read_async(*given, **named)

    async def write_async(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return await self._channel.write_async(*given, **named)

    async def read_exactly_async(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return await self._channel.read_exactly_async(*given, **named)

    async def write_all_async(self, *given: Any, **named: Any) -> Any:
        with self._transit.call():
            return await self._channel.write_all_async(*given, **named)

    def disconnect(self) -> None:
        with self._transit.call():
            self._channel.disconnect()

    def __enter__(self) -> End:
        return self

    def __exit__(self, *_error: object) -> None:
        self.disconnect()

    def __repr__(self) -> str:
        return repr(self._channel)
