"""One metadata for all nodes: asked for anywhere, known everywhere, whatever fails."""

from __future__ import annotations

import logging
import struct
from dataclasses import replace

import pytest

from hocket import frames
from hocket.core.group0.messages import Forward, Forwarded, RootIs
from hocket.core.metadata.metadata import GROUP
from hocket.core.raft.membership import Configuration
from hocket.core.raft.messages import AskVote, Entries, Heartbeat, Snapshot
from hocket.core.relay.messages import Piece
from hocket.core.ring.contact import Contact
from hocket.errors import NewerFormat
from hocket.frames import packed
from hocket.log.model import LogEnd
from hocket.model import Grant, Start, TopicConfig
from hocket.node.raft_mail import Letter, RaftBeat, RaftMail, State, packed_state, row_of
from hocket.wire import batch as batches
from tests.support.node.cluster import SECOND, Asking, Nodes, lose_the_entry_of

RECORD = batches.encode([b"record"], timestamps=5)


@pytest.fixture
def nodes() -> Nodes:
    """Three voters; `n0` leads."""
    nodes = Nodes()
    nodes.until(lambda: voters(nodes) == ("n0", "n1", "n2"), 5, "all three vote")
    nodes.settle()
    return nodes


@pytest.fixture
def pair() -> Nodes:
    """Two nodes, of which `n0` alone votes."""
    return Nodes(nodes=2)


def replica_of(nodes: Nodes, number: int):
    return nodes.machines[number].node.node.group0.replica


def voters(nodes: Nodes) -> tuple[str, ...]:
    found = nodes.root.node.node.group0.replica.raft.group.configuration
    return () if found.is_joint else found.voters


def until_led(nodes: Nodes, *, but: int, seconds: int = 8) -> None:
    nodes.until(
        lambda: nodes.root is not nodes.machines[but] and nodes.root.leads, seconds, "a new root"
    )


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


def test_another_node_is_the_root_soon_after_the_root_dies(nodes):
    client = Asking(nodes, 1)
    client.create("orders")
    nodes.settle()
    term = nodes.root.node.node.group0.term
    nodes.crash(0)
    died_at = nodes.now_us
    until_led(nodes, but=0)
    assert nodes.now_us - died_at < 6 * SECOND
    group0 = nodes.root.node.node.group0
    assert group0.term > term
    client.create("more")
    client.token(frames.CreateUser, name="ann", roles=("admin",))
    # A node can join while the founder is dead, and the beacon tells all where the root is.
    newcomer = nodes.add_machine()
    newcomer.start([nodes.machines[2].address])
    nodes.until(lambda: newcomer.node.is_caught_up, 20, "the newcomer has caught up")
    assert Asking(nodes, 3).topics() == ["more", "orders"]
    nodes.until(lambda: newcomer.node.ring.core.beacon.root == nodes.root.address, 20, "its beacon")
    assert newcomer.node.ring.core.beacon.epoch == group0.term
    nodes.start(0)
    nodes.settle()
    assert len(set(nodes.states())) == 1
    assert Asking(nodes, 0).topics() == ["more", "orders"]


def test_a_change_that_was_asked_for_when_the_root_died_is_made_by_the_next(nodes):
    client = Asking(nodes, 1)
    nodes.crash(0)
    client.create("orders")  # the node goes on asking, whoever leads
    nodes.settle()
    assert client.topics() == ["orders"]


def test_a_root_that_is_cut_off_answers_who_waits_and_goes_back_to_what_is_committed(nodes):
    admin = Asking(nodes, 0)
    admin.create("orders")
    nodes.settle()
    others = [nodes.machines[1].address, nodes.machines[2].address]
    nodes.links.cut([nodes.machines[0].address], others)
    lost = admin.begin(frames.CreateTopic, topic="lost", config=TopicConfig())
    user = admin.begin(frames.CreateUser, name="ann", roles=("admin",))
    until_led(nodes, but=0)
    for request in (lost, user):
        refused = admin.answer_to(request)
        assert isinstance(refused, frames.Failure)
        assert (refused.code, refused.may_have_happened) == ("rootAway", True)
    assert not nodes.machines[0].leads
    assert nodes.machines[0].node.ring.core.root is None
    assert admin.refused(frames.CreateTopic, topic="x", config=TopicConfig()).code == "rootAway"
    Asking(nodes, 1).create("lost", partitions=2)  # the name was never taken
    nodes.links.heal()
    nodes.settle()
    assert len(set(nodes.states())) == 1
    assert admin.describe("lost").topics[0].config.partitions == 2
    assert isinstance(
        admin.ask(frames.CreateUser, name="ann", roles=("admin",)), frames.TokenIssued
    )


