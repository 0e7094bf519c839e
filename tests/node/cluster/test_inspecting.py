"""How the views of all nodes are gathered, whatever clients ask and whatever nodes answer."""

from __future__ import annotations

import pytest

from hocket.core.ring.contact import Contact
from hocket.core.ring.views import ViewIs
from hocket.node.cluster import inspecting
from hocket.node.cluster.inspecting import Gathered, Inspecting
from tests.support.node.cluster import SECOND, Nodes


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def at(nodes: Nodes, number: int) -> Inspecting:
    node = nodes.machines[number].node
    assert node is not None
    return node.inspecting


def nodes_of(gathered: Gathered) -> set[str]:
    return {view.me.node for view in gathered.views}


def test_a_flood_of_questions_is_few_questions_to_each_node(nodes: Nodes):
    told: list[Gathered] = []
    members = nodes.registered()
    before = nodes.links.sent
    for _ in range(500):
        at(nodes, 1).gather(told.append)
        at(nodes, 1).gather(told.append, others=members)
    nodes.until(lambda: len(told) == 1_000, 3, "all are answered")
    assert all(nodes_of(gathered) == {"n0", "n1", "n2"} for gathered in told)
    assert all(gathered.silent == [] for gathered in told)
    assert nodes.links.sent - before < 200, "of two other nodes, asked a thousand times"
    nodes.run(10 * SECOND)
    assert len(told) == 1_000


def test_who_waits_for_a_question_is_answered_by_one_that_begins_later(nodes: Nodes):
    told: list[str] = []
    for number in range(inspecting.UNDER_WAY_MAX):
        at(nodes, 1).gather(lambda _gathered, number=number: told.append(f"early {number}"))
    at(nodes, 1).gather(lambda _gathered: told.append("late"))
    assert len(at(nodes, 1)._questions) == inspecting.UNDER_WAY_MAX
    nodes.until(lambda: "late" in told, 3, "it is answered")
    assert told[0] == "early 0"


def test_a_node_that_names_others_all_the_time_keeps_nobody_waiting(nodes: Nodes):
    told: list[Gathered] = []
    asked = at(nodes, 1)
    asked.gather(told.append)
    (number,) = asked._questions
    liar = nodes.machines[2].node.ring.core.me
    for turn in range(60):
        nobody = tuple(Contact(9, f"x{turn}", 1, f"x{turn}-{each}:1") for each in range(9))
        asked.heard(liar, ViewIs(number, liar, "liar", "member", None, nobody[:1], nobody[1:]))
        nodes.run(SECOND // 10)
        if told:
            break
    assert told, "not within six seconds"
    asked.close()
    nodes.run(10 * SECOND)
    assert len(told) == 1


def test_what_is_gathered_when_a_node_closes_is_told_to_nobody(nodes: Nodes):
    told: list[Gathered] = []
    for _ in range(10):
        at(nodes, 1).gather(told.append)
    at(nodes, 1).close()
    nodes.run(10 * SECOND)
    assert told == []
