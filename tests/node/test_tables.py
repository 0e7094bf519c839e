"""The tables of the node are whole: whatever a core can ask for, somebody does.

A request without a servant, or an effect without a reaction, would end the broker when it first
comes; here it fails before.
"""

from __future__ import annotations

from typing import get_args

from hocket import frames
from hocket.core.partition import events
from hocket.core.session.session import Session
from hocket.log.settings import LogSettings
from hocket.node.node import Node
from hocket.wire.connection import RULES
from tests.support.node.simulated import World

# What a session answers or notes by itself, without a demand on the node.
OF_THE_SESSION = {frames.Hello, frames.Goodbye, frames.Ping, frames.Done}
# What the partitions' driver carries out by itself.
OF_THE_DRIVER = {events.Append, events.StagesMoved}


def started_node() -> Node:
    world = World("tables", settings=LogSettings)
    assert world.node is not None
    return world.node


def test_every_frame_that_a_session_hands_on_has_a_servant():
    asked = set(Session._handlers) - OF_THE_SESSION
    assert asked == set(started_node()._servants) - OF_THE_SESSION


def test_every_frame_that_a_session_does_not_take_is_one_that_a_server_may_send():
    """Else a server's own connection would refuse to send it, and its client would wait in vain."""
    answers = set(get_args(frames.Frame)) - set(Session._handlers) - {frames.Hello, frames.Welcome}
    assert answers <= RULES["open", "server"].kinds


def test_every_effect_of_a_partition_has_a_reaction():
    reactions = set(started_node()._table_of_reactions())
    assert reactions == set(get_args(events.Effect)) - OF_THE_DRIVER
