"""Who asks a node for a topic that was just made at another one is not told that there is none."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket import frames
from hocket.core.session.session import Caller
from hocket.frames import packed, unpacked
from hocket.model import Grant, Start, TopicConfig
from hocket.node.cluster import catching_up
from hocket.node.cluster.catching_up import PATIENCE_US, PAUSE_US, RETRY_US, CatchingUp
from hocket.node.requests import serving
from hocket.sim.scheduler import Scheduler
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes

RECORD = batches.encode([b"record"], timestamps=4_000_000_000 * SECOND)


@pytest.fixture
def nodes() -> Nodes:
    nodes = Nodes()
    nodes.put_on(2)
    return nodes


def change_at_the_root(nodes: Nodes, client: Asking, kind: type, **fields: object) -> None:
    """Until the root has made it, and not longer: before the others have heard of it."""
    assert nodes.root.node is not None
    topics = nodes.root.node.node._wiring.catalogue.topics
    before = len(topics["orders"].groups) if "orders" in topics else 0
    client.begin(kind, topic="orders", **fields)
    while "orders" not in topics or len(topics["orders"].groups) == before:
        nodes.run(10)


def knows(nodes: Nodes, number: int) -> bool:
    node = nodes.machines[number].node
    assert node is not None
    return "orders" in node.node._wiring.catalogue.topics


REQUESTS: list[tuple[type, dict[str, object]]] = [
    (frames.FindLeaders, {}),
    (frames.DescribeTopic, {}),
    (frames.Publish, {"partition": 0}),
    (frames.OpenProducer, {}),
    (frames.OpenSubscription, {"credit_bytes": 0}),
    (frames.FindOffsets, {"start": Start()}),
]


@pytest.mark.parametrize(("kind", "fields"), REQUESTS)
def test_a_topic_that_was_made_elsewhere_a_moment_ago_is_known(nodes: Nodes, kind, fields):
    admin, client = Asking(nodes, 0), Asking(nodes, 2)
    change_at_the_root(nodes, admin, frames.CreateTopic, config=TopicConfig())
    assert not knows(nodes, 2), "else this shows nothing"
    payload = RECORD if kind is frames.Publish else b""
    answer = client.ask(kind, payload, topic="orders", **fields)
    assert not isinstance(answer, frames.Failure), answer


def test_so_is_a_partition_that_it_got_a_moment_ago(nodes: Nodes):
    admin, client = Asking(nodes, 0), Asking(nodes, 2)
    admin.create("orders")
    nodes.settle()
    change_at_the_root(nodes, admin, frames.AlterTopic, config=TopicConfig(partitions=2))
    catalogue = nodes.machines[2].node.node._wiring.catalogue
    assert len(catalogue.topic("orders").groups) == 1, "else this shows nothing"
    found = client.ask(frames.FindOffsets, topic="orders", start=Start(), partitions=packed([1]))
    assert unpacked(found.offsets) == [0]


def answered_at_the_root(
    nodes: Nodes, client: Asking, kind: type, **fields: object
) -> frames.Frame:
    request = client.begin(kind, **fields)
    while not client.is_answered(request):
        nodes.run(10)
    return client.answer_to(request)


def test_so_are_a_user_that_was_made_a_moment_ago_and_its_rights(nodes: Nodes):
    admin = Asking(nodes, 0)
    admin.token(frames.CreateUser, name="ann", roles=("admin",))
    admin.done(frames.CreateRole, name="writer")
    admin.create("orders")
    nodes.settle()
    nodes.links.slow(nodes.machines[2].address, 5_000)
    issued = answered_at_the_root(nodes, admin, frames.CreateUser, name="bob", roles=("writer",))
    users = nodes.machines[2].node.node._access.committed.users
    assert "bob" not in users, "else this shows nothing"
    bob = Asking(nodes, 2, issued.token)
    assert isinstance(bob.welcome, frames.Welcome)
    assert bob.refused(frames.OpenProducer, topic="orders").code == "notAllowed"
    nodes.settle()
    grant = Grant("publish", "orders")
    done = answered_at_the_root(nodes, admin, frames.AddGrant, role="writer", grant=grant)
    assert isinstance(done, frames.Done)
    answer = bob.ask(frames.OpenProducer, topic="orders")
    assert getattr(answer, "code", "") != "notAllowed", answer


@pytest.mark.parametrize("shows", ["token", "certificate"])
def test_so_is_the_first_of_all_users(nodes: Nodes, shows: str):
    """Else the session would be nobody's, and be refused as soon as the user is known here."""
    admin = Asking(nodes, 0)
    nodes.links.slow(nodes.machines[2].address, 5_000)
    issued = answered_at_the_root(nodes, admin, frames.CreateUser, name="ann", roles=("admin",))
    assert not nodes.machines[2].node.node.access_is_on, "else this shows nothing"
    is_token = shows == "token"
    ann = Asking(nodes, 2, issued.token) if is_token else Asking(nodes, 2, certified="ann")
    assert isinstance(ann.welcome, frames.Welcome)
    assert nodes.machines[2].node.node.access_is_on
    ann.create("orders")


