"""A node over a simulated disk, with people at it who speak frames: one step at a time.

What the disk and the hashing threads have to do is done when the test says so (`settle`), so that
a test can stand between a change and its commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hocket import frames
from hocket.core.session.session import TRUSTED, Caller
from hocket.errors import NotAllowed
from hocket.frames import Frame
from hocket.model import Grant, TopicConfig
from hocket.node.node import Node
from hocket.node.settings import Argon2Settings, NodeSettings
from hocket.sim.clock import SimClock
from hocket.sim.disk import SimDisk
from hocket.sim.executor import SimExecutor
from hocket.sim.scheduler import Scheduler
from hocket.wire import batch as batches

CHEAP = Argon2Settings(time_cost=1, memory_cost=8, parallelism=1)


class Person:
    """Whoever is at the other end of a connection, and what he was told."""

    def __init__(self, place: GuardedNode, connection: int) -> None:
        self.place = place
        self.connection = connection
        self.told: list[Frame] = []
        self.hung_up = False
        self._last_request = 0

    def say(self, kind: type, *fields: Any, payload: bytes = b"", **more: Any) -> int:
        """Without waiting; the number of the request."""
        self._last_request += 1
        frame = kind(self._last_request, *fields, **more)
        self.place.node.received(self.connection, frame, memoryview(payload))
        self.place.node.end_turn()
        return self._last_request

    def ask(self, kind: type, *fields: Any, payload: bytes = b"", **more: Any) -> Frame:
        request = self.say(kind, *fields, payload=payload, **more)
        self.place.settle()
        return self.answer(request)

    def answer(self, request: int) -> Frame:
        (answer,) = [frame for frame in self.told if frame.request == request]
        return answer

    def heard(self, kind: type) -> list[Any]:
        return [frame for frame in self.told if isinstance(frame, kind)]


class GuardedNode:
    """Is the Network of its node, too."""

    def __init__(self, seed: int = 0) -> None:
        self.scheduler = Scheduler(f"guarded {seed}")
        self.clock = SimClock(self.scheduler)
        self.disk = SimDisk()
        self._entropy = self.scheduler.random("entropy")
        self.people: dict[int, Person] = {}
        self._connections = 0
        self.start()

    def start(self) -> None:
        self.executor = SimExecutor(self.scheduler)
        self.node = Node(
            NodeSettings(name="node", argon2=CHEAP),
            disk=self.disk,
            executor=self.executor,
            clock=self.clock,
            network=self,
            entropy=self._entropy.randbytes,
        )

    def crash(self) -> None:
        self.executor.crash()
        self.disk.crash(self.scheduler.random("disk"))
        self.people.clear()
        self.start()

    def settle(self) -> None:
        """Everything that is under way comes to its end."""
        self.node.end_turn()
        while not self.executor.idle:
            self.scheduler.advance()
            self.node.end_turn()

    def pass_time(self, seconds: float) -> None:
        self.scheduler.run_until(self.scheduler.now_us() + round(seconds * 1_000_000))

    # --- people ------------------------------------------------------------------------------

    def connect(self, address: str = "10.0.0.1", *, caller: Caller | None = None) -> Person:
        self._connections += 1
        person = self.people[self._connections] = Person(self, self._connections)
        self.node.connected(self._connections, caller or Caller(address))
        return person

    def greeted(self, token: str = "", address: str = "10.0.0.1") -> Person:
        person = self.connect(address)
        answer = person.ask(frames.Hello, token=token)
        assert isinstance(answer, frames.Welcome), answer
        return person

    def trusted(self) -> Person:
        person = self.connect(caller=TRUSTED)
        assert isinstance(person.ask(frames.Hello), frames.Welcome)
        return person

    # --- the node's network ----------------------------------------------------------------------

    def send(self, connection: int, frame: Frame, payload: Sequence[Any] = ()) -> None:
        if connection in self.people:
            self.people[connection].told.append(frame)

    def close(self, connection: int) -> None:
        self.people[connection].hung_up = True

    def pause(self) -> None:
        raise AssertionError("there is not that much to do")

    def resume(self) -> None:
        raise AssertionError("it was not paused")


def one_batch(value: bytes = b"x", **more: Any) -> bytes:
    return bytes(batches.encode([value], timestamps=1, **more))


def token_of(answer: Frame) -> str:
    assert isinstance(answer, frames.TokenIssued), answer
    return answer.token


def is_refused(answer: Frame, words: str = "") -> bool:
    return (
        isinstance(answer, frames.Failure)
        and answer.code == NotAllowed.code
        and words in answer.message
    )


def with_users(seed: int = 0) -> tuple[GuardedNode, dict[str, str]]:
    """Topic `orders`, an admin `ann`, and `bob` who may publish to it and subscribe to it."""
    place = GuardedNode(seed)
    admin = place.trusted()
    admin.ask(frames.CreateTopic, "orders", TopicConfig(partitions=1))
    tokens = {"ann": token_of(admin.ask(frames.CreateUser, "ann", ("admin",)))}
    for frame in (
        (frames.CreateRole, "worker"),
        (frames.AddGrant, "worker", Grant("publish", "orders")),
        (frames.AddGrant, "worker", Grant("subscribe", "orders")),
    ):
        assert isinstance(admin.ask(*frame), frames.Done)
    tokens["bob"] = token_of(admin.ask(frames.CreateUser, "bob", ("worker",)))
    return place, tokens
