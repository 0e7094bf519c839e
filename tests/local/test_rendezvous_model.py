"""State machine: the rendezvous of several brokers against one list per broker.

The asynchronous faces run on a private event loop, so one thread drives many waiting sides and
knows, after each step, exactly who must have met whom.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from hocket.errors import Closed, PortInUse, Timeout, UnknownBroker
from hocket.local import Broker, BrokerManager, Channel
from tests.support.threads import settle

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
ports = st.integers(min_value=0, max_value=2)


@dataclass(eq=False)
class Waiting:
    """One side that came first: the model of a Rendezvous."""

    port: int
    side: str
    who: str
    task: asyncio.Task[Channel]


class RendezvousAgainstLists(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.manager = BrokerManager()
        self.brokers: dict[str, Broker] = {}  # those that are open
        self.closed: list[Broker] = []
        self.lists: dict[str, list[Waiting]] = {name: [] for name in NAMES}
        self.order: list[str] = []  # of registration
        self.matches = 0
        for name in NAMES:
            self.open(name)

    def open(self, name: str) -> None:
        self.brokers[name] = Broker(name, self.manager)
        self.order.append(name)

    # --- running the loop ---

    def start_task(self, call: Any) -> asyncio.Task[Channel]:
        async def begin() -> asyncio.Task[Channel]:
            task = asyncio.ensure_future(call)
            await settle()
            return task

        return self.loop.run_until_complete(begin())

    def outcome(self, task: asyncio.Task[Channel]) -> Channel | BaseException:
        async def wait() -> Any:
            async with asyncio.timeout(10):
                return (await asyncio.gather(task, return_exceptions=True))[0]

        return self.loop.run_until_complete(wait())

    def assert_met(self, near: asyncio.Task[Channel], far: asyncio.Task[Channel]) -> None:
        ends = self.outcome(near), self.outcome(far)
        self.matches += 1
        token = b"match %d" % self.matches
        for writer, reader in (ends, ends[::-1]):
            assert isinstance(writer, Channel), writer
            assert isinstance(reader, Channel), reader
            writer.write_all(token, timeout=5)
            assert reader.read_exactly(len(token), timeout=5) == token

    def oldest(self, at: str, port: int, side: str) -> Waiting | None:
        return next((w for w in self.lists[at] if (w.port, w.side) == (port, side)), None)

    def arrive(self, who: str, side: str, at: str, port: int, timeout: float | None) -> None:
        """Either side comes to `at`: it meets the oldest of the other side there, or waits."""
        broker = self.brokers[who]
        if side == "accept":
            task = self.start_task(broker.accept_async(port, timeout=timeout))
        else:
            task = self.start_task(broker.connect_async(at, port, timeout=timeout))
        partner = self.oldest(at, port, "connect" if side == "accept" else "accept")
        if partner is not None:
            self.lists[at].remove(partner)
            self.assert_met(task, partner.task)
        elif side == "accept" and self.oldest(at, port, "accept"):
            assert type(self.outcome(task)) is PortInUse
        elif timeout == 0:
            assert type(self.outcome(task)) is Timeout
        else:
            assert not task.done(), self.outcome(task)
            self.lists[at].append(Waiting(port, side, who, task))

    # --- the rules ---

    @rule(who=names, port=ports, timeout=st.sampled_from([None, 0]))
    def accept(self, who: str, port: int, timeout: float | None) -> None:
        if who in self.brokers:
            self.arrive(who, "accept", who, port, timeout)

    @rule(who=names, to=names, port=ports, timeout=st.sampled_from([None, None, 0]))
    def connect(self, who: str, to: str, port: int, timeout: float | None) -> None:
        if who not in self.brokers:
            return
        if to in self.brokers:
            self.arrive(who, "connect", to, port, timeout)
        else:
            task = self.start_task(self.brokers[who].connect_async(to, port, timeout=timeout))
            assert type(self.outcome(task)) is UnknownBroker

    @precondition(lambda self: any(self.lists.values()))
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        everyone = [(name, w) for name in NAMES for w in self.lists[name]]
        at, waiting = everyone[data.draw(st.integers(0, len(everyone) - 1), label="which")]
        waiting.task.cancel()
        assert isinstance(self.outcome(waiting.task), asyncio.CancelledError)
        self.lists[at].remove(waiting)

    @rule(name=names)
    def close(self, name: str) -> None:
        broker = self.brokers.pop(name, None)
        if broker is None:
            return
        broker.close()
        self.order.remove(name)
        self.closed.append(broker)
        for at in NAMES:
            woken = [w for w in self.lists[at] if name in (at, w.who)]
            self.lists[at] = [w for w in self.lists[at] if w not in woken]
            assert [type(self.outcome(w.task)) for w in woken] == [Closed] * len(woken)

    @rule(name=names)
    def open_again(self, name: str) -> None:
        if name not in self.brokers:
            self.open(name)

    @precondition(lambda self: bool(self.closed))
    @rule(port=ports, to=names)
    def use_a_closed_broker(self, port: int, to: str) -> None:
        broker = self.closed[-1]
        broker.close()
        with pytest.raises(Closed):
            broker.accept(port, timeout=0)
        if to in self.brokers:
            with pytest.raises(Closed):
                broker.connect(to, port, timeout=0)

    @invariant()
    def lists_agree(self) -> None:
        assert [broker.name for broker in self.manager.brokers()] == self.order
        for name, broker in self.brokers.items():
            real = [(r.port, r.side, r.broker.name) for r in broker.rendezvous]
            assert real == [(w.port, w.side, w.who) for w in self.lists[name]]
            assert not any(w.task.done() for w in self.lists[name])
        assert all(broker.rendezvous == [] for broker in self.closed)

    def teardown(self) -> None:
        for name in list(self.brokers):
            self.close(name)
        assert self.manager.brokers() == []
        assert asyncio.all_tasks(self.loop) == set()
        self.loop.close()


TestRendezvousAgainstLists = RendezvousAgainstLists.TestCase
TestRendezvousAgainstLists.settings = settings(stateful_step_count=40)
