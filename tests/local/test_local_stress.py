"""Seeded stress: hundreds of threads, random disconnections from both ends, exact accounting.

The seed stands in the test's name. A failure is replayed with `HOCKET_SEED=<seed>`; the choices
are then the same, though the interleaving of threads is not. HOCKET_STRESS=long runs many seeds.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from hocket.errors import Closed, Disconnected, PortInUse, Timeout, UnknownBroker
from hocket.local import Broker, BrokerManager, Channel
from tests.support.threads import LONG, Running, noise, run, until

PATIENCE = 60  # seconds for everything a stress test waits for


def seeds() -> list[int]:
    if "HOCKET_SEED" in os.environ:
        return [int(os.environ["HOCKET_SEED"])]
    fresh = random.SystemRandom().randrange(1 << 32)
    return [*range(20), fresh] if LONG else [1, fresh]


pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(PATIENCE + 20),
    pytest.mark.parametrize("seed", seeds(), ids=lambda seed: f"HOCKET_SEED={seed}"),
]


@pytest.fixture(autouse=True)
def hasty_switching() -> Iterator[None]:
    """Threads change places every 50 us instead of every 5 ms, so that races show."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def some_bytes(chance: random.Random, buffer_bytes: int) -> bytes:
    """Enough to go round the buffer many times, and no more wake-ups than a short run affords."""
    turns = chance.randrange(1, 2000 if LONG else 200)
    return noise(turns * min(buffer_bytes, 50), chance.random())


def run_all(calls: list[Callable[[], Any]]) -> list[Any]:
    """Every call on a thread of its own; their results in order."""
    with ExitStack() as stack:
        running = [stack.enter_context(Running(call)) for call in calls]
        return [thread.result(PATIENCE) for thread in running]


# --- channels -----------------------------------------------------------------------------------


class Side:
    """One end of a channel with a writer and a reader at work, and the account of both."""

    def __init__(self, end: Channel, chance: random.Random, outgoing: bytes) -> None:
        self.end = end
        self.outgoing = outgoing
        self.chance = chance
        self.chunk = chance.choice([1, 7, 64, 1000, 5000])
        self.accepted = 0  # bytes of `outgoing` that a write took
        self.received = bytearray()
        self.left = False  # whether anybody disconnected this end
        self.leave_after_writing = False
        self.leave_after_reading: int | None = None
        self.leave_after_seconds = 0.0

    def leave(self) -> None:
        self.left = True
        self.end.disconnect()

    def write(self) -> None:
        chance = random.Random(self.chance.random())
        try:
            while self.accepted < len(self.outgoing):
                length = min(chance.randint(1, self.chunk), len(self.outgoing) - self.accepted)
                piece = memoryview(self.outgoing)[self.accepted : self.accepted + length]
                if chance.random() < 0.3:
                    self.write_all(piece, chance)
                else:
                    self.accepted += self.end.write(piece)
        except Disconnected as cut:
            self.accepted += cut.written
        else:
            if self.leave_after_writing:
                self.leave()

    def write_all(self, piece: memoryview, chance: random.Random) -> None:
        try:
            self.end.write_all(piece, timeout=chance.choice([None, 0, 0.001]))
            self.accepted += len(piece)
        except Timeout as late:
            self.accepted += late.written

    def read(self) -> None:
        chance = random.Random(self.chance.random())
        target = bytearray(self.chunk)
        try:
            while True:
                wanted = self.chunk
                if self.leave_after_reading is not None:
                    wanted = self.leave_after_reading - len(self.received)
                if wanted <= 0:
                    return self.leave()
                self.read_some(target, chance.randint(1, min(wanted, self.chunk)), chance)
        except Disconnected as cut:
            self.received += cut.partial

    def read_some(self, target: bytearray, length: int, chance: random.Random) -> None:
        timeout = chance.choice([None, 0.001])
        try:
            if chance.random() < 0.3:
                self.received += self.end.read_exactly(length, timeout=timeout)
            else:
                count = self.end.read(target, 0, length, timeout=timeout)
                self.received += target[:count]
        except Timeout as late:
            self.received += late.partial

    def leave_from_outside(self) -> None:
        time.sleep(self.leave_after_seconds)
        self.leave()