def test_without_a_majority_changes_are_refused_and_all_else_goes_on(nodes):
    nodes.put_on(1)
    client = Asking(nodes, 1)
    client.create("orders")
    nodes.settle()
    nodes.crash(0)
    nodes.crash(2)
    nodes.run(6 * SECOND)
    asked_at = nodes.now_us
    refused = client.refused(frames.CreateTopic, topic="more", config=TopicConfig())
    assert (refused.code, refused.may_have_happened) == ("rootAway", False)
    assert "no node is known to lead" in refused.message
    assert nodes.now_us - asked_at < SECOND
    assert client.topics() == ["orders"]
    published = client.ask(frames.Publish, RECORD, topic="orders", partition=0)
    assert isinstance(published, frames.Published)
    assert client.refused(frames.OpenProducer, topic="more").code == "rootAway"  # who knows
    nodes.start(2)
    nodes.until(lambda: nodes.root.leads, 20, "two of three elect a root")
    client.create("more")


def test_two_nodes_depend_on_the_first(pair):
    client = Asking(pair, 1)
    pair.crash(0)
    refused = client.refused(frames.CreateTopic, topic="more", config=TopicConfig())
    assert (refused.code, refused.may_have_happened) == ("rootAway", True)
    pair.run(6 * SECOND)
    assert not pair.machines[1].leads
    pair.start(0)
    back_at = pair.now_us
    pair.until(lambda: pair.root.leads, 5, "it leads again")
    assert pair.now_us - back_at < SECOND // 2, "whose vote is the only one asks nobody"
    pair.settle()
    client.create("more")


def test_when_the_only_voter_is_back_changes_go_on_within_about_a_second(pair):
    """However long it was away; and though the ring takes it back later, since it flaps."""
    client = Asking(pair, 1)
    for _ in range(4):
        pair.crash(0)
        pair.run(7 * SECOND)
        pair.start(0)
        back_at = pair.now_us
        pair.until(lambda: pair.machines[1].node.group0.root() is not None, 20, "it is heard")
        assert pair.now_us - back_at < 2 * SECOND
    assert pair.machines[0].waits_to_join
    client.create("more")


def test_voters_come_and_go_with_the_nodes():
    nodes = Nodes(nodes=1, nodes_max=8)
    assert voters(nodes) == ("n0",)
    for number in range(1, 7):
        nodes.add_machine().start([nodes.machines[0].address])
        nodes.until(lambda: nodes.machines[-1].node.is_caught_up, 20, "it has caught up")
        count = {1: 1, 6: 5}.get(number, 3)
        nodes.until(lambda count=count: len(voters(nodes)) == count, 20, f"{count} voters")
    for number in (6, 5, 4, 3, 2):
        gone: list[bool] = []
        nodes.machines[number].leave(lambda gone=gone: gone.append(True))
        nodes.until(lambda gone=gone: bool(gone), 20, "it has left")
        nodes.run(3 * SECOND)
    nodes.until(lambda: voters(nodes) == ("n0",), 20, "one voter")
    nodes.machines[1].crash(power=True)
    nodes.run(8 * SECOND)
    Asking(nodes, 0).create("orders")  # nobody else is needed


def test_a_voter_that_is_dead_is_replaced():
    nodes = Nodes(nodes=4)
    nodes.until(lambda: len(voters(nodes)) == 3, 10, "three voters")
    nodes.run(2 * SECOND)
    dead = next(each for each in voters(nodes) if each != "n0")
    nodes.machines[int(dead[1:])].crash(power=True)
    nodes.until(
        lambda: dead not in voters(nodes) and len(voters(nodes)) == 3, 30, "another one votes"
    )


