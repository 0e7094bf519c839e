"""What `hocket ring` says of a ring that is not ideal."""

from __future__ import annotations

import pytest

from hocket.cli.commands.ring import NOT_IDEAL, WAITS, why_not_ideal
from hocket.cluster_model import RingDescription, RingNode


@pytest.mark.parametrize(
    ("answered", "silent", "said"),
    [
        (2, ("dead",), WAITS),  # three nodes, and lists of eight: they live by the registry
        (3, (), NOT_IDEAL),
        (9, ("dead",), NOT_IDEAL),  # the ring closes the gap
    ],
)
def test_a_dead_node_of_a_small_ring_is_waited_for(answered, silent, said):
    nodes = tuple(
        RingNode(f"n{number}", "", "127.0.0.1:1", number, (), "", ()) for number in range(answered)
    )
    assert why_not_ideal(RingDescription("c", False, 8, nodes, silent)) == said