def somebody_leaves(sides: list[Side], chance: random.Random, number: int) -> list[Any]:
    """Make at least one of the two leave in one of the possible ways; extra calls to run."""
    outside = []
    leavers = [sides, sides[:1], sides[1:]][number % 3]
    for position, side in enumerate(leavers):
        partner = sides[1 - sides.index(side)]
        how = (number // 3 + position) % 3
        if how == 0:
            side.leave_after_writing = True
            if len(leavers) == 1:
                partner.leave_after_writing = False
        elif how == 1:
            side.leave_after_reading = chance.randrange(len(partner.outgoing))
        else:
            side.leave_after_seconds = chance.uniform(0, 0.5)  # at any moment of the run
            outside.append(side.leave_from_outside)
    return outside


def test_random_disconnections_from_both_ends_lose_and_invent_nothing(seed: int):
    chance = random.Random(f"{seed}/channels")
    pairs: list[list[Side]] = []
    calls: list[Callable[[], Any]] = []
    for number in range(60):
        buffer_bytes = chance.choice([1, 2, 5, 64, 1000, 1 << 16])
        ends = Channel.pair(buffer_bytes)
        sides = []
        for letter, end in zip("ab", ends, strict=True):
            outgoing = some_bytes(chance, buffer_bytes)
            sides.append(Side(end, random.Random(f"{seed}/{number}/{letter}"), outgoing))
        calls += somebody_leaves(sides, chance, number)
        calls += [call for side in sides for call in (side.write, side.read)]
        pairs.append(sides)
    chance.shuffle(calls)
    assert len(calls) > 240
    run_all(calls)

    seen: Counter[str] = Counter()
    for a, b in pairs:
        assert a.end.disconnected
        assert b.end.disconnected
        for writer, reader in ((a, b), (b, a)):
            count = len(reader.received)
            assert reader.received == writer.outgoing[:count]
            assert count <= writer.accepted
            if not reader.left:  # then it read on to the end, and everything taken arrived
                assert count == writer.accepted
                complete = writer.accepted == len(writer.outgoing)
                seen["whole" if complete else "writer cut its own stream"] += 1
            else:
                seen["reader left"] += 1
    assert set(seen) == {"whole", "writer cut its own stream", "reader left"}, seen


def test_hundreds_of_writers_that_leave_gracefully_lose_nothing(seed: int):
    chance = random.Random(f"{seed}/graceful")
    reads: list[Callable[[], Any]] = []
    writes: list[Callable[[], Any]] = []
    expected: list[bytes] = []
    for _ in range(100):
        buffer_bytes = chance.choice([1, 3, 100, 4096])
        a, b = Channel.pair(buffer_bytes)
        data = some_bytes(chance, buffer_bytes)
        expected.append(data)

        def write(end: Channel = a, data: bytes = data) -> None:
            with end:
                end.write_all(data)

        def read(end: Channel = b) -> bytes:
            out, target = bytearray(), bytearray(333)
            try:
                while True:
                    count = end.read(target)
                    out += target[:count]
            except Disconnected:
                return bytes(out)

        writes.append(write)
        reads.append(read)
    assert run_all(reads + writes)[:100] == expected


def test_threads_write_and_coroutines_that_keep_giving_up_read_everything(seed: int):
    chance = random.Random(f"{seed}/coroutines")
    sizes = [chance.choice([1, 10, 1000]) for _ in range(60)]
    pairs = [Channel.pair(size) for size in sizes]
    expected = [some_bytes(chance, size) for size in sizes]
    gave_up: Counter[str] = Counter()

    async def read(end: Channel, chance: random.Random) -> bytes:
        out = bytearray()
        while True:
            target = bytearray(chance.randint(1, 500))
            reading = asyncio.ensure_future(
                end.read_async(target, timeout=chance.choice([None, 0, 0.0005]))
            )
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                reading.cancel()
            try:
                count = await reading
            except (asyncio.CancelledError, Timeout) as error:
                gave_up[type(error).__name__] += 1
                continue
            except Disconnected:
                return bytes(out)
            out += target[:count]

    async def read_all() -> list[bytes]:
        return await asyncio.gather(
            *(read(b, random.Random(f"{seed}/{n}/do")) for n, (_, b) in enumerate(pairs))
        )

    def write(end: Channel, data: bytes) -> None:
        with end:
            end.write_all(data)

    with ExitStack() as stack:
        for (a, _), data in zip(pairs, expected, strict=True):
            stack.enter_context(Running(write, a, data))
        assert run(read_all(), PATIENCE) == expected
    # A third of all reads is cancelled. Timeouts come too, unless every writer is ahead.
    assert gave_up["CancelledError"]


# --- rendezvous ---------------------------------------------------------------------------------


class Edge:
    """How patient and how late two sides are who now meet and now miss each other.

    That depends on how fast the machine wakes threads, so no numbers are at the edge on every
    machine: after a meeting they come later and are less patient, after a miss the other way round.
    Likewise what a round costs; so the rounds end when their time is up too, though not before both
    outcomes were seen.
    """

    def __init__(self, rounds_max: int, seconds_max: float) -> None:
        self.patience = self.lateness = 1e-4  # at most, in seconds
        self.met: list[Channel | None] = []  # what became of each round, as one side saw it
        self.over = False
        self._rounds_max = rounds_max
        self._deadline = time.monotonic() + seconds_max

    def next_round(self) -> None:
        """Neither side is on its way: the barrier calls this before it lets them go."""
        if self.met:
            # Balanced where one round in three is a meeting: half of the calls do not wait at all.
            factor = 1.1 if self.met[-1] is None else 1.1**-2
            self.patience = min(max(self.patience * factor, 1e-6), 0.1)
            self.lateness = min(max(self.lateness / factor, 1e-6), 0.1)
        enough = len(self.met) >= self._rounds_max or time.monotonic() >= self._deadline
        self.over = enough and None in self.met and any(self.met)


def test_a_rendezvous_at_the_edge_of_its_timeout_happens_for_both_or_for_neither(seed: int):
    manager = BrokerManager()
    edge = Edge(rounds_max=20_000, seconds_max=40) if LONG else Edge(1500, seconds_max=5)
    start = threading.Barrier(2, action=edge.next_round)

    def meet(side: str, met: list[Channel | None], call: Callable[[float], Channel]) -> None:
        chance = random.Random(f"{seed}/edge/{side}")
        while True:
            start.wait(PATIENCE)
            if edge.over:
                return
            time.sleep(chance.uniform(0, edge.lateness))
            try:
                met.append(call(chance.choice([0, chance.uniform(0, edge.patience)])))
            except Timeout:
                met.append(None)

    accepted, connected = edge.met, list[Channel | None]()
    with Broker("server", manager) as server, Broker("client", manager) as client:
        run_all(
            [
                lambda: meet("accept", accepted, lambda timeout: server.accept(1, timeout)),
                lambda: meet(
                    "connect", connected, lambda timeout: client.connect("server", 1, timeout)
                ),
            ]
        )
        assert server.rendezvous == []
    assert [end is None for end in accepted] == [end is None for end in connected]
    for number, (near, far) in enumerate(zip(accepted, connected, strict=True)):
        if near is not None and far is not None:
            with near:
                near.write_all(b"%08d" % number)
            assert far.read_exactly(8, timeout=5) == b"%08d" % number


def test_hundreds_of_clients_each_reach_exactly_one_acceptor(seed: int):
    chance = random.Random(f"{seed}/clients")
    manager = BrokerManager()
    served: list[tuple[str, int, bytes]] = []  # list.append is atomic
    places = [(name, port) for name in ("s0", "s1", "s2", "s3") for port in (1, 2, 3)]
    clients = [(b"%08d" % n, chance.choice(places), random.Random(n)) for n in range(250)]

    def serve(broker: Broker, port: int) -> None:
        while True:
            try:
                channel = broker.accept(port)
            except Closed:
                return
            with channel:
                who = channel.read_exactly(8, timeout=PATIENCE)  # half a match would be stuck here
                served.append((broker.name, port, who))
                channel.write_all(who[::-1], timeout=PATIENCE)

    def ask(broker: Broker, who: bytes, place: tuple[str, int], chance: random.Random) -> bytes:
        while True:
            try:
                channel = broker.connect(*place, timeout=chance.choice([None, 0, 0.001, 0.02]))
            except Timeout:
                continue
            with channel:
                channel.write_all(who, timeout=PATIENCE)
                return channel.read_exactly(8, timeout=PATIENCE)

    with ExitStack() as acceptors, ExitStack() as brokers:
        by_name = {
            name: brokers.enter_context(Broker(name, manager, buffer_bytes=64))
            for name in ("s0", "s1", "s2", "s3", "c0", "c1", "c2")
        }
        for name, port in places:
            acceptors.enter_context(Running(serve, by_name[name], port))
        answers = run_all(
            [
                lambda n=n, who=who, place=place, chance=chance: ask(
                    by_name[f"c{n % 3}"], who, place, chance
                )
                for n, (who, place, chance) in enumerate(clients)
            ]
        )
    assert answers == [who[::-1] for who, _, _ in clients]
    assert sorted(served) == sorted((*place, who) for who, place, _ in clients)
    assert manager.brokers() == []


def test_brokers_that_close_and_come_back_leave_no_one_waiting(seed: int):
    chance = random.Random(f"{seed}/close")
    manager = BrokerManager()
    stopped, is_open = threading.Event(), threading.Event()
    said: list[bytes] = []
    heard: list[bytes] = []
    refusals: Counter[str] = Counter()

    def work(number: int) -> None:
        chance = random.Random(f"{seed}/close/{number}")
        while not stopped.is_set():
            port = chance.randrange(3)
            try:
                if number % 2:
                    with manager.accept("server", port) as channel:
                        message = b"%08d" % chance.randrange(10**8)
                        said.append(message)
                        channel.write_all(message, timeout=PATIENCE)
                else:
                    with manager.connect("client", "server", port) as channel:
                        heard.append(channel.read_exactly(8, timeout=PATIENCE))
            except (Closed, UnknownBroker, PortInUse) as error:
                refusals[type(error).__name__] += 1
                is_open.wait(PATIENCE)
                time.sleep(0.0005)  # sixty threads that only yield keep the GIL among themselves

    with ExitStack() as workers, Broker("client", manager, buffer_bytes=64) as client:
        for number in range(60):
            workers.enter_context(Running(work, number))
        for _ in range(500 if LONG else 60):
            with Broker("server", manager, buffer_bytes=64) as server:
                is_open.set()
                enough = len(heard) + chance.randrange(20)
                until(lambda enough=enough: len(heard) >= enough, PATIENCE)
                is_open.clear()
            assert server.rendezvous == []
        stopped.set()
        is_open.set()
        client.close()
    assert {"Closed", "UnknownBroker"} <= set(refusals)
    assert Counter(said) == Counter(heard)
    assert said
