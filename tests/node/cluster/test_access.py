"""Rights that are taken away at one node: what is open at the others ends when they hear of it."""

from __future__ import annotations

import logging

import pytest

from hocket import frames
from hocket.core.metadata.metadata import GROUP
from hocket.model import Grant
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes

RECORD = batches.encode([b"record"], timestamps=5)
HERE = 3  # a node without a vote
HANDLES: dict[str, tuple[type, dict[str, object]]] = {
    "producer": (frames.OpenProducer, {}),
    "producer of delayed messages": (frames.OpenProducer, {"delayed": True}),
    "producer of a transaction": (frames.OpenProducer, {"transaction": "t", "number": 1}),
    "subscription without an index": (frames.OpenSubscription, {}),
    "own subscription": (frames.OpenSubscription, {"index": "own"}),
    "shared subscription": (frames.OpenSubscription, {"index": "shared", "mode": "shared"}),
    "key-shared subscription": (frames.OpenSubscription, {"index": "keys", "mode": "key_shared"}),
}
ENDS_HANDLES = ("grants", "role", "roles")
HANGS_UP = ("user", "token")
WAYS = (*ENDS_HANDLES, *HANGS_UP)


class User:
    """Has everything open at the node `HERE`, and loses it in one of the ways."""

    def __init__(self, nodes: Nodes, admin: Asking, way: str) -> None:
        self.name, self.role, self.way = f"loses-{way}", f"role-{way}", way
        self._nodes = nodes
        admin.done(frames.CreateRole, name=self.role)
        for action in ("publish", "subscribe"):
            admin.done(frames.AddGrant, role=self.role, grant=Grant(action, "orders"))
        self.token = admin.token(frames.CreateUser, name=self.name, roles=(self.role,))

    def come_in(self) -> None:
        self.asking = Asking(self._nodes, HERE, self.token)
        self.handles = {name: self._open(name) for name in HANDLES}

    def _open(self, name: str) -> int:
        opened = self.ask_for(name)
        while isinstance(opened, frames.Failure) and opened.code == "busy":
            self._nodes.run(SECOND // 10)  # what was decided of transactions is on its way
            opened = self.ask_for(name)
        assert isinstance(opened, frames.ProducerOpened | frames.SubscriptionOpened), opened
        return opened.handle

    def ask_for(self, name: str) -> frames.Frame:
        kind, fields = HANDLES[name]
        fields = {"topic": "orders", **fields}
        if kind is frames.OpenSubscription:
            fields |= {"consumer": b"c" * 16, "prefetch": 10, "credit_bytes": 1 << 20}
            if "index" in fields:
                fields["index"] = f"{fields['index']}-{self.way}"
        return self.asking.ask(kind, **fields)

    def lose(self, admin: Asking) -> None:
        if self.way == "grants":
            for action in ("publish", "subscribe"):
                admin.done(frames.RemoveGrant, role=self.role, grant=Grant(action, "orders"))
        elif self.way == "role":
            admin.done(frames.DeleteRole, name=self.role)
        elif self.way == "roles":
            admin.done(frames.SetRoles, name=self.name, roles=())
        elif self.way == "user":
            admin.done(frames.DeleteUser, name=self.name)
        else:
            admin.token(frames.RenewToken, name=self.name)

    @property
    def has_lost_nothing(self) -> bool:
        told = map(type, self.asking.told)
        return not self.asking.is_lost and frames.HandleEnded not in told

    @property
    def has_lost_all(self) -> bool:
        if self.way in HANGS_UP:
            return self.asking.is_lost
        told = [each for each in self.asking.told if isinstance(each, frames.HandleEnded)]
        ended = {each.handle: each.code for each in told}
        return ended == dict.fromkeys(self.handles.values(), "notAllowed")

    def check_written_down(self, text: str) -> None:
        who = f"ended: user='{self.name}' address=somewhere"
        if self.way in HANGS_UP:
            assert text.count(f"{who} connection: user '{self.name}' ") == 1
        else:
            assert text.count(f"{who} producer of topic 'orders'") == 3
            assert text.count(f"{who} subscription of topic 'orders'") == 4

    def check_is_refused(self) -> None:
        if self.way in HANGS_UP:
            assert Asking(self._nodes, HERE, self.token).welcome.code == "notAllowed"
            return
        self.asking = Asking(self._nodes, HERE, self.token)
        for name in HANDLES:
            assert self.ask_for(name).code == "notAllowed", name


class World:
    """Three nodes vote, and `HERE` does not; the topic is there, and all users have it open."""

    def __init__(self) -> None:
        self.nodes = nodes = Nodes(nodes=4)
        self.admin = Asking(nodes, 0)
        nodes.put_on(HERE)
        self.admin.create("orders", delayed=True)
        nodes.put_on(0)
        self.admin.token(frames.CreateUser, name="root", roles=("admin",))
        self.users = [User(nodes, self.admin, way) for way in WAYS]
        nodes.settle_deciders()
        for user in self.users:
            user.come_in()

    def take_all_away(self) -> None:
        """Asked for at each node that is reached, in turn."""
        admins = [Asking(self.nodes, number) for number in range(HERE)]
        for number, user in enumerate(self.users):
            user.lose(admins[number % len(admins)])

    def wait_until_all_is_lost(self, seconds: int) -> None:
        self.nodes.until(
            lambda: all(user.has_lost_all for user in self.users), seconds, "all have lost all"
        )

    def cut_off(self) -> None:
        machines = self.nodes.machines
        others = [each.address for each in machines if each is not machines[HERE]]
        self.nodes.links.cut([machines[HERE].address], others)


@pytest.fixture
def world() -> World:
    return World()


def test_every_kind_of_handle_ends_at_a_node_that_only_hears_of_it(world, caplog):
    with caplog.at_level(logging.INFO, "hocket.audit"):
        for number, user in enumerate(world.users):
            user.lose(Asking(world.nodes, number % 4))
            answered_at = world.nodes.now_us
            world.nodes.until(lambda user=user: user.has_lost_all, 5, user.name)
            assert world.nodes.now_us - answered_at < SECOND
            user.check_written_down(caplog.text)
            user.check_is_refused()
    assert all(user.has_lost_all for user in world.users if user.way in HANGS_UP)


def test_a_node_that_is_cut_off_permits_what_it_knew_until_it_is_told(world, caplog):
    world.cut_off()
    world.take_all_away()
    world.nodes.run(20 * SECOND)
    for user in world.users:
        assert user.has_lost_nothing
        late = Asking(world.nodes, HERE, user.token)
        assert isinstance(late.welcome, frames.Welcome)
        published = late.ask(frames.Publish, RECORD, topic="orders", partition=0)
        assert isinstance(published, frames.Published)
        refused = late.refused(frames.CreateRole, name="more")
        assert (refused.code, refused.may_have_happened) == ("rootAway", False)
    with caplog.at_level(logging.INFO, "hocket.audit"):
        world.nodes.links.heal()
        world.wait_until_all_is_lost(10)
    assert f"ended: user='{world.users[0].name}'" in caplog.text


def test_a_state_ends_what_its_entries_would_have_ended(world, caplog):
    world.cut_off()
    world.take_all_away()
    for number in range(6):
        world.admin.create(f"t{number}")
    here = world.nodes.machines[HERE].node.node
    known = here.metadata_index
    world.nodes.run(5 * SECOND)  # a checkpoint, behind which no entry is kept
    assert world.nodes.root.node.node.store.replicated.bounds(GROUP)[0] > known + 1
    with caplog.at_level(logging.INFO, "hocket.audit"):
        world.nodes.links.heal()
        world.wait_until_all_is_lost(10)
    for user in world.users:
        user.check_written_down(caplog.text)


def test_what_a_node_has_once_taken_away_it_does_not_give_back_when_it_starts_alone(world):
    """Its last snapshot is older than that; and nobody tells it what was committed behind."""
    nodes = world.nodes
    nodes.run(5 * SECOND)
    world.take_all_away()
    nodes.settle()
    world.wait_until_all_is_lost(5)
    world.cut_off()
    nodes.crash(HERE)
    nodes.machines[HERE].start([])
    nodes.run(3 * SECOND)
    access = nodes.machines[HERE].node.node._access
    assert access.is_in_doubt
    for user in world.users:
        user.check_is_refused()
    assert access.is_in_doubt, "nobody has told it"
    nodes.links.heal()
    nodes.settle()
    assert not access.is_in_doubt
    for user in world.users:
        user.check_is_refused()


def test_a_change_that_a_root_did_not_see_committed_is_in_its_audit_log(world, caplog):
    nodes = world.nodes
    machines = nodes.machines
    nodes.links.cut([machines[0].address], [each.address for each in machines[1:]])
    user = world.users[0]
    with caplog.at_level(logging.INFO, "hocket.audit"):
        request = world.admin.begin(frames.SetRoles, name=user.name, roles=())
        assert world.admin.answer_to(request).code == "rootAway"
    assert f"perhaps changed: user=(this process) setRoles '{user.name}' roles=[]" in caplog.text
