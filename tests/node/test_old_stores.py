"""A directory of a version that kept decisions on transactions in the metadata's log.

`stores/decisions_in_the_metadata.b64` was written by that version: its files as JSON, compressed.
It has a topic `t`; transaction `job` number 0 is committed and published there, in the checkpoint;
of number 1, one producer was aborted, and another is committed and not published yet, in the
write-ahead log. A topic `gone` was deleted.
"""

from __future__ import annotations

import base64
import json
import zlib
from pathlib import Path

from hocket import frames
from hocket.model import DECISIONS, Participant
from hocket.sim.disk import PowerLoss
from tests.node.requests.test_transacting_in_hard_times import Transacting, code_of
from tests.support.node import simulated
from tests.support.node.simulated import SECOND
from tests.support.node.transacting import tiny

STORE = Path(__file__).parent / "stores" / "decisions_in_the_metadata.b64"
COMMITTED = Participant("t", 0, b"q" * 16, 2, 2, 2626075)


def files() -> dict[str, bytes]:
    packed = base64.b64decode("".join(STORE.read_text().split()))
    return {
        path: base64.b64decode(data) for path, data in json.loads(zlib.decompress(packed)).items()
    }


class OldWorld(simulated.World):
    """Its node finds the old directory. The power fails before operation `cut_at` of the disk."""

    def __init__(self, seed: str, cut_at: int | None = None) -> None:
        self.cut_at = cut_at
        self.was_cut = False
        super().__init__(seed, settings=tiny)

    def start_node(self) -> None:
        if not self.disk.files():
            for path, data in files().items():
                folder = path.rpartition("/")[0]
                self.disk.make_directory(folder)
                file = self.disk.open(path, create=True)
                file.write([data], 0)
                file.sync()
                file.close()
                self.disk.sync_directory(folder)
            self.disk.before = self._count
        try:
            super().start_node()
        except PowerLoss:
            self.was_cut = True
            self.crash()
            super().start_node()

    def _count(self, operation: str, path: str) -> None:
        if self.cut_at is not None:
            self.cut_at -= 1
            if self.cut_at < 0:
                self.cut_at = None
                raise PowerLoss(f"before {operation} of {path}")


def check(world: OldWorld) -> None:
    """All that was decided is so, and what is decided next comes behind it."""
    client = Transacting(world)
    world.until(lambda: client.end_of("t") == 3, 10, "what was decided is published")
    assert code_of(client.commit(number=0)) == "transactionConflict"
    assert isinstance(client.commit(COMMITTED, number=1), frames.Done)
    assert client.end_of("t") == 3
    assert isinstance(client.commit(client.staged("t", 5, number=2), number=2), frames.Done)
    assert client.end_of("t") == 4
    assert world.node is not None
    decider = world.node._wiring.deciders.own.core
    assert decider._last_decision > 7  # partitions know decisions by their numbers


def test_decisions_are_carried_over_once():
    world = OldWorld("old")
    assert DECISIONS in world.node._wiring.log._groups
    check(world)
    world.run(2 * SECOND)
    world.crash()
    world.start_node()
    client = Transacting(world)
    assert client.end_of("t") == 4
    assert code_of(client.commit(number=1)) == "transactionConflict"
    assert isinstance(client.commit(client.staged("t", 5, number=3), number=3), frames.Done)
    snapshot = json.loads(world.node.metadata_snapshot()[1])
    assert "transactions" not in snapshot
    assert snapshot["catalogue"]["deleted"] == [[2, 3]]
    topic = world.node._wiring.catalogue.topic("t")
    assert topic.homes == [world.node._wiring.log.store_id]


def test_the_power_may_fail_while_they_are_carried_over():
    cuts = 0
    for cut_at in range(200):
        world = OldWorld(f"cut {cut_at}", cut_at)
        if not world.was_cut:
            break
        cuts += 1
        check(world)
    assert cuts > 5