def test_so_is_a_user_whom_a_certificate_names(nodes: Nodes):
    admin = Asking(nodes, 0)
    admin.token(frames.CreateUser, name="ann", roles=("admin",))
    nodes.settle()
    nodes.links.slow(nodes.machines[2].address, 5_000)
    answered_at_the_root(nodes, admin, frames.CreateUser, name="bob", roles=())
    assert "bob" not in nodes.machines[2].node.node._access.committed.users
    assert isinstance(Asking(nodes, 2, certified="bob").welcome, frames.Welcome)
    refused = Asking(nodes, 2, certified="eve").welcome
    assert refused.code == "notAllowed"
    assert "the certificate names 'eve'" in refused.message


def test_where_there_are_no_users_a_token_gets_in_in_milliseconds(nodes: Nodes):
    began = nodes.now_us
    for _ in range(3):
        somebody = Asking(nodes, 2, "hocket_bob_" + 43 * "x")
        assert isinstance(somebody.welcome, frames.Welcome)
    assert nodes.now_us - began < SECOND // 5
    somebody.create("orders")


def test_who_showed_a_token_to_a_node_without_a_root_comes_again_when_there_are_users(nodes: Nodes):
    """A node that is cut off goes by what it knows, after a second: it knows of no users."""
    admin = Asking(nodes, 0)
    nodes.links.cut([nodes.machines[2].address], [each.address for each in nodes.machines[:2]])
    token = admin.token(frames.CreateUser, name="ann", roles=("admin",))
    began = nodes.now_us
    early, anybody = Asking(nodes, 2, token), Asking(nodes, 2, "")
    assert isinstance(early.welcome, frames.Welcome)
    assert nodes.now_us - began < PATIENCE_US + 100_000
    nodes.run(10 * SECOND)
    began = nodes.now_us
    wrong = Asking(nodes, 2, "hocket_bob_" + 43 * "x")
    assert nodes.now_us - began < 100_000, "it is known that there is no root"
    assert not early.is_lost
    nodes.links.heal()
    nodes.settle()
    assert (early.is_lost, wrong.is_lost, anybody.is_lost) == (True, True, False)
    assert anybody.refused(frames.ListTopics).code == "notAllowed"
    assert isinstance(Asking(nodes, 2, token).welcome, frames.Welcome)
    assert Asking(nodes, 2, "hocket_bob_" + 43 * "x").welcome.code == "notAllowed"
    # A token that is void since is void here, too.
    renewed = Asking(nodes, 1, token).token(frames.RenewToken, name="ann")
    nodes.settle()
    assert Asking(nodes, 2, token).welcome.code == "notAllowed"
    assert isinstance(Asking(nodes, 2, renewed).welcome, frames.Welcome)


