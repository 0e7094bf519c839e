"""What tests of topics with several replicas ask of simulated nodes."""

from __future__ import annotations

from tests.support.node.cluster import Nodes


def leader_of(nodes: Nodes, topic: str = "orders", partition: int = 0) -> int:
    """The number of the machine that serves the partition."""

    def serving() -> list[int]:
        return [
            number
            for number, machine in enumerate(nodes.machines)
            if machine.node is not None
            and any(
                (each.topic, each.partition) == (topic, partition)
                for each in machine.node.partition_ids()
            )
        ]

    nodes.until(lambda: len(serving()) == 1, 20, "one node leads")
    return serving()[0]