def test_a_root_that_was_deposed_ceases_at_once_though_its_disk_is_busy():
    """It waits for a checkpoint with its new configuration, and what follows waits behind that."""
    nodes = Nodes(nodes=4)
    nodes.until(lambda: len(voters(nodes)) == 3, 10, "three voters")
    nodes.run(2 * SECOND)
    root = nodes.root
    replica = replica_of(nodes, 0)
    replica.log.checkpoint_now = lambda _done: None  # it does not end
    other = next(int(each[1:]) for each in voters(nodes) if each != root.name)
    nodes.crash(other)
    nodes.until(lambda: replica._is_blocked, 10, "voters have changed")
    nodes.start(other)
    nodes.links.cut([root.address], [each.address for each in nodes.machines[1:]])
    until_led(nodes, but=0)
    nodes.links.heal()
    nodes.until(lambda: replica.raft.group.term == nodes.root.node.node.group0.term, 5, "it hears")
    assert replica._is_blocked
    assert not root.leads
    assert root.node.group0.root().contact.node == nodes.root.name
    Asking(nodes, int(nodes.root.name[1:])).create("orders")


def test_a_root_that_is_cut_off_hands_no_vote_to_the_dead():
    """The change would come into force when the cut is healed, and nobody could lead any more."""
    nodes = Nodes(nodes=4)
    nodes.until(lambda: len(voters(nodes)) == 3, 10, "three voters")
    nodes.run(2 * SECOND)
    root, before = nodes.root, voters(nodes)
    cut_off, lost = (each for each in nodes.machines if each.name in {*before} - {root.name})
    (learner,) = (each for each in nodes.machines if each.name not in before)
    learner.crash(power=True)
    nodes.links.cut([root.address], [cut_off.address])
    deaths = root.node.ring.core.pointers.deaths
    nodes.run(SECOND * 3 // 10)
    deaths.convicted[cut_off.me] = nodes.now_us  # the ring has given it up, and not the learner
    lost.crash(power=True)
    nodes.run(SECOND // 5)
    assert root.leads
    nodes.links.heal()
    nodes.run(3 * SECOND)
    nodes.until(lambda: any(each.leads for each in nodes.machines), 10, "two of three elect one")
    Asking(nodes, int(nodes.root.name[1:])).create("orders")


def test_a_node_that_returns_is_ready_before_the_ring_takes_it_back(nodes):
    """The flapping rule delays its place on the ring, not what it serves."""
    for _ in range(4):
        nodes.until(lambda: nodes.root.leads, 10, "a root")
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


def test_a_founder_that_was_stopped_with_all_others_follows_whoever_is_the_root_now(nodes):
    """It has struck all others, and nothing told it their addresses but its own registry."""
    for machine in nodes.machines:
        machine.leave(lambda: None)
    nodes.until(lambda: not any(each.up for each in nodes.machines), 20, "all have left")
    founder, *others = nodes.machines
    for machine in others:
        machine.start([founder.address])
    until_led(nodes, but=0)
    founder.start([])
    members, left = founder.node.node.registering.members()[1], founder.node.node.registering.left
    assert {each.node for each in members} <= {"n0"}
    assert {each.node for each in left} >= {"n1", "n2"}
    nodes.until(
        lambda: all(len(each.node.ring.core.successors) == 2 for each in nodes.machines), 10,
        "all are on the ring",
    )  # fmt: skip
    nodes.until(lambda: voters(nodes) == ("n0", "n1", "n2"), 10, "all three vote")


def test_a_request_is_done_once_though_its_answer_is_lost_and_the_root_dies(nodes):
    """The root carries it out, and dies before the one who asked hears of it."""
    client = Asking(nodes, 1)
    client.create("orders")
    nodes.settle()
    root, one = nodes.root.address, nodes.machines[1].address
    nodes.links.cut([root], [one], one_way=True)
    config = TopicConfig(partitions=2)
    request = client.begin(frames.AlterTopic, topic="orders", config=config)
    nodes.run(SECOND // 4)
    assert not client.is_answered(request)
    assert nodes.machines[2].node.node.topics["orders"].config.partitions == 2, "it is done"
    nodes.crash(0)
    nodes.links.heal()
    assert isinstance(client.answer_to(request), frames.Done)
    nodes.settle()
    done = nodes.machines[1].node.node._wiring.metadata.done._nodes["n1"]
    assert len(done) == 2, "each was done by one entry"


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
        root.heard(nodes.machines[1].me, 0, replace(message, term=message.term + 1))
        root.heard(STRANGER, 0, message)
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
    for number in range(6):
        client.create(f"t{number}")
    nodes.run(3 * SECOND)  # a checkpoint, behind which no entry is kept: a state is sent
    assert nodes.root.node.node.store.replicated.bounds(GROUP)[0] > replica_started(nodes)
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


def replica_started(nodes: Nodes) -> int:
    return nodes.machines[1].seen_metadata + 1


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
    others = [nodes.machines[0].address, nodes.machines[2].address]
    nodes.links.cut([nodes.machines[1].address], others)
    admin.done(frames.DeleteUser, name="bob")
    admin.done(frames.DeleteTopic, topic="orders")
    for number in range(6):
        admin.create(f"t{number}")
    nodes.run(3 * SECOND)
    assert not bob.is_lost
    nodes.links.heal()
    nodes.settle()
    nodes.until(lambda: bob.is_lost, 5, "bob is hung up on")
    assert frames.HandleEnded in map(type, local.told)
    assert list(nodes.machines[1].node.node._wiring.partitions) == []


def test_a_new_node_is_ready_when_it_has_caught_up(nodes):
    Asking(nodes, 1).create("orders")
    nodes.settle()
    told: list[str] = []
    nodes.machines[0].node.when_caught_up(lambda: told.append("root"))
    assert told == ["root"], "it has caught up long ago"
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
    assert stranger.node.node.metadata_index == 0
    assert "belongs to the cluster another, and this is n0" in caplog.text
    assert "belongs to the cluster another, and node n0 to n0" in caplog.text


# --- one that does not keep the rules -------------------------------------------------------------


STRANGER = Contact(7, "evil", 1, "evil:4150")


def lies(index: int, term: int) -> list[object]:
    """Whatever can be said about group 0."""
    end = LogEnd(index + 6, 0, 0, term)
    state = packed_state(State(end, end, 0, b"{}"), Configuration(("evil",)))
    letters = [
        Letter(GROUP, AskVote(term, index + 9, term)),
        Letter(GROUP, Heartbeat(term, index + 9)),
        Letter(GROUP, Entries(term, index, term, (), index)),
        Letter(GROUP, Snapshot(term, index + 5, term, Configuration(("evil",))), state, 0, 1),
    ]
    mails = [
        RaftMail(row_of(each), (Piece(0, 1, each.data),) if each.data else ()) for each in letters
    ]
    beat = RaftBeat(9, 9, struct.pack("<3Q", GROUP, term, index + 9), b"")
    return [*mails, beat, Forwarded(1, 0, term=term), RootIs(0, "n0", "evil", "evil:1", term)]


@pytest.mark.parametrize("number", [0, 1])
def test_who_is_no_member_is_not_believed(nodes, number, caplog):
    machine = nodes.machines[number]
    before, group = machine.node.node.metadata_snapshot(), replica_of(nodes, number).raft.group
    term, leader = group.term, group.leader
    refused = machine.node.replicas.refused
    refused.clear()
    for _ in range(2):
        for lie in lies(before[0], term + 1):
            machine.turn(lambda lie=lie: machine.node.heard(STRANGER, 0, lie))
    nodes.run()
    assert (group.term, group.leader) == (term, leader)
    assert machine.node.node.metadata_snapshot() == before
    assert refused["it is no member of group 0"] == 10
    assert caplog.text.count("refused what node evil says: it is no member of group 0") == 1
    Asking(nodes, number).create("orders")
    nodes.settle()


def test_a_node_that_belongs_nowhere_yet_believes_only_who_was_named_to_it(nodes):
    newcomer = nodes.add_machine()
    newcomer.boot()
    for lie in lies(0, 9):
        newcomer.turn(lambda lie=lie: newcomer.node.heard(STRANGER, 0, lie))
    assert newcomer.node.node.metadata_index == 0
    assert newcomer.node.node.group0.term == 0
    newcomer.turn(lambda: newcomer.node.start([nodes.root.address]))
    nodes.until(lambda: newcomer.node.is_caught_up, 20, "it has caught up")


def test_only_the_root_can_say_that_a_request_is_done(nodes):
    client = Asking(nodes, 1)
    nodes.links.cut([nodes.machines[1].address], [nodes.root.address])
    request = client.begin(frames.CreateTopic, topic="orders", config=TopicConfig())
    handing_on = nodes.machines[1].node.node.handing_on
    nodes.until(lambda: handing_on._forwards._under_way, 1, "it was handed on")
    (number,) = handing_on._forwards._under_way
    term = nodes.root.node.node.group0.term
    for sender, answer in (
        (STRANGER, Forwarded(number, 0, term=term)),
        (nodes.machines[2].me, Forwarded(number, 0, term=term)),
        (nodes.root.me, Forwarded(number, 0, term=term - 1)),
    ):
        nodes.machines[1].node.heard(sender, 0, answer)
        nodes.run(1_000)
        assert not client.is_answered(request)
    nodes.links.heal()
    assert isinstance(client.answer_to(request), frames.Done)


def test_what_a_newer_version_has_written_is_not_guessed_at(nodes, caplog):
    metadata = nodes.machines[1].node.node._wiring.metadata

    def refuse(kind: int, index: int, body: bytes) -> None:
        raise NewerFormat(f"entry {index} is of kind {kind}")

    metadata.followed = refuse
    Asking(nodes, 0).create("orders")
    nodes.run(SECOND)
    assert replica_of(nodes, 1).stopped
    assert "group 0 stops at this node: entry" in caplog.text
    assert Asking(nodes, 0).topics() == ["orders"], "the others go on"


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
    assert list(node._wiring.unclaimed) == [1]
    nodes.machines[1].turn(lambda: nodes.machines[1].node.start([nodes.root.address]))
    nodes.until(lambda: nodes.machines[1].node.is_caught_up, 20, "it has caught up")
    nodes.settle()
    assert len(set(nodes.states())) == 1
    client = Asking(nodes, 1)
    assert client.describe("mine").topics[0].partitions[0].end == 1
    assert isinstance(
        client.ask(frames.Publish, RECORD, topic="mine", partition=0), frames.Published
    )


def test_a_log_whose_topic_is_not_known_yet_is_claimed_or_deleted_when_it_is(nodes):
    """A node that starts again does not know which of its last entries are committed."""
    nodes.put_on(1)
    client = Asking(nodes, 1)
    nodes.run(3 * SECOND)
    for name in ("kept", "gone"):
        client.create(name, partitions=2)
        client.ask(frames.Publish, RECORD, topic=name, partition=1)
    nodes.crash(1)
    Asking(nodes, 0).done(frames.DeleteTopic, topic="gone")
    nodes.machines[1].boot()
    node = nodes.machines[1].node.node
    assert sorted(node._wiring.unclaimed) == [2, 4], "those that have entries"
    nodes.run(3 * SECOND)  # a checkpoint
    nodes.machines[1].turn(lambda: nodes.machines[1].node.start([nodes.root.address]))
    nodes.settle()
    assert not node._wiring.unclaimed
    assert 4 not in node._wiring.log._groups
    ends = [each.end for each in Asking(nodes, 1).describe("kept").topics[0].partitions]
    assert ends == [0, 1]


def test_a_lone_root_that_has_lost_entries_makes_all_others_like_itself(pair):
    client = Asking(pair, 0)
    client.create("lost")
    client.create("kept")
    pair.settle()
    pair.crash(0)
    lose_the_entry_of(pair, 0, "lost")
    pair.start(0)
    pair.until(lambda: Asking(pair, 1).topics() == ["kept"], 20, "the other has lost it, too")
    pair.settle()
    assert len(set(pair.states())) == 1
    Asking(pair, 1).create("new")
    pair.settle()
    assert len(set(pair.states())) == 1


def test_a_voter_that_has_lost_entries_is_sent_them_again(nodes):
    client = Asking(nodes, 0)
    client.create("lost")
    client.create("kept")
    nodes.settle()
    nodes.crash(0)
    lose_the_entry_of(nodes, 0, "lost")
    nodes.start(0)
    assert replica_of(nodes, 0).is_faulty, "it does not vote before it has them"
    nodes.settle()
    assert not replica_of(nodes, 0).is_faulty
    assert len(set(nodes.states())) == 1
    assert Asking(nodes, 0).topics() == ["kept", "lost"]


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
