"""Names of brokers: asked for at any node, decided by the root, and free when a process is gone."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.model import Grant
from tests.support.node.cluster import SECOND, Asking, Nodes

KEY, LEASE, OTHER = b"k" * 32, b"a" * 16, b"b" * 16
GRACE_SECONDS = 5


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


def register(asking: Asking, name: str = "chat", lease: bytes = LEASE) -> None:
    asking.done(frames.RegisterName, name=name, kind="thread", lease=lease, key=KEY, address="h:1")


def is_taken(asking: Asking, name: str = "chat", lease: bytes = OTHER) -> bool:
    answer = asking.ask(
        frames.RegisterName, name=name, kind="thread", lease=lease, key=KEY, address=""
    )
    if isinstance(answer, frames.Done):
        return False
    assert isinstance(answer, frames.Failure)
    assert answer.code == "nameInUse"
    return True


def listed(nodes: Nodes, number: int) -> list[tuple[str, str]]:
    answer = Asking(nodes, number).ask(frames.ListNames)
    assert isinstance(answer, frames.NamesAre)
    return [(each.name, each.node) for each in answer.names]


def hang_up(asking: Asking) -> None:
    node = asking.machine.node
    assert node is not None
    node.node.disconnected(asking.connection)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_name_that_was_registered_at_one_node_is_found_at_all(nodes, number):
    owner = Asking(nodes, number)
    register(owner)
    for other in range(3):
        found = Asking(nodes, other).ask(frames.FindName, name="chat")
        assert isinstance(found, frames.NameIs)
        assert (found.kind, found.address, found.lease) == ("thread", "h:1", LEASE[:8])
        assert (found.node == "") == (other == number)
        assert is_taken(Asking(nodes, other))
    unknown = Asking(nodes, 1).refused(frames.FindName, name="nobody")
    assert unknown.code == "unknownBroker"
    owner.done(frames.ReleaseName, name="chat", lease=OTHER)  # which is not its
    assert is_taken(Asking(nodes, 2))
    owner.done(frames.ReleaseName, name="chat", lease=LEASE)
    assert not is_taken(Asking(nodes, 2))


@pytest.mark.parametrize("number", [0, 1])
def test_the_names_of_a_process_that_is_gone_are_free_after_a_while_and_not_before(nodes, number):
    owner = Asking(nodes, number)
    register(owner)
    hang_up(owner)
    other = Asking(nodes, 2)
    nodes.run((GRACE_SECONDS - 1) * SECOND)
    assert is_taken(other)
    nodes.until(lambda: not listed(nodes, 2), 5, "the name is free")
    assert not is_taken(other)


def test_a_name_follows_its_process_to_another_node(nodes):
    owner = Asking(nodes, 1)
    register(owner)
    hang_up(owner)
    again = Asking(nodes, 2)
    register(again)
    nodes.run(3 * GRACE_SECONDS * SECOND)
    assert listed(nodes, 0) == [("chat", "n2")]
    assert is_taken(Asking(nodes, 0))


def test_the_names_of_a_node_that_is_dead_are_freed_by_the_root(nodes):
    register(Asking(nodes, 2))
    nodes.crash(2)
    nodes.until(lambda: not listed(nodes, 0), 60, "the name is free")
    assert not is_taken(Asking(nodes, 1))


def test_names_survive_the_loss_of_power_and_wait_for_their_processes(nodes):
    register(Asking(nodes, 1))
    nodes.settle()
    for number in range(3):
        nodes.crash(number)
    for number in range(3):
        nodes.start(number)
    nodes.settle()
    nodes.until(lambda: not listed(nodes, 0), 60, "nobody has come back")


def test_names_need_grants(nodes):
    admin = Asking(nodes, 0)
    token = admin.token(frames.CreateUser, name="ann", roles=("admin",))
    for name, action in (("bob", "bind"), ("cid", "connect")):
        admin.done(frames.CreateRole, name=f"{name}s")
        admin.done(frames.AddGrant, role=f"{name}s", grant=Grant(action, "chat*"))
    bob = admin.token(frames.CreateUser, name="bob", roles=("bobs",))
    cid = admin.token(frames.CreateUser, name="cid", roles=("cids",))
    nodes.settle()
    binds, connects = Asking(nodes, 1, bob), Asking(nodes, 2, cid)
    register(binds)
    for name, asking in (("other", binds), ("chat-2", connects)):
        refused = asking.refused(
            frames.RegisterName, name=name, kind="thread", lease=OTHER, key=KEY, address=""
        )
        assert refused.code == "notAllowed"
    assert isinstance(connects.ask(frames.FindName, name="chat"), frames.NameIs)
    assert binds.refused(frames.FindName, name="chat").code == "notAllowed"
    assert connects.refused(frames.OpenPipe, name="secret").code == "notAllowed"
    names = Asking(nodes, 0, token).ask(frames.ListNames).names
    assert [(each.name, each.user) for each in names] == [("chat", "bob")]


def test_a_pipe_needs_an_owner_that_is_connected_here(nodes):
    register(Asking(nodes, 1))
    assert Asking(nodes, 0).refused(frames.OpenPipe, name="chat").code == "unknownBroker"
    assert Asking(nodes, 1).refused(frames.TakePipe, pipe=b"x" * 16).code == "unknownBroker"


def test_a_name_follows_its_process_to_a_node_where_somebody_else_asks_for_it(nodes):
    register(Asking(nodes, 1))
    somebody = Asking(nodes, 2)  # whose connection stays
    assert is_taken(somebody)
    register(Asking(nodes, 2))
    nodes.run(3 * GRACE_SECONDS * SECOND)
    assert listed(nodes, 0) == [("chat", "n2")]
