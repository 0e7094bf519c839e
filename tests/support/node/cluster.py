"""Some production nodes in a simulated world without faults, and clients that ask by hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hocket import frames
from hocket.core.session.session import TRUSTED, Caller
from hocket.log.model import METADATA
from hocket.log.verify import accept_loss
from hocket.model import DECIDERS, TopicConfig
from hocket.sim.machine import Machine
from hocket.sim.site import Site
from hocket.sim.swarm import options_of

SECOND = 1_000_000
STILL = replace(
    options_of(0), temper="still", faults=(), nodes=3, nodes_max=6, successors=2, spread="even",
    loss=0.0, duplication=0.0, reordering=0.0, tails=0.0, skew_us_max=0, drift_ppm_max=0,
)  # fmt: skip


class Nodes(Site):
    """`n0` has founded the cluster, and is the root until it fails."""

    def __init__(self, seed: str = "nodes", **options: object) -> None:
        super().__init__(seed, replace(STILL, **options))  # type: ignore[arg-type]
        self.found()
        for machine in self.machines[1:]:
            machine.boot()
        members = tuple(sorted(ring.me for ring in self.rings()))
        for machine in self.machines:
            machine.begin(members, self.root.address)
        self.settle()

    def put_on(self, *numbers: int) -> None:
        """From now on the root puts partitions on these nodes in turn, whatever each has."""
        nodes = [self.machines[number].name for number in numbers]
        assert self.root.node is not None
        self.root.node.node.place_by(
            lambda _topic, partitions, count: [
                tuple(nodes[(each + more) % len(nodes)] for more in range(count))
                for each in partitions
            ]
        )

    def run(self, microseconds: int = SECOND) -> None:
        self.scheduler.run_for(microseconds)

    def until(self, condition: Callable[[], bool], seconds: int, what: str) -> None:
        deadline = self.now_us + seconds * SECOND
        while not condition():
            assert self.now_us < deadline, f"not within {seconds} s: {what}"
            self.run(20_000)

    def settle(self) -> None:
        """All that are up have all metadata that the root has."""
        self.until(self.is_settled, 20, "all have caught up")

    def settle_deciders(self) -> None:
        """The root has nothing more to write by itself: three nodes are to keep each decider."""

        def are_placed() -> bool:
            topic = self.root.node and self.root.node.node.topics.get(DECIDERS)
            return bool(topic and topic.is_replicated)

        self.until(are_placed, 20, "the deciders are placed")
        self.settle()

    def is_settled(self) -> bool:
        up = [machine.node for machine in self.machines if machine.node is not None]
        ends = {node.node.metadata_index for node in up}
        return len(ends) == 1 and all(node.is_caught_up for node in up)

    def crash(self, number: int) -> None:
        self.machines[number].crash(power=True)

    def start(self, number: int) -> None:
        self.machines[number].start([self.root.address])

    def states(self) -> list[bytes]:
        return [m.node.node.metadata_snapshot()[1] for m in self.machines if m.node is not None]


class Asking:
    """A client of one node. `caller`: as it comes from outside, and has to say who it is."""

    def __init__(
        self, nodes: Nodes, number: int, token: str | None = None, *, certified: str = ""
    ) -> None:
        self.nodes = nodes
        self.machine: Machine = nodes.machines[number]
        self.told: list[frames.Frame] = []
        self.is_lost = False
        self._last = 0
        self._answers: dict[int, frames.Frame] = {}
        connection = self.machine.network.connect(self)
        assert connection is not None
        self.connection = connection
        is_outside = token is not None or certified
        caller = Caller("somewhere", certified=certified) if is_outside else TRUSTED
        assert self.machine.node is not None
        self.machine.node.node.connected(connection, caller)
        self.welcome = self.ask(frames.Hello, client="asking", token=token or "")

    def received(self, frame: frames.Frame, _payload: memoryview) -> None:
        if frame.request and not isinstance(frame, frames.Ping):  # that one asks, too
            assert frame.request not in self._answers, f"answered twice: {frame}"
            self._answers[frame.request] = frame
        else:
            self.told.append(frame)

    def lost(self) -> None:
        self.is_lost = True

    def begin(self, kind: type, /, payload: bytes = b"", **fields: object) -> int:
        self._last += 1
        frame = kind(self._last, **fields)
        self.machine.network.send_to_node(self.connection, frame, payload)
        return self._last

    def answer_to(self, request: int, seconds: int = 20) -> frames.Frame:
        self.nodes.until(lambda: request in self._answers, seconds, f"an answer to {request}")
        return self._answers[request]

    def is_answered(self, request: int) -> bool:
        return request in self._answers

    def ask(self, kind: type, /, payload: bytes = b"", **fields: object) -> frames.Frame:
        return self.answer_to(self.begin(kind, payload, **fields))

    def done(self, kind: type, /, **fields: object) -> None:
        answer = self.ask(kind, **fields)
        assert isinstance(answer, frames.Done), answer

    def refused(self, kind: type, /, payload: bytes = b"", **fields: object) -> frames.Failure:
        answer = self.ask(kind, payload, **fields)
        assert isinstance(answer, frames.Failure), answer
        return answer

    def create(self, topic: str, **config: object) -> None:
        self.done(frames.CreateTopic, topic=topic, config=TopicConfig(**config))  # type: ignore[arg-type]

    def topics(self) -> list[str]:
        listed = self.ask(frames.ListTopics)
        assert isinstance(listed, frames.Topics)
        return [topic.name for topic in listed.topics]

    def describe(self, topic: str) -> frames.Topics:
        described = self.ask(frames.DescribeTopic, topic=topic)
        assert isinstance(described, frames.Topics), described
        return described

    def token(self, kind: type, **fields: object) -> str:
        issued = self.ask(kind, **fields)
        assert isinstance(issued, frames.TokenIssued), issued
        return issued.token


def lose_the_entry_of(nodes: Nodes, number: int, topic: str) -> None:
    """Damage the entry that made the topic, in the log of a node that is down, and accept it."""
    disk = nodes.machines[number].disk
    found = 0
    for path, content in disk._names.items():
        at = content.data.find(b'"topic": "%s"' % topic.encode())
        if path.startswith("wal/") and at >= 0:
            disk.flip(path, at, 1)
            found += 1
    assert found
    assert accept_loss(disk, METADATA)