def test_a_token_that_the_root_does_not_know_is_refused_in_milliseconds(nodes: Nodes):
    Asking(nodes, 0).token(frames.CreateUser, name="ann", roles=("admin",))
    nodes.settle()
    began = nodes.now_us
    refused = Asking(nodes, 2, "hocket_bob_" + 43 * "x").welcome
    assert refused.code == "notAllowed"
    assert nodes.now_us - began < SECOND // 5
    # Who has gone meanwhile is not looked at.
    nodes.links.cut([nodes.machines[2].address], [nodes.root.address])
    caller = Asking(nodes, 2)
    node = nodes.machines[2].node.node
    node.disconnected(caller.connection)
    node.connected(caller.connection, Caller("elsewhere"))
    caller.begin(frames.Hello, client="asking", token="hocket_bob_" + 43 * "y")
    nodes.run(SECOND // 10)
    node.disconnected(caller.connection)
    nodes.run(2 * SECOND)


def test_what_is_unknown_to_the_root_is_unknown_in_milliseconds(nodes: Nodes):
    began = nodes.now_us
    for number in range(3):
        refused = Asking(nodes, number).refused(frames.OpenProducer, topic="none")
        assert refused.code == "unknownTopic"
    assert nodes.now_us - began < SECOND


def test_a_root_that_does_not_answer_is_waited_for_a_second(nodes: Nodes):
    client = Asking(nodes, 2)
    nodes.links.cut([nodes.machines[2].address], [nodes.root.address])
    began = nodes.now_us
    assert client.refused(frames.FindLeaders, topic="none").code == "rootAway"
    assert nodes.now_us - began < PATIENCE_US + 100_000
    nodes.run(30 * SECOND)  # it is given up
    began = nodes.now_us
    refused = client.refused(frames.FindLeaders, topic="none")
    assert refused.code == "rootAway"
    assert "topic 'none' is not known here" in refused.message
    assert nodes.now_us - began < 100_000
    nodes.links.heal()
    nodes.settle()
    nodes.run(SECOND)
    assert client.refused(frames.FindLeaders, topic="none").code == "unknownTopic"


def test_what_waits_is_bounded(nodes: Nodes, monkeypatch):
    monkeypatch.setattr(serving, "KEPT_BYTES_MAX", len(RECORD))
    client = Asking(nodes, 2)
    nodes.links.cut([nodes.machines[2].address], [nodes.root.address])
    first, second = (
        client.begin(frames.Publish, RECORD, topic="none", partition=0) for _ in range(2)
    )
    nodes.run(SECOND // 10)
    assert [client.is_answered(each) for each in (first, second)] == [False, True]
    assert client.answer_to(second).code == "busy"
    assert client.answer_to(first).code == "rootAway"
    third = client.begin(frames.Publish, RECORD, topic="none", partition=0)
    assert client.answer_to(third).code == "rootAway", "the room is free again"


def test_who_has_gone_is_not_answered(nodes: Nodes):
    client = Asking(nodes, 2)
    nodes.links.cut([nodes.machines[2].address], [nodes.root.address])
    client.begin(frames.FindLeaders, topic="none")
    nodes.run(SECOND // 10)
    nodes.machines[2].node.node.disconnected(client.connection)
    nodes.run(2 * SECOND)


# --- alone ---------------------------------------------------------------------------------------


class World:
    def __init__(self, *, has_root: bool = True) -> None:
        self.scheduler = Scheduler(1)
        self.questions: list[Callable[[bool], None]] = []
        self.looked: list[str] = []
        self.turns = 0
        self.has_root = has_root
        self.subject = CatchingUp(self._ask, timers=self.scheduler, end_turn=self._end_turn)

    def _ask(self, done: Callable[[bool], None]) -> None:
        if self.has_root:
            self.questions.append(done)
        else:
            done(False)

    def _end_turn(self) -> None:
        self.turns += 1

    def wait(self, name: str) -> None:
        self.subject(lambda: self.looked.append(name if self.subject.knows else f"{name}?"))


def test_one_question_at_a_time_and_never_an_older_one():
    world = World()
    world.wait("a")
    world.wait("b")
    assert len(world.questions) == 1
    world.questions[0](True)
    assert (world.looked, world.turns) == (["a"], 1)
    world.questions[0](True)  # an answer that comes again
    world.wait("c")
    assert (world.looked, len(world.questions)) == (["a"], 1), "there is a pause"
    world.scheduler.run_for(PAUSE_US)
    assert len(world.questions) == 2
    world.questions[0](True)  # and again
    assert world.looked == ["a"]
    world.questions[1](True)
    assert world.looked == ["a", "b", "c"]
    world.scheduler.run_for(2 * PATIENCE_US)
    assert (len(world.questions), world.turns) == (2, 3)


def test_what_is_answered_at_once_is_followed_by_no_pause():
    world = World()
    world.subject = CatchingUp(
        lambda done: done(True), timers=world.scheduler, end_turn=world._end_turn
    )
    for name in "abc":
        world.wait(name)
    assert world.looked == ["a", "b", "c"]


def test_a_question_that_is_lost_is_asked_again_in_its_time():
    world = World()
    world.wait("a")
    world.questions[0](False)
    world.questions[0](False)  # it is asked again once
    assert world.looked == []
    world.scheduler.run_for(RETRY_US)
    assert len(world.questions) == 2
    world.questions[1](True)
    assert world.looked == ["a"]
    world.scheduler.run_for(PAUSE_US)
    world.wait("b")
    world.questions[2](False)
    world.scheduler.run_for(PATIENCE_US)
    assert world.looked == ["a", "b?"]
    world.scheduler.run_for(PATIENCE_US)
    assert len(world.questions) == 4


def test_without_a_root_one_waits_and_the_next_does_not():
    world = World(has_root=False)
    world.wait("a")
    world.scheduler.run_for(PATIENCE_US - 1)
    assert world.looked == []
    world.scheduler.run_for(1 + PAUSE_US)
    assert world.looked == ["a?"]
    world.wait("b")
    assert world.looked == ["a?", "b?"]
    world.scheduler.run_for(PAUSE_US)
    world.has_root = True
    world.wait("c")
    world.questions[0](True)
    assert world.looked == ["a?", "b?", "c"]
    world.scheduler.run_for(PAUSE_US)
    world.has_root = False
    world.wait("d")
    assert world.looked == ["a?", "b?", "c"], "there was a root a moment ago"


def test_too_many_do_not_wait(monkeypatch):
    world = World()
    monkeypatch.setattr(catching_up, "WAITING_MAX", 2)
    for name in "bcd":
        world.wait(name)
    assert world.looked == ["d?"]
    world.subject.close()
    world.scheduler.run_for(2 * PATIENCE_US)
    assert world.looked == ["d?"]
    World().subject.close()
