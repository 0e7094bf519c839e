"""One metadata for all nodes: asked for anywhere, known everywhere, whatever fails."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from hocket import frames
from hocket.core.group0.messages import (
    Entries,
    Entry,
    Follow,
    FollowAgain,
    Followed,
    Forward,
    Forwarded,
    NotFollowed,
    SnapshotPiece,
)
from hocket.core.ring.contact import Contact
from hocket.core.ring.messages import Ping
from hocket.frames import packed
from hocket.model import EntryKind, Grant, Start, TopicConfig
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes, lose_the_entry_of

RECORD = batches.encode([b"record"], timestamps=5)


@pytest.fixture
def nodes() -> Nodes:
    return Nodes()


# --- topics --------------------------------------------------------------------------------------


def test_a_topic_made_at_any_node_is_listed_and_described_at_all(nodes):
    nodes.put_on(1)
    Asking(nodes, 2).create("orders", partitions=2)
    nodes.settle()
    for number in range(3):
        client = Asking(nodes, number)
        assert client.topics() == ["orders"]
        (topic,) = client.describe("orders").topics
        assert topic.config.partitions == 2
        assert [each.leader for each in topic.partitions] == ["n1", "n1"]
        assert {(each.problem, each.known) for each in topic.partitions} == {("", True)}


def test_who_asks_reads_at_once_what_it_has_written(nodes):
    client = Asking(nodes, 2)
    client.create("orders")
    assert client.topics() == ["orders"]
    client.done(frames.AlterTopic, topic="orders", config=TopicConfig(partitions=3))
    assert client.describe("orders").topics[0].config.partitions == 3
    client.done(frames.DeleteTopic, topic="orders")
    assert client.topics() == []


def test_data_is_served_at_home_and_elsewhere_it_is_said_where_that_is(nodes):
    nodes.put_on(1)
    at_home, elsewhere = Asking(nodes, 1), Asking(nodes, 2)
    elsewhere.create("orders")
    nodes.settle()
    published = at_home.ask(frames.Publish, RECORD, topic="orders", partition=0)
    assert isinstance(published, frames.Published)
    for kind, fields in (
        (frames.Publish, {"partition": 0}),
        (frames.OpenProducer, {}),
        (frames.OpenSubscription, {"index": "i"}),
        (frames.FindOffsets, {"start": Start("earliest")}),
        (frames.ListIndexes, {}),
        (frames.DeleteIndex, {"index": "i"}),
    ):
        payload = RECORD if kind is frames.Publish else b""
        refused = elsewhere.refused(kind, payload, topic="orders", **fields)
        assert refused.code == "notHere"
        assert "node n1, at n1:4150" in refused.message
    assert elsewhere.refused(frames.OpenProducer, topic="none").code == "unknownTopic"


def test_a_topic_deleted_elsewhere_is_gone_at_its_home_with_its_log(nodes):
    nodes.put_on(1)
    at_home = Asking(nodes, 1)
    at_home.create("orders")
    opened = at_home.ask(frames.OpenProducer, topic="orders")
    assert isinstance(opened, frames.ProducerOpened)
    Asking(nodes, 2).done(frames.DeleteTopic, topic="orders")
    nodes.settle()
    nodes.run()
    assert frames.HandleEnded in map(type, at_home.told)
    node = nodes.machines[1].node.node
    assert list(node._wiring.partitions) == []
    assert 1 not in node._wiring.log._groups


def test_refusals_of_the_root_come_back(nodes):
    Asking(nodes, 1).create("orders")
    nodes.settle()
    client = Asking(nodes, 2)
    again = client.refused(frames.CreateTopic, topic="orders", config=TopicConfig())
    assert (again.code, again.may_have_happened) == ("topicExists", False)
    assert client.refused(frames.DeleteTopic, topic="none").code == "unknownTopic"
    bad = client.refused(frames.CreateTopic, topic="b", config=TopicConfig(partitions=0))
    assert bad.code == "outOfRange"


def test_dead_letters_of_a_node_get_a_topic_by_way_of_the_root(nodes):
    nodes.put_on(1)
    client = Asking(nodes, 1)
    client.create("orders")
    client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    opened = client.ask(
        frames.OpenSubscription, topic="orders", index="i", mode="shared", consumer=b"c" * 16,
        prefetch=10, credit_bytes=1 << 20,
    )  # fmt: skip
    assert isinstance(opened, frames.SubscriptionOpened)
    nodes.until(lambda: bool(client.told), 5, "a delivery")
    settled = client.ask(
        frames.Settle, handle=opened.handle, action="reject", ranges=packed([0, 0, 1])
    )
    assert isinstance(settled, frames.Settled)

    def dead_letters() -> int:
        described = client.ask(frames.DescribeTopic, topic="orders.dlq")
        if isinstance(described, frames.Failure):
            return 0
        return described.topics[0].partitions[0].end

    nodes.until(lambda: dead_letters() == 1, 10, "the dead letter is stored")
    catalogue = nodes.machines[0].node.node._wiring.catalogue
    assert catalogue.topic("orders.dlq").homes == ["n1"]


# --- users ---------------------------------------------------------------------------------------


def test_a_user_made_at_any_node_may_come_in_at_all_and_the_token_is_in_no_log(nodes):
    token = Asking(nodes, 1).token(frames.CreateUser, name="ann", roles=("admin",))
    nodes.settle()
    for number in range(3):
        client = Asking(nodes, number, token)
        assert isinstance(client.welcome, frames.Welcome)
        assert client.topics() == []
    wrong = Asking(nodes, 2, "hkt_ann_wrong")
    assert isinstance(wrong.welcome, frames.Failure)
    secret = token.encode()
    for machine in nodes.machines:
        for content in machine.disk._names.values():
            assert secret not in bytes(content.data)


def test_what_a_user_may_do_is_judged_by_the_root(nodes, caplog):
    admin = Asking(nodes, 1)
    admin.token(frames.CreateUser, name="ann", roles=("admin",))
    admin.done(frames.CreateRole, name="reader")
    token = admin.token(frames.CreateUser, name="bob", roles=("reader",))
    nodes.settle()
    bob = Asking(nodes, 2, token)
    with caplog.at_level(logging.INFO, "hocket.audit"):
        refused = bob.refused(frames.CreateTopic, topic="orders", config=TopicConfig())
        assert refused.code == "notAllowed"
        assert bob.refused(frames.DeleteUser, name="ann").code == "notAllowed"
    assert "user='bob' address=somewhere by way of node n2 CreateTopic" in caplog.text
    # The node that is asked need not have heard of a right yet.
    nodes.links.cut([nodes.machines[2].address], [nodes.root.address], one_way=False)
    Asking(nodes, 0).done(frames.AddGrant, role="reader", grant=Grant("create"))
    nodes.links.heal()
    bob.done(frames.CreateTopic, topic="orders", config=TopicConfig())


def test_rights_taken_at_one_node_end_what_is_open_at_another(nodes):
    admin = Asking(nodes, 0)
    admin.token(frames.CreateUser, name="ann", roles=("admin",))
    token = admin.token(frames.CreateUser, name="bob", roles=("admin",))
    nodes.settle()
    bob = Asking(nodes, 1, token)
    bob.create("orders")
    Asking(nodes, 2).done(frames.DeleteUser, name="bob")
    nodes.until(lambda: bob.is_lost, 5, "bob is hung up on")
    # Who renews its own token is spared; all other sessions of that user end.
    ann = admin.token(frames.RenewToken, name="ann")
    nodes.settle()
    one, other = Asking(nodes, 1, ann), Asking(nodes, 2, ann)
    newer = one.token(frames.RenewToken, name="ann")
    nodes.until(lambda: other.is_lost, 5, "the other session ends")
    assert not one.is_lost
    assert isinstance(Asking(nodes, 2, newer).welcome, frames.Welcome)


# --- the root is away ----------------------------------------------------------------------------


def test_while_the_root_is_away_changes_are_refused_and_all_else_goes_on(nodes):
    client = Asking(nodes, 1)
    client.create("orders")
    nodes.settle()
    nodes.crash(0)
    asked_at = nodes.now_us
    refused = client.refused(frames.CreateTopic, topic="more", config=TopicConfig())
    assert (refused.code, refused.may_have_happened) == ("rootAway", True)
    assert "n0:4150" in refused.message
    assert nodes.now_us - asked_at < 6 * SECOND
    nodes.run(6 * SECOND)
    asked_at = nodes.now_us
    refused = client.refused(frames.CreateTopic, topic="more", config=TopicConfig())
    assert (refused.code, refused.may_have_happened) == ("rootAway", False)
    assert "n0:4150" in refused.message
    assert nodes.now_us - asked_at < SECOND
    assert client.topics() == ["orders"]
    published = client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    assert isinstance(published, frames.Published)
    nodes.start(0)
    following = nodes.machines[1].node.group0
    nodes.until(lambda: following.core.root is not None, 20, "the root is heard again")
    client.create("more")


def test_when_the_root_is_back_changes_go_on_within_about_a_second(nodes):
    """However long it was away; and though the ring takes it back later, since it flaps."""
    client = Asking(nodes, 1)
    for _ in range(4):
        nodes.crash(0)
        nodes.run(7 * SECOND)
        nodes.start(0)
        back_at = nodes.now_us
        following = nodes.machines[1].node.group0
        nodes.until(lambda f=following: f.core.root is not None, 20, "the root is heard again")
        assert nodes.now_us - back_at < 2 * SECOND
    assert nodes.machines[0].waits_to_join
    client.create("more")


def test_a_root_that_stood_apart_is_asked_as_soon_as_it_speaks(nodes):
    nodes.run(6 * SECOND)
    machine = nodes.machines[1]
    root = nodes.machines[0].me
    following = machine.node.group0
    nodes.links.cut([machine.address], [nodes.root.address])
    nodes.until(lambda: following.core.root is None, 20, "it is missed")
    nodes.until(lambda: following.core._quiet == 0, 20, "it is asked for in vain")
    nodes.run(600_000)
    nodes.links.heal()
    before = following.core._request
    machine.heard(root, 0, Ping(1))
    assert following.core._request == before + 1
    nodes.until(lambda: following.core.root is not None, 1, "it is heard")


def test_a_node_that_returns_is_ready_before_the_ring_takes_it_back(nodes):
    """The flapping rule delays its place on the ring, not what it serves."""
    for _ in range(4):
        Asking(nodes, 1).create(f"orders-{nodes.now_us}")
        nodes.settle()
        nodes.crash(2)
        nodes.start(2)
    assert nodes.machines[2].waits_to_join
    began = nodes.now_us
    nodes.settle()
    assert nodes.now_us - began < SECOND
    assert nodes.machines[2].waits_to_join
    assert len(Asking(nodes, 2).topics()) == 4


def test_a_request_is_done_once_though_its_answer_is_lost_and_the_root_begins_again(nodes):
    """The root carries it out, and dies before anybody hears of it."""
    client = Asking(nodes, 1)
    client.create("orders")
    root, one = nodes.root.address, nodes.machines[1].address
    nodes.links.cut([root], [one], one_way=True)
    config = TopicConfig(partitions=2)
    request = client.begin(frames.AlterTopic, topic="orders", config=config)
    nodes.run(SECOND // 2)
    assert not client.is_answered(request)
    before = nodes.machines[0].node.node.metadata_index
    nodes.links.heal()
    nodes.crash(0)
    nodes.start(0)
    assert isinstance(client.answer_to(request), frames.Done)
    nodes.settle()
    assert nodes.machines[0].node.node.metadata_snapshot()[1].count(b'"n1": [[') == 1
    entries = nodes.machines[0].node.node.metadata_log.entries
    altered = [each for each in entries if each.kind == EntryKind.CONFIG and b"alter" in each.body]
    assert len(altered) <= 1
    assert nodes.machines[0].node.node.metadata_index >= before


def test_a_forwarded_request_that_comes_twice_or_late_is_answered_alike(nodes):
    nodes.settle_deciders()
    client = Asking(nodes, 1)
    sent: list[Forward] = []
    root = nodes.machines[0].node
    heard = root.group0.heard

    def listen(sender, message):
        if isinstance(message, Forward):
            sent.append(message)
        heard(sender, message)

    root.group0.heard = listen
    client.create("orders")
    client.refused(frames.CreateTopic, topic="orders", config=TopicConfig())
    client.done(frames.DeleteTopic, topic="orders")
    nodes.settle()
    root.group0.heard = heard
    index = root.node.metadata_index
    answers: list[Forwarded] = []
    root.node.taking_over.begin(lambda _to, message: answers.append(message))
    for message in (*sent, *sent):  # the refused one would succeed by now
        root.heard(nodes.machines[1].me, 0, message)
    nodes.run()
    assert root.node.metadata_index == index
    assert [answer.code for answer in answers] == ["", "topicExists", "", "", "topicExists", ""]
    root.heard(nodes.machines[1].me, 0, replace(sent[0], number=1))  # long forgotten
    root.heard(nodes.machines[1].me, 0, replace(sent[0], number=sent[-1].number + 1, frame=b"no"))
    nodes.run()
    assert root.node.metadata_index == index
    assert [answer.code for answer in answers[6:]] == ["protocol"]


# --- those who were away -------------------------------------------------------------------------


def test_a_node_that_was_down_is_told_what_it_missed(nodes):
    client = Asking(nodes, 0)
    at_home = Asking(nodes, 1)
    nodes.put_on(1)
    at_home.create("mine")
    at_home.create("kept")
    nodes.settle()
    nodes.crash(1)
    client.done(frames.DeleteTopic, topic="mine")
    client.done(frames.AlterTopic, topic="kept", config=TopicConfig(partitions=2))
    nodes.put_on(2)
    for number in range(6):  # more than the root keeps in memory: a snapshot is sent
        client.create(f"t{number}")
    nodes.start(1)
    nodes.settle()
    node = nodes.machines[1].node.node
    again = Asking(nodes, 1)
    expected = ["kept", *(f"t{number}" for number in range(6))]
    assert again.topics() == expected
    hosted = {(each.core.topic, each.core.number) for each in node._wiring.partitions}
    assert hosted == {("kept", 0), ("kept", 1)}
    assert len(set(nodes.states())) == 1
    nodes.crash(1)
    nodes.start(1)
    nodes.settle()
    assert Asking(nodes, 1).topics() == expected


def test_what_a_snapshot_takes_away_is_told_to_those_who_have_it_open(nodes):
    admin = Asking(nodes, 0)
    admin.token(frames.CreateUser, name="ann", roles=("admin",))
    token = admin.token(frames.CreateUser, name="bob", roles=("admin",))
    nodes.settle()
    bob, local = Asking(nodes, 1, token), Asking(nodes, 1)
    nodes.put_on(1)
    local.create("orders")
    nodes.put_on(2)
    assert isinstance(local.ask(frames.OpenProducer, topic="orders"), frames.ProducerOpened)
    nodes.settle()
    nodes.links.cut([nodes.machines[1].address], [nodes.root.address])
    admin.done(frames.DeleteUser, name="bob")
    admin.done(frames.DeleteTopic, topic="orders")
    for number in range(6):
        admin.create(f"t{number}")
    assert not bob.is_lost
    nodes.links.heal()
    nodes.settle()
    nodes.until(lambda: bob.is_lost, 5, "bob is hung up on")
    assert frames.HandleEnded in map(type, local.told)
    assert list(nodes.machines[1].node.node._wiring.partitions) == []


def test_a_new_node_is_ready_when_it_has_caught_up_and_a_root_at_once(nodes):
    Asking(nodes, 1).create("orders")
    nodes.settle()
    told: list[str] = []
    nodes.machines[0].node.when_caught_up(lambda: told.append("root"))
    assert told == ["root"]
    newcomer = nodes.add_machine()
    newcomer.start([nodes.machines[2].address])
    newcomer.node.when_caught_up(lambda: told.append("newcomer"))
    assert not newcomer.node.is_caught_up
    nodes.until(lambda: "newcomer" in told, 20, "it has caught up")
    assert Asking(nodes, 3).topics() == ["orders"]
    nodes.settle()
    assert told == ["root", "newcomer"]
    assert (
        newcomer.node.node.registering.members()
        == nodes.machines[0].node.node.registering.members()
    )


def test_a_node_of_another_cluster_is_not_told_anything(nodes, caplog):
    stranger = nodes.add_machine()
    nodes.cluster = "another"
    with caplog.at_level(logging.ERROR):
        stranger.start([nodes.root.address])
        nodes.run(10 * SECOND)
    assert not stranger.node.is_caught_up
    assert "belongs to the cluster another, and this is n0" in caplog.text


# --- one that does not keep the rules -------------------------------------------------------------


STRANGER = Contact(7, "evil", 1, "evil:4150")


def lies(request: int, index: int, term: int) -> list[object]:
    """Whatever can be said about group 0, as an answer to this question, behind this entry."""
    entry = Entry(term, int(EntryKind.NODES), index + 1, b"{}")
    return [
        Follow(request, "n0", index, term),
        Entries(request, index, term, (entry,), index + 1),
        SnapshotPiece(request, index + 5, term, 0, 2, b"{}", index + 5),
        Followed(request, index, term),
        Forwarded(request, 0),
        NotFollowed(request, "for no reason"),
        FollowAgain(request),
    ]


def test_the_root_takes_nothing_that_is_meant_for_learners(nodes):
    root = nodes.machines[0].node
    before = root.node.metadata_snapshot()
    for lie in lies(1, before[0], 1):
        root.heard(STRANGER, 0, lie)
        root.end_turn()
    Asking(nodes, 1).create("orders")
    nodes.settle()
    assert Asking(nodes, 0).topics() == ["orders"]


def test_a_learner_believes_the_root_alone(nodes):
    client = Asking(nodes, 1)
    learner = nodes.machines[1].node
    nodes.crash(0)
    request = client.begin(frames.CreateTopic, topic="orders", config=TopicConfig())
    under_way = learner.node.handing_on._forwards._under_way
    nodes.until(lambda: under_way, 1, "it was handed on")
    (number,) = under_way
    before = learner.node.metadata_snapshot()
    core = learner.group0.core
    for lie in (*lies(core._request, core.index, core.term), Forwarded(number, 0)):
        learner.heard(STRANGER, 0, lie)
        learner.end_turn()
        nodes.run(1_000)
    assert learner.node.metadata_snapshot() == before
    assert not client.is_answered(request), "only the root can say that it was done"
    assert core.root is None or core.root.node == "n0"
    nodes.start(0)
    nodes.settle()


# --- damage --------------------------------------------------------------------------------------


def test_a_learner_that_has_lost_entries_is_sent_all_and_loses_no_record(nodes):
    nodes.put_on(1)
    client = Asking(nodes, 1)
    client.create("mine")
    assert isinstance(
        client.ask(frames.Publish, RECORD, topic="mine", partition=0), frames.Published
    )
    nodes.settle()
    nodes.crash(1)
    lose_the_entry_of(nodes, 1, "mine")
    nodes.machines[1].boot()
    node = nodes.machines[1].node.node
    assert "mine" not in node._wiring.catalogue.topics
    assert [hosted.core.topic for hosted in node._wiring.partitions] == ["recovered.1"]
    nodes.machines[1].turn(lambda: nodes.machines[1].node.start([nodes.root.address]))
    nodes.until(lambda: nodes.machines[1].node.is_caught_up, 20, "it has caught up")
    nodes.settle()
    assert len(set(nodes.states())) == 1
    client = Asking(nodes, 1)
    assert client.describe("mine").topics[0].partitions[0].end == 1
    assert isinstance(
        client.ask(frames.Publish, RECORD, topic="mine", partition=0), frames.Published
    )


def test_a_root_that_has_lost_entries_makes_all_others_like_itself(nodes):
    client = Asking(nodes, 0)
    client.create("lost")
    client.create("kept")
    nodes.settle()
    nodes.crash(0)
    lose_the_entry_of(nodes, 0, "lost")
    nodes.start(0)
    nodes.until(lambda: Asking(nodes, 1).topics() == ["kept"], 20, "the others have lost it, too")
    nodes.settle()
    assert len(set(nodes.states())) == 1
    Asking(nodes, 2).create("new")
    nodes.settle()
    assert len(set(nodes.states())) == 1


def test_who_has_not_been_reached_is_not_entered_in_the_registry(nodes):
    """It would stay there for ever, and a small ring would wait for it."""
    registering = nodes.root.node.node.registering
    held = []
    registering.reach = lambda who, then: held.append((who, then))
    who = Contact(7, "e" * 32, 1, "nowhere:4150")
    answers = []
    registering.enrol(who, lambda *answer: answers.append(answer))
    nodes.run()
    assert who not in registering.members()[1]
    ((asked, then),) = held
    assert asked == who
    then()
    nodes.root.node.end_turn()
    nodes.until(lambda: bool(answers), 5, "an answer")
    assert who in registering.members()[1]
    registering.enrol(who, lambda *answer: answers.append(answer))
    assert (len(held), len(answers)) == (1, 2)
