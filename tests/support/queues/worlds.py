"""A world: one implementation of the queue brokers, with its pumps, its manager and its threads.

Everything made through a world ends with it, and an error that a pump reported and the test did
not ask for fails the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hocket.local import Broker, BrokerManager, EventPump, MixedQueueBroker, QueueBroker
from tests.support.queues.listeners import Accepts, Connects, History
from tests.support.threads import Running, until, wait_parked

KINDS = {"full-event": QueueBroker, "mixed": MixedQueueBroker}
PORT = 80
MEBIBYTE = 1 << 20


_of_others: set[threading.Thread] = set()  # what ran before the newest world was made


class World:
    def __init__(self, kind: str, pumps: int = 2, threads: int = 1) -> None:
        _of_others.clear()
        _of_others.update(threading.enumerate())
        self.kind = kind
        self.threads = threads  # of each pump
        self.manager = BrokerManager()
        self.errors: list[BaseException] = []  # reported by any pump; see `take_errors`
        self._brokers: list[Any] = []
        self._pumps: list[EventPump] = []
        self._running: list[Running] = []
        self.client_pump = self.pump("client-pump")
        self.server_pump = self.pump("server-pump") if pumps == 2 else self.client_pump

    def __enter__(self) -> World:
        return self

    def __exit__(self, exc_type: object, *_: object) -> None:
        for broker in self._brokers:
            broker.close()
        for pump in self._pumps:
            pump.stop(drain=True)
        for running in self._running:
            running.__exit__(None, None, None)
        if exc_type is None and self.errors:
            raise AssertionError(f"reported by a pump: {self.errors!r}") from self.errors[0]

    @property
    def mixed(self) -> bool:
        return self.kind == "mixed"

    def find(self, name: str) -> Any:
        """The broker of this name, None if there is none."""
        return self.manager.find(name)

    def known(self) -> list[Any]:
        """All brokers that are registered."""
        return self.manager.brokers()

    @property
    def shares_objects(self) -> bool:
        """Whether the receiver gets the very object that was sent."""
        return not self.mixed

    def pump(self, name: str, *, start: bool = True) -> EventPump:
        pump = EventPump(name, self.threads)
        pump.on_error = self.errors.append
        self._pumps.append(pump)
        if start:
            pump.start()
        return pump

    def broker(
        self,
        name: str,
        pump: EventPump | None = None,
        manager: BrokerManager | None = None,
        kind: str = "",
        **limits: Any,
    ) -> Any:
        made = KINDS[kind or self.kind]
        broker = made(name, pump or self.client_pump, manager or self.manager, **limits)
        self._brokers.append(broker)
        return broker

    def thread_broker(self, name: Any, **options: Any) -> Any:
        """A broker of level 1, where the client's side is."""
        broker = Broker(name, self.manager, **options)
        self._brokers.append(broker)
        return broker

    def brokers(self, **limits: Any) -> tuple[Any, Any]:
        """A broker named client and one named server, each on its own pump if there are two."""
        client = self.broker("client", self.client_pump, **limits)
        return client, self.broker("server", self.server_pump, **limits)

    def connected(
        self, client: Any, server: Any, port: int = PORT, accepts: Accepts | None = None
    ) -> tuple[Any, Any]:
        """A new queue between two brokers: the client's end and the server's end."""
        accepts = accepts or Accepts()
        connects = Connects()
        assert server.bind(port, accepts) is True
        assert client.connect(server.name, port, connects) is True
        until(lambda: connects.answers and accepts.queues)
        assert server.unbind(port) is True
        (mine,) = connects.queues
        (theirs,) = accepts.queues
        return mine, theirs

    def pair(self, **limits: Any) -> tuple[Any, Any]:
        """The two ends of a new queue, with no listeners yet."""
        return self.connected(*self.brokers(**limits))

    def heard_pair(self, **limits: Any) -> tuple[Any, Any, History, History]:
        """The two ends of a new queue, and the history that each tells."""
        mine, theirs = self.pair(**limits)
        my_history, their_history = History(), History()
        mine.set_listener(my_history)
        theirs.set_listener(their_history)
        return mine, theirs, my_history, their_history

    def thread(self, work: Callable[..., Any], *args: Any) -> Running:
        """A thread that ends with the world; a failure nobody asked for fails the test."""
        running = Running(work, *args).__enter__()
        self._running.append(running)
        return running

    def on_pump(self, pump: EventPump, work: Callable[[], Any]) -> Any:
        """Runs `work` on the pump's thread and gives back what it returns or raises."""
        outcome: list[Any] = []
        failure: list[BaseException] = []
        done = threading.Event()

        def task() -> None:
            try:
                outcome.append(work())
            except BaseException as exc:
                failure.append(exc)
            done.set()

        pump.post(task)
        assert done.wait(20), "the pump did not come to the task"
        if failure:
            raise failure[0]
        return outcome[0]

    def listening_threads(self, pump: EventPump) -> set[threading.Thread]:
        """Those that tell the listeners of queues: the pump's own one, or its further ones."""
        if pump._crew is not None:
            return set(pump._crew._threads)
        return {self.on_pump(pump, threading.current_thread)}

    def settle(self) -> None:
        """Lets both pumps run dry, so that "nothing more came" means something."""
        for _ in range(3):
            for pump in (self.client_pump, self.server_pump):
                self.on_pump(pump, lambda: None)
                until(lambda pump=pump: crew_rests(pump))

    def take_errors(self, count: int) -> list[BaseException]:
        """Waits for exactly so many reported errors and forgets them."""
        until(lambda: len(self.errors) >= count)
        self.settle()
        taken, self.errors[:] = list(self.errors), []
        assert len(taken) == count
        return taken


def crew_rests(pump: EventPump) -> bool:
    """Whether nothing is left to do for the further threads of a pump, and all of them sleep."""
    crew = pump._crew
    return crew is None or (not crew.strands.events and len(crew.strands.takers) == len(crew))


def fill(queue: Any, make: Callable[[int], Any], most: int) -> list[Any]:
    """Sends until the queue takes no more, in any of its stages; what it took, in order.

    After a refusal a mixed queue may still move messages on, so the refusal counts only when
    every thread of the library sleeps.
    """
    taken: list[Any] = []
    while len(taken) <= most:
        if not queue.send(make(len(taken))):
            wait_until_all_sleep()
            if not queue.send(make(len(taken))):
                return taken
        taken.append(make(len(taken)))
    raise AssertionError(f"the queue took {len(taken)} messages and is still not full")


def wait_until_all_sleep() -> None:
    for _ in range(2):  # one that slept when we looked may have been woken by one looked at later
        for thread in threading.enumerate():
            if thread in _of_others or thread.name.startswith("test:"):
                continue
            try:
                wait_parked(thread)
            except AssertionError:  # it ended instead, which is as good
                if thread.is_alive():
                    raise


def capacity(world: World, messages_max: int) -> int:
    """The most that may be in transit one way, for messages of a mebibyte.

    Full-event: the limit, and one that slips in. Mixed: that at each end, and besides what the
    channel (1 MiB) and the two threads have in hand.
    """
    return messages_max + 1 if not world.mixed else 2 * (messages_max + 1) + 4


def mebibyte(number: int) -> bytes:
    return b"%08d" % number + bytes(MEBIBYTE - 8)


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def drain(queue: Any, count: int) -> list[Any]:
    """Takes so many messages with `receive_wait`."""
    return [queue.receive_wait(timeout=10) for _ in range(count)]
