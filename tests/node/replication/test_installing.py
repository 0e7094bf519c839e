"""A copy that was away for so long that the leader's log begins behind it gets the state."""

from __future__ import annotations

from hocket import frames
from hocket.core.partition.events import MoveLogStart
from tests.node.replication.test_failover import contents, publish
from tests.support.node.cluster import SECOND, Asking, Nodes
from tests.support.node.replicated import leader_of


def test_the_start_of_the_log_may_lie_behind_the_first_entry_that_is_sent():
    nodes = Nodes()
    Asking(nodes, 0).create(
        "orders", replication=3, disk_retention_us=None, segment_bytes_max=1 << 20
    )
    leader = leader_of(nodes)
    away = (leader + 1) % 3
    nodes.crash(away)
    node = nodes.machines[leader].node
    assert node is not None
    wiring = node.node._wiring
    (hosted,) = [each for each in wiring.partitions if each.core.topic == "orders"]
    store = wiring.log

    def published(*numbers: int) -> None:
        for number in numbers:
            record = b"%d" % number + bytes(400_000)
            assert isinstance(publish(nodes, leader, record), frames.Published)

    def start_at(offset: int) -> None:
        wiring.partitions.step(hosted, MoveLogStart(offset))
        nodes.run(SECOND)

    published(*range(6))  # two in each segment
    start_at(2)
    store.checkpoint_now()
    nodes.run(SECOND)
    start_at(4)  # no checkpoint knows of it, so the second segment is still there
    assert store.segments(hosted.group)[0].base_offset == 2
    nodes.start(away)
    nodes.run(20 * SECOND)
    published(6)
    nodes.crash(leader)
    nodes.run(20 * SECOND)
    assert contents(nodes, leader_of(nodes)) == [
        b"%d" % each + bytes(400_000) for each in (4, 5, 6)
    ]
