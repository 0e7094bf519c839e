"""A session by plain calls: every kind of frame, before and after Hello, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, strategies as st

from hocket import frames
from hocket.cluster_model import NodeAddress
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.roster import Change
from hocket.core.session.failures import FAILURE_TEXT_MAX
from hocket.core.session.session import (
    DELAY_US_MAX,
    Caller,
    Demand,
    Effect,
    Hangup,
    OpenedFeed,
    OpenedProducer,
    OpenedSubscription,
    Reply,
    Session,
    failure,
    offset_of,
)
from hocket.core.transactions.participants import PARTICIPANTS_MAX
from hocket.errors import BY_CODE, Fenced, HocketError, NotHere, OutOfRange, ReplyLost
from hocket.frames import Frame, packed
from hocket.model import OWN_PRODUCERS, Grant, Limits, Participant, Start, TopicConfig
from tests.support.core.logged import ALICE, origin

LIMITS = Limits(handles_max=5, credit_bytes_max=1_000)
PRODUCER, SUBSCRIPTION, READER, SHARED = 1, 2, 3, 4  # the handles that `greeted` has open


def new_session() -> Session:
    """Topic orders has partitions 0, 1 and 2; there is no other."""
    catalogue = Catalogue()
    catalogue.durable(catalogue.create(origin(1), "orders", TopicConfig(partitions=3)).index)
    return Session(catalogue, node="n1", software="hocket 0", limits=LIMITS)


def greeted() -> Session:
    session = new_session()
    session.step(frames.Hello(1, client="me"))
    assert session.open(OpenedProducer("orders", ALICE, 1)) == PRODUCER
    opened = OpenedSubscription("orders", "billing", [0, 1], {0: 1, 1: 1}, whole_topic=False)
    assert session.open(opened) == SUBSCRIPTION
    opened = OpenedSubscription("orders", "", [0], {}, whole_topic=False)
    assert session.open(opened) == READER
    opened = OpenedSubscription(
        "orders", "workers", [0, 1], {}, whole_topic=False, mode="key_shared"
    )
    assert session.open(opened) == SHARED
    return session


def answered(session: Session, frame: Frame) -> Effect:
    (effect,) = session.step(frame)
    return effect


def refused(session: Session, frame: Frame) -> frames.Failure:
    """The Failure that a frame is answered with, on a connection that goes on."""
    effect = answered(session, frame)
    assert isinstance(effect, Reply)
    assert isinstance(effect.frame, frames.Failure)
    assert effect.frame.request == frame.request
    assert not effect.frame.may_have_happened
    return effect.frame


def hung_up_on(session: Session, frame: Frame) -> frames.Failure:
    effect = answered(session, frame)
    assert isinstance(effect, Hangup)
    assert isinstance(effect.frame, frames.Failure)
    assert effect.frame.request == frame.request
    return effect.frame


CONFIG = TopicConfig()

# Every kind of frame, as a client would send it if it may. A new kind in frames.Frame belongs here.
FROM_CLIENTS: dict[type, Frame] = {
    type(frame): frame
    for frame in (
        frames.Hello(7),
        frames.Goodbye(7, "done"),
        frames.Ping(7),
        frames.Done(7),
        frames.CreateTopic(7, "new", CONFIG),
        frames.AlterTopic(7, "orders", CONFIG),
        frames.DeleteTopic(7, "orders"),
        frames.ListTopics(7),
        frames.DescribeTopic(7, "orders"),
        frames.FindOffsets(7, "orders", Start()),
        frames.OpenProducer(7, "orders"),
        frames.Push(7, PRODUCER, 0),
        frames.Publish(7, "orders"),
        frames.CloseHandle(7, PRODUCER),
        frames.OpenSubscription(7, "orders", "billing"),
        frames.OpenFeed(7, "orders", "billing", packed([0, 1, 5]), 10),
        frames.Credit(7, SUBSCRIPTION, 10),
        frames.Commit(7, SUBSCRIPTION, packed([0, 5])),
        frames.ListIndexes(7, "orders"),
        frames.SeekIndex(7, "orders", "billing", Start()),
        frames.SkipUnreadable(7, "orders", "billing", 1, 5),
        frames.Revive(7, "orders", "billing", 1, packed([5]), packed([0]), 0),
        frames.DeleteMessages(7, "orders", packed([5, 5, 5])),
        frames.DeleteIndex(7, "orders", "billing"),
        frames.Settle(7, SHARED, "ack", packed([0, 5, 6])),
        frames.CommitTransaction(7, "t", 1, ()),
        frames.NameParticipants(7, "t", 1, 0, ()),
        frames.AbortTransaction(7, "t", 1, (b"p" * 16,)),
        frames.CreateUser(7, "ann", ("admin",)),
        frames.RenewToken(7, "ann"),
        frames.DeleteUser(7, "ann"),
        frames.SetRoles(7, "ann", ()),
        frames.CreateRole(7, "writer"),
        frames.DeleteRole(7, "writer"),
        frames.AddGrant(7, "writer", Grant("publish")),
        frames.RemoveGrant(7, "writer", Grant("publish")),
        frames.DescribeAccess(7),
        frames.ExplainAccess(7, "ann", "publish", "orders"),
        frames.DescribeRing(7),
        frames.LookUpKey(7, "a key"),
        frames.ListNodes(7),
        frames.FindLeaders(7, "orders"),
        frames.DescribeTree(7, "orders"),
        frames.ReadAudit(7, 5),
        frames.DescribeCluster(7),
        frames.SetCluster(7, 3),
        frames.DescribePlugins(7),
        frames.RegisterName(7, "chat", "thread", b"l" * 16, b"k" * 32),
        frames.ReleaseName(7, "chat", b"l" * 16),
        frames.FindName(7, "chat"),
        frames.ListNames(7),
        frames.OpenPipe(7, "chat"),
        frames.TakePipe(7, b"p" * 16),
    )
}
FROM_BROKERS: dict[type, Frame] = {
    type(frame): frame
    for frame in (
        frames.Welcome(7, 1, "n1", "hocket 0", (), LIMITS),
        frames.Failure(7, "busy", "later"),
        frames.Topics(7, ()),
        frames.Offsets(7, b""),
        frames.ProducerOpened(7, 1, ALICE, 1, 3, b""),
        frames.PushAcked(7, 1, 0, 0, b""),
        frames.PushRefused(7, 1, 0, 0, "busy", "later"),
        frames.Published(7, 0, 0),
        frames.SubscriptionOpened(7, 1, b""),
        frames.Deliver(7, 1, 0, 0, 0),
        frames.Moved(7, 1, 0, 0, 0),
        frames.HandleEnded(7, 1, "fenced", "gone"),
        frames.PartitionsChanged(7, 1, 4),
        frames.Indexes(7, ()),
        frames.Lease(7, 1, 0, 0, b""),
        frames.Settled(7, b""),
        frames.TokenIssued(7, ""),
        frames.Access(7, (), ()),
        frames.Explained(7, True, ""),
        frames.RingIs(7, "c", True, 8, (), ()),
        frames.KeyIsOwned(7, 5, "n1", ()),
        frames.NodesAre(7, ()),
        frames.LeadersAre(7, (), b""),
        frames.AuditIs(7, (), 0, ()),
        frames.ClusterIs(7, "c", 3, 3, 8),
        frames.TreeIs(7, (), ()),
        frames.NameIs(7, "thread", b"l" * 8, "", b"", "", b"{}", b"s" * 32),
        frames.NamesAre(7, ()),
        frames.PipeWanted(7, "chat", b"p" * 16),
        frames.PipeIs(7),
        frames.DeliverAlike(7, b"", 0, 0, 0),
        frames.PluginsAre(7, "n1", "", ()),
    )
}
EVERY_KIND = FROM_CLIENTS | FROM_BROKERS
by_name = pytest.mark.parametrize("kind", EVERY_KIND, ids=lambda kind: kind.__name__)


def test_every_kind_of_frame_is_tested_here():
    assert set(EVERY_KIND) == set(get_args(Frame))
    assert not set(FROM_CLIENTS) & set(FROM_BROKERS)


# --- hello ---------------------------------------------------------------------------------------


def test_welcome_names_the_cluster_the_node_and_others_of_it():
    others = (NodeAddress("other", "o:1"),)
    session = Session(
        Catalogue(me="me"), node="n1", software="hocket 0", limits=LIMITS, cluster="c1",
        nodes=lambda: others,
    )  # fmt: skip
    welcome = answered(session, frames.Hello(3)).frame
    assert (welcome.cluster, welcome.id, welcome.nodes) == ("c1", "me", others)


def test_a_failure_names_the_node_to_ask_instead():
    error = NotHere("elsewhere", node="other", address="o:1")
    assert failure(7, error) == frames.Failure(7, "notHere", "elsewhere", False, "other", "o:1")


def test_hello_is_answered_by_who_we_are_and_what_we_allow():
    session = new_session()
    effect = answered(session, frames.Hello(3, client="me", features=("unheard-of",)))
    features = (frames.COMMIT_IN_PARTS, frames.DELAYED)
    assert effect == Reply(frames.Welcome(3, 1, "n1", "hocket 0", features, LIMITS))
    assert (session.greeted, session.client) == (True, "me")


@by_name
def test_nothing_but_hello_is_listened_to_before_hello(kind):
    session = new_session()
    if kind is frames.Hello:
        assert isinstance(answered(session, EVERY_KIND[kind]), Reply)
        return
    last_word = hung_up_on(session, EVERY_KIND[kind])
    assert last_word.code == "protocol"
    assert last_word.message == f"the first frame must be Hello, not {kind.__name__}"
    assert not session.greeted


@pytest.mark.parametrize(("least", "most"), [(2, 2), (2, 9), (0, 0), (1, 0), (2, 1)])
def test_a_client_without_a_version_in_common_is_sent_away(least, most):
    session = new_session()
    last_word = hung_up_on(session, frames.Hello(3, least, most))
    assert last_word.code == "wrongVersion"
    assert f"version 1 of the protocol, the client {least} to {most}" in last_word.message
    assert not session.greeted


@pytest.mark.parametrize(("least", "most"), [(1, 1), (0, 1), (1, 9)])
def test_a_range_of_versions_with_ours_in_it_will_do(least, most):
    effect = answered(new_session(), frames.Hello(3, least, most))
    assert isinstance(effect, Reply)
    assert isinstance(effect.frame, frames.Welcome)
    assert effect.frame.version == frames.PROTOCOL_VERSION


# --- every kind, after hello ---------------------------------------------------------------------


@by_name
def test_after_hello_every_kind_is_handled_or_refused_with_words(kind):
    frame = EVERY_KIND[kind]
    effect = answered(greeted(), frame)
    if kind in FROM_BROKERS or kind is frames.Hello:
        assert isinstance(effect, Hangup)
        assert effect.frame == frames.Failure(
            7, "protocol", f"{kind.__name__} is not for a client to send here"
        )
    elif kind is frames.Ping:
        assert effect == Reply(frames.Done(7))
    elif kind is frames.Goodbye:
        assert effect == Hangup()  # the client is not there any more to hear a last word
    else:
        assert isinstance(effect, Demand)
        assert effect.frame is frame


@pytest.mark.parametrize(
    ("frame", "partitions"),
    [
        (frames.Push(7, PRODUCER, 2), (2,)),
        (frames.Publish(7, "orders"), (-1,)),
        (frames.Publish(7, "orders", 1), (1,)),
        (frames.OpenSubscription(7, "orders"), (0, 1, 2)),
        (frames.OpenSubscription(7, "orders", partitions=packed([2, 0])), (2, 0)),
        (frames.SeekIndex(7, "orders", "billing", Start()), (0, 1, 2)),
        (frames.SeekIndex(7, "orders", "billing", Start(), 1), (1,)),
        (frames.SkipUnreadable(7, "orders", "billing", 1, 5), (1,)),
        (frames.Revive(7, "orders", "billing", 1, packed([5]), packed([0]), 0), (1,)),
        (frames.DeleteIndex(7, "orders", "billing"), (0, 1, 2)),
    ],
)
def test_a_demand_names_topic_and_partitions(frame, partitions):
    effect = answered(greeted(), frame)
    assert isinstance(effect, Demand)
    assert effect.topic is not None
    assert (effect.topic.name, effect.partitions) == ("orders", partitions)


def test_a_demand_names_what_its_handle_stands_for():
    session = greeted()
    for frame in (
        frames.Push(7, PRODUCER, 0),
        frames.Credit(7, SUBSCRIPTION, 1),
        frames.Commit(7, SUBSCRIPTION, b""),
        frames.CloseHandle(7, READER),
    ):
        opened = session.handles[frame.handle]
        effect = answered(session, frame)
        assert isinstance(effect, Demand)
        assert effect.opened is opened


# --- handles -------------------------------------------------------------------------------------


def test_what_comes_for_a_handle_that_we_ended_is_passed_over():
    """It was sent before its sender could know; HandleEnded has told, or is about to."""
    session = greeted()
    session.handles.clear()
    assert session.step(frames.Push(0, PRODUCER, 0)) == []
    assert session.step(frames.Credit(0, SUBSCRIPTION, 10)) == []
    assert refused(session, frames.Commit(9, SUBSCRIPTION, b"")).code == "unknownHandle"
    assert refused(session, frames.Push(0, SHARED + 1, 0)).code == "unknownHandle"


def test_handles_are_never_used_twice():
    session = greeted()
    answered(session, frames.CloseHandle(7, READER))
    assert session.open(OpenedProducer("orders", ALICE, 1)) == SHARED + 1
    assert refused(session, frames.CloseHandle(7, READER)).code == "unknownHandle"


@pytest.mark.parametrize(
    "frame",
    [
        frames.Push(7, 99, 0),
        frames.Push(7, 0, 0),
        frames.Push(7, SUBSCRIPTION, 0),
        frames.Credit(7, 99, 1),
        frames.Credit(7, PRODUCER, 1),
        frames.Commit(7, 99, b""),
        frames.Commit(7, PRODUCER, b""),
        frames.CloseHandle(7, 99),
    ],
)
def test_a_handle_that_is_not_open_or_stands_for_something_else_is_unknown(frame):
    session = greeted()
    before = dict(session.handles)
    answer = refused(session, frame)
    assert answer.code == "unknownHandle"
    assert str(frame.handle) in answer.message
    assert session.handles == before


@pytest.mark.parametrize("kind", [frames.OpenProducer, frames.OpenSubscription])
def test_the_number_of_handles_is_limited_and_closing_makes_room(kind):
    session = greeted()
    assert isinstance(answered(session, kind(7, "orders")), Demand)
    session.open(OpenedProducer("orders", ALICE, 1))
    answer = refused(session, kind(7, "orders"))
    assert (answer.code, "5 producers and subscriptions" in answer.message) == (
        "limitExceeded",
        True,
    )
    answered(session, frames.CloseHandle(7, READER))
    assert isinstance(answered(session, kind(7, "orders")), Demand)


# --- names, partitions, limits -------------------------------------------------------------------


OF_A_TOPIC = [
    frame for kind, frame in FROM_CLIENTS.items()
    if hasattr(frame, "topic")
    and kind not in (
        frames.CreateTopic, frames.AlterTopic, frames.DeleteTopic, frames.ExplainAccess
    )
]  # fmt: skip


@pytest.mark.parametrize("frame", OF_A_TOPIC, ids=lambda frame: type(frame).__name__)
def test_a_topic_that_is_not_there(frame):
    answer = refused(greeted(), replace(frame, topic="nowhere"))
    assert answer.code == "unknownTopic"
    assert "no topic 'nowhere'" in answer.message
    assert refused(greeted(), replace(frame, topic="no way")).code == "badName"


def test_the_topic_of_an_open_producer_may_have_gone():
    catalogue = Catalogue()
    session = Session(catalogue, node="n1", software="hocket 0", limits=LIMITS)
    session.step(frames.Hello(1))
    handle = session.open(OpenedProducer("orders", ALICE, 1))
    assert refused(session, frames.Push(7, handle, 0)).code == "unknownTopic"


@pytest.mark.parametrize(
    "frame",
    [
        frames.Push(7, PRODUCER, 3),
        frames.Push(7, PRODUCER, -1),
        frames.Publish(7, "orders", 3),
        frames.Publish(7, "orders", -2),
        frames.OpenSubscription(7, "orders", partitions=packed([0, 3])),
        frames.OpenSubscription(7, "orders", positions=packed([3, 0])),
        frames.OpenSubscription(7, "orders", partitions=packed([2**64 - 1])),
        frames.SeekIndex(7, "orders", "billing", Start(), 3),
        frames.SeekIndex(7, "orders", "billing", Start(), -2),
        frames.SkipUnreadable(7, "orders", "billing", 3, 0),
        frames.Revive(7, "orders", "billing", 3, packed([5]), packed([0]), 0),
        frames.SkipUnreadable(7, "orders", "billing", -1, 0),
    ],
)
def test_a_partition_that_is_not_there(frame):
    answer = refused(greeted(), frame)
    assert answer.code == "unknownPartition"
    assert "has partitions 0 to 2" in answer.message


def test_a_subscription_commits_only_what_it_has():
    answer = refused(greeted(), frames.Commit(7, SUBSCRIPTION, packed([0, 5, 2, 5])))
    assert (answer.code, "no partition 2" in answer.message) == ("unknownPartition", True)


def test_a_subscription_without_an_index_has_nothing_to_commit_to():
    answer = refused(greeted(), frames.Commit(7, READER, packed([0, 5])))
    assert (answer.code, "no index" in answer.message) == ("outOfRange", True)


@pytest.mark.parametrize(
    "frame",
    [
        frames.OpenSubscription(7, "orders", "bad name"),
        frames.SeekIndex(7, "orders", "", Start()),
        frames.SkipUnreadable(7, "orders", "a b", 0, 0),
        frames.Revive(7, "orders", "a b", 0, packed([5]), packed([0]), 0),
        frames.DeleteIndex(7, "orders", "../x"),
    ],
)
def test_a_bad_name_of_an_index(frame):
    answer = refused(greeted(), frame)
    assert (answer.code, answer.message[:15]) == ("badName", "an index's name")


def opening_shared(**changes: Any) -> frames.OpenSubscription:
    usual = frames.OpenSubscription(
        7, "orders", "workers", "shared", consumer=bytes(16), prefetch=10
    )
    return replace(usual, **changes)


@pytest.mark.parametrize("mode", ["shared", "key_shared"])
def test_a_shared_index_may_be_opened(mode):
    frame = opening_shared(mode=mode, lease_us=10_000, max_deliveries=250, held=packed([0, 1, 2]))
    effect = answered(greeted(), frame)
    assert isinstance(effect, Demand)
    assert effect.partitions == (0, 1, 2)


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"index": ""}, "needs an index"),
        ({"consumer": b"short"}, "16 bytes"),
        ({"prefetch": 0}, "prefetch"),
        ({"prefetch": 20_001}, "prefetch"),
        ({"positions": packed([0, 5])}, "positions"),
        ({"lease_us": 9_999}, "lease"),
        ({"lease_us": 12 * 3_600_000_000 + 1}, "lease"),
        ({"max_deliveries": 251}, "max_deliveries"),
        ({"held": packed([0, 5, 5])}, "range"),
    ],
)
def test_a_shared_index_opened_with_nonsense_is_refused(changes, word):
    answer = refused(greeted(), opening_shared(**changes))
    assert (answer.code, word in answer.message) == ("outOfRange", True)


def test_a_topic_whose_dead_letters_could_not_be_named_cannot_be_shared():
    session = new_session()
    name = "x" * 252
    catalogue = session._catalogue
    catalogue.durable(catalogue.create(origin(1), name, TopicConfig()).index)
    session.step(frames.Hello(1))
    assert refused(session, opening_shared(topic=name)).code == "badName"


def test_a_shared_index_is_settled_and_an_own_one_is_committed():
    session = greeted()
    answer = refused(session, frames.Commit(7, SHARED, packed([0, 5])))
    assert (answer.code, "settle" in answer.message) == ("wrongKind", True)
    answer = refused(session, frames.Settle(7, SUBSCRIPTION, "ack", packed([0, 5, 6])))
    assert (answer.code, "commit" in answer.message) == ("wrongKind", True)
    assert refused(session, frames.Settle(7, PRODUCER, "ack", b"")).code == "unknownHandle"


@pytest.mark.parametrize(
    ("ranges", "code"),
    [([2, 5, 6], "unknownPartition"), ([0, 6, 6], "outOfRange"), ([0, 7, 6], "outOfRange")],
)
def test_what_cannot_be_settled(ranges, code):
    assert refused(greeted(), frames.Settle(7, SHARED, "ack", packed(ranges))).code == code


def test_a_lease_is_extended_within_bounds():
    session = greeted()
    ranges = packed([0, 5, 6])
    assert isinstance(answered(session, frames.Settle(7, SHARED, "extend", ranges)), Demand)
    short = frames.Settle(7, SHARED, "extend", ranges, duration_us=1)
    assert refused(session, short).code == "outOfRange"
    assert isinstance(answered(session, frames.Settle(7, SHARED, "nack", ranges, 1)), Demand)


@pytest.mark.parametrize("data", [packed([0, 5]), b"123"])
def test_ranges_that_are_not_triples(data):
    assert hung_up_on(greeted(), frames.Settle(7, SHARED, "ack", data)).code == "protocol"


def test_a_transaction_needs_a_proper_id():
    session = greeted()
    assert refused(session, frames.CommitTransaction(7, "", 1, ())).code == "badName"
    assert refused(session, frames.AbortTransaction(7, "a b", 1, ())).code == "badName"


# --- participants in parts -----------------------------------------------------------------------


def some(start: int, end: int) -> tuple[Participant, ...]:
    return tuple(Participant("orders", n, ALICE, 1, 1, 0) for n in range(start, end))


def naming(session: Session, start: int, end: int, number: int = 1) -> Demand:
    demand = answered(session, frames.NameParticipants(7, "t", number, start, some(start, end)))
    assert isinstance(demand, Demand)
    session.name(demand.frame)
    return demand


def test_a_commit_has_what_was_named_before_and_what_it_names():
    session = greeted()
    naming(session, 0, 5)  # from an attempt that came to nothing
    naming(session, 0, 2)
    naming(session, 2, 4)
    plain = answered(session, frames.CommitTransaction(7, "other", 1, some(9, 10)))
    assert plain.frame.participants == some(9, 10), "another transaction has nothing to do with it"
    demand = answered(session, frames.CommitTransaction(7, "t", 1, some(4, 5), named=4))
    assert demand.frame == frames.CommitTransaction(7, "t", 1, some(0, 5))
    assert session.named is None
    answer = refused(session, frames.CommitTransaction(7, "t", 1, some(4, 5), named=4))
    assert (answer.code, "0 were" in answer.message) == ("outOfRange", True)


def test_a_commit_that_names_all_of_its_participants_needs_no_others():
    session = greeted()
    naming(session, 0, 5)
    demand = answered(session, frames.CommitTransaction(7, "t", 1, some(0, 2)))
    assert demand.frame.participants == some(0, 2)
    assert session.named is None


def test_participants_are_named_in_order():
    session = greeted()
    naming(session, 0, 2)
    for frame in (
        frames.NameParticipants(7, "t", 1, 3, some(3, 4)),
        frames.NameParticipants(7, "t", 2, 2, some(2, 4)),
        frames.CommitTransaction(7, "t", 1, (), named=3),
    ):
        assert refused(session, frame).code == "outOfRange"


def test_no_more_participants_are_named_than_a_transaction_may_have():
    session = greeted()
    naming(session, 0, PARTICIPANTS_MAX)
    more = frames.NameParticipants(7, "t", 1, PARTICIPANTS_MAX, some(0, 1))
    assert refused(session, more).code == "limitExceeded"


def test_the_text_of_an_error_fits_into_a_frame():
    answer = failure(7, HocketError("a" * 2_000_000))
    assert len(answer.message) == FAILURE_TEXT_MAX
    assert answer.message.endswith("a...")


@pytest.mark.parametrize("length", [1, 15, 17])
def test_a_producer_id_has_16_bytes_or_none(length):
    answer = refused(greeted(), frames.OpenProducer(7, "orders", bytes(length)))
    assert (answer.code, f"not {length}" in answer.message) == ("outOfRange", True)
    for good in (b"", ALICE):
        assert isinstance(answered(greeted(), frames.OpenProducer(7, "orders", good)), Demand)


def test_a_producer_id_of_the_broker_itself_is_not_for_clients():
    own = OWN_PRODUCERS.ljust(16, b"x")
    answer = refused(greeted(), frames.OpenProducer(7, "orders", own))
    assert (answer.code, "the broker's own" in answer.message) == ("outOfRange", True)


@pytest.mark.parametrize("credit", [-1, LIMITS.credit_bytes_max + 1])
def test_the_first_credit_is_limited(credit):
    answer = refused(greeted(), frames.OpenSubscription(7, "orders", credit_bytes=credit))
    assert (answer.code, str(credit) in answer.message) == ("limitExceeded", True)
    most = frames.OpenSubscription(7, "orders", credit_bytes=LIMITS.credit_bytes_max)
    assert isinstance(answered(greeted(), most), Demand)


@pytest.mark.parametrize("credit", [-1, LIMITS.credit_bytes_max + 1])
def test_any_later_credit_is_limited_too(credit):
    answer = refused(greeted(), frames.Credit(7, SUBSCRIPTION, credit))
    assert (answer.code, str(credit) in answer.message) == ("limitExceeded", True)


def test_a_partition_named_twice_is_refused():
    frame = frames.OpenSubscription(7, "orders", partitions=packed([1, 0, 1]))
    answer = refused(greeted(), frame)
    assert (answer.code, "named twice" in answer.message) == ("outOfRange", True)


def test_a_refusal_is_short_however_long_the_request():
    frame = frames.OpenSubscription(7, "orders", partitions=packed([0] * 10_000))
    assert len(refused(greeted(), frame).message) < 1_000


# --- nothing raises ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "frame",
    [
        frames.OpenSubscription(7, "orders", partitions=bytes(9)),
        frames.OpenSubscription(7, "orders", positions=bytes(17)),
        frames.Commit(7, SUBSCRIPTION, bytes(1)),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_half_a_number_is_answered_by_a_failure(frame):
    effect = answered(greeted(), frame)
    assert isinstance(effect, Reply | Hangup)
    assert isinstance(effect.frame, frames.Failure)


@pytest.mark.parametrize(
    "frame",
    [
        frames.OpenSubscription(7, "orders", positions=packed([0, 5, 1])),
        frames.Commit(7, SUBSCRIPTION, packed([0])),
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_partition_without_its_offset_is_answered_by_a_failure(frame):
    effect = answered(greeted(), frame)
    assert isinstance(effect, Reply | Hangup)
    assert isinstance(effect.frame, frames.Failure)


numbers = st.integers(-1, 4) | st.integers(0, 2**64 - 1)
lists = st.lists(st.integers(0, 4) | st.integers(0, 2**64 - 1), max_size=4).map(packed)
pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=3).map(
    lambda them: packed(number for pair in them for number in pair)
)
texts = st.sampled_from(["orders", "nowhere", ""]) | st.text(max_size=9)
GENERATED: dict[str, st.SearchStrategy[Any]] = {
    "request": st.integers(0, 3),
    "handle": numbers,
    "partition": numbers,
    "bytes": numbers,
    "credit_bytes": numbers,
    "epoch": numbers,
    "version_min": numbers,
    "version_max": numbers,
    "positions": pairs,
    "partitions": lists,
    "topic": texts,
    "index": texts,
    "client": texts,
    "reason": texts,
    "mode": st.sampled_from(["own", "shared", "key_shared"]),
    "producer_id": st.binary(max_size=17),
    "start": st.builds(Start, st.sampled_from(["earliest", "latest", "offset", "time"]), numbers),
    "hold_retention": st.booleans(),
}


def fields_of(frame: Frame) -> Iterator[str]:
    return (name for name in type(frame).__dataclass_fields__ if name in GENERATED)


@st.composite
def any_frames(draw: st.DrawFn) -> Frame:
    frame = draw(st.sampled_from(list(EVERY_KIND.values())))
    return replace(frame, **{name: draw(GENERATED[name]) for name in fields_of(frame)})


@given(st.lists(any_frames(), max_size=12))
def test_whatever_comes_is_answered_and_a_refusal_changes_nothing(sequence):
    session = greeted()
    for frame in sequence:
        handles = dict(session.handles)
        (effect,) = session.step(frame)
        if isinstance(effect, Demand):
            assert effect.frame is frame
            continue
        if isinstance(frame, frames.Goodbye):
            assert effect == Hangup()
            continue
        assert effect.frame is not None
        assert effect.frame.request == frame.request
        if isinstance(effect.frame, frames.Failure):
            assert effect.frame.code in BY_CODE
            assert effect.frame.message
            assert session.handles == handles


# --- what the node shares ------------------------------------------------------------------------


def test_a_failure_says_what_its_error_says():
    assert failure(7, Fenced("gone")) == frames.Failure(7, "fenced", "gone", False)
    assert failure(7, ReplyLost("who knows")).may_have_happened


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (Start("earliest"), 10),
        (Start("latest"), 20),
        (Start("offset", 15), 15),
        (Start("offset", 20), 20),
        (Start("offset", 3), 10),
        (Start("time", 5), None),
    ],
)
def test_the_offset_that_a_start_stands_for(start, expected):
    assert offset_of(start, log_start=10, end=20) == expected


def test_an_offset_beyond_the_end_is_out_of_range():
    with pytest.raises(OutOfRange, match="offset 21 lies beyond the partition's end at 20"):
        offset_of(Start("offset", 21), log_start=10, end=20)


def test_a_producer_of_a_transaction_names_it_by_a_proper_name():
    frame = frames.OpenProducer(7, "orders", transaction="job")
    demand = answered(greeted(), frame)
    assert isinstance(demand, Demand)
    assert demand.frame == frame, "without users an id stays as it is"
    assert refused(greeted(), replace(frame, transaction="a/b")).code == "badName"


def test_a_delay_has_a_limit():
    frame = frames.Settle(7, SHARED, "nack", packed([0, 5, 6]), DELAY_US_MAX)
    assert isinstance(answered(greeted(), frame), Demand)
    assert refused(greeted(), replace(frame, duration_us=DELAY_US_MAX + 1)).code == "outOfRange"


@pytest.mark.parametrize(
    "frame",
    [frames.OpenProducer(1, "orders", delayed=True), frames.Publish(1, "orders", 0, delayed=True)],
    ids=lambda frame: type(frame).__name__,
)
def test_delayed_messages_are_for_topics_that_take_them(frame):
    session = greeted()
    refusal = refused(session, frame)
    assert (refusal.code, "hocket topic alter orders --delayed" in refusal.message) == (
        "wrongKind", True,
    )  # fmt: skip
    topic = session._catalogue.topics["orders"]
    topic.config = replace(topic.config, delayed=True)
    demand = answered(session, frame)
    assert isinstance(demand, Demand)
    assert demand.topic is topic


def test_a_transaction_takes_no_delayed_messages():
    frame = frames.OpenProducer(1, "orders", transaction="job", number=1, delayed=True)
    assert refused(greeted(), frame).code == "wrongKind"


def test_what_is_handed_on_is_judged_elsewhere_and_by_the_name_that_is_vouched_for():
    access = Access()
    access.durable(access.change(origin(1), Change("createUser", "ann", ("admin",))).index)
    outside = Caller("somewhere")
    handed_on = (frames.DeleteTopic,)
    for kinds, allowed in ((handed_on, True), ((), False)):
        session = Session(
            Catalogue(), node="n1", software="hocket 0", limits=LIMITS, caller=outside,
            access=access, handed_on=kinds,
        )  # fmt: skip
        session.greet_as("")
        (effect,) = session.step(frames.DeleteTopic(1, "t"))
        assert isinstance(effect, Demand) == allowed
    session.greet_as("ann")
    (effect,) = session.step(frames.DeleteTopic(1, "t"))
    assert isinstance(effect, Demand)


# --- partitions on several nodes -----------------------------------------------------------------


def spread_session() -> Session:
    """Of node `me`, which has partitions 0 and 2 of `orders`; node `it` has 1, 3 and `theirs`."""
    catalogue = Catalogue(me="me", address_of=lambda node: f"{node}:1")
    catalogue.place = lambda _topic, numbers, _count: [
        (("me", "it")[number % 2],) for number in numbers
    ]
    catalogue.durable(catalogue.create(origin(1), "orders", TopicConfig(partitions=4)).index)
    catalogue.place = lambda _topic, numbers, _count: [("it",)] * len(numbers)
    catalogue.durable(catalogue.create(origin(1), "theirs", TopicConfig(partitions=2)).index)
    session = Session(catalogue, node="n1", software="hocket 0", limits=LIMITS)
    session.step(frames.Hello(1))
    return session


OF_PARTITIONS: list[Any] = [
    frames.OpenProducer(7, "orders"),
    frames.OpenSubscription(7, "orders"),
    frames.FindOffsets(7, "orders", Start()),
    frames.DeleteMessages(7, "orders", b""),
    frames.ListIndexes(7, "orders"),
    frames.SeekIndex(7, "orders", "i", Start()),
    frames.DeleteIndex(7, "orders", "i"),
]


@pytest.mark.parametrize("frame", OF_PARTITIONS, ids=lambda frame: type(frame).__name__)
def test_a_request_is_served_where_all_its_partitions_are(frame):
    session = spread_session()

    def asked(*partitions: int, topic: str = "orders") -> Frame:
        return replace(frame, topic=topic, partitions=packed(partitions))

    demand = answered(session, asked(2, 0))
    assert isinstance(demand, Demand)
    assert demand.partitions == (2, 0)
    for elsewhere in (asked(1, 3), asked(3), asked(topic="theirs")):
        failed = refused(session, elsewhere)
        assert (failed.code, failed.node, failed.address) == ("notHere", "it", "it:1")
    for several in (asked(), asked(0, 1), asked(3, 2)):
        failed = refused(session, several)
        assert (failed.code, failed.node) == ("severalNodes", "")
    assert refused(session, asked(0, 4)).code == "unknownPartition"
    failed = refused(session, asked(0, 2, 0))
    assert (failed.code, failed.message) == ("outOfRange", "partition 0 is named twice")
    assert hung_up_on(session, replace(frame, partitions=b"123")).code == "protocol"


OF_ONE_PARTITION: list[Any] = [
    frames.Publish(7, "orders", 0),
    frames.SeekIndex(7, "orders", "i", Start(), partition=0),
    frames.SkipUnreadable(7, "orders", "i", 0, 5),
    frames.Revive(7, "orders", "i", 0, b"", b"", 0),
]


@pytest.mark.parametrize("frame", OF_ONE_PARTITION, ids=lambda frame: type(frame).__name__)
def test_a_request_for_one_partition_is_served_where_that_is(frame):
    session = spread_session()
    assert isinstance(answered(session, replace(frame, partition=2)), Demand)
    failed = refused(session, replace(frame, partition=1))
    assert (failed.code, failed.node) == ("notHere", "it")
    assert refused(session, replace(frame, partition=4)).code == "unknownPartition"


def test_whose_partition_a_message_without_one_is_for_says_its_batch():
    demand = answered(spread_session(), frames.Publish(7, "theirs", -1))
    assert isinstance(demand, Demand)
    assert demand.partitions == (-1,)


def test_who_leads_is_told_by_any_node():
    for topic in ("orders", "theirs"):
        for kind in (frames.FindLeaders, frames.DescribeTopic):
            assert isinstance(answered(spread_session(), kind(7, topic)), Demand)


def test_a_part_of_a_subscription_names_its_partitions():
    session = spread_session()
    part = frames.OpenSubscription(7, "orders", part=True, partitions=packed([0]))
    assert isinstance(answered(session, part), Demand)
    failed = refused(session, replace(part, partitions=b""))
    assert (failed.code, "names its partitions" in failed.message) == ("outOfRange", True)


def test_a_feed_is_of_partitions_that_another_node_leads():
    session = spread_session()
    feed = frames.OpenFeed(7, "orders", "billing", packed([1, 2, 50, 3, 4, 60]), 10)
    demand = answered(session, feed)
    assert isinstance(demand, Demand)
    assert demand.partitions == (1, 3)
    handle = session.open(OpenedFeed("orders", "billing", [1, 3]))
    credit = frames.Credit(0, handle, 5)
    assert answered(session, credit) == Demand(credit, None, session.handles[handle])
    assert refused(session, frames.Commit(7, handle, packed([1, 5]))).code == "unknownHandle"
    assert refused(session, replace(credit, request=7, bytes=-1)).code == "limitExceeded"


@pytest.mark.parametrize(
    ("places", "code", "words"),
    [
        ([], "outOfRange", "names none"),
        ([1, 2, 5, 1, 2, 5], "outOfRange", "named twice"),
        ([4, 5, 0], "unknownPartition", "no 4"),
        ([1, 7, 0], "unknownPartition", "made anew"),
    ],
)
def test_a_feed_that_cannot_be(places, code, words):
    failed = refused(spread_session(), frames.OpenFeed(7, "orders", places=packed(places)))
    assert (failed.code, words in failed.message) == (code, True)


def test_what_needs_one_replica_is_refused_by_name_on_a_topic_with_more():
    catalogue = Catalogue(me="me")
    catalogue.nodes = lambda: 2
    catalogue.place = lambda _topic, numbers, _count: [("me", "it") for _ in numbers]
    asked = catalogue.create(origin(1), "orders", TopicConfig(replication=2))
    catalogue.durable(asked.index)
    catalogue.leaders[catalogue.topic("orders").groups[0]] = "me"
    session = Session(catalogue, node="n1", software="hocket 0", limits=LIMITS)
    session.step(frames.Hello(1))
    (refused,) = session.step(frames.OpenProducer(7, "orders", delayed=True))
    assert refused.frame.code == "wrongKind"
    assert "one replica in this version, and 'orders' has 2" in refused.frame.message
    shared = frames.OpenSubscription(7, "orders", "i", "shared", consumer=bytes(16), prefetch=1)
    for frame in (
        shared, frames.OpenProducer(7, "orders"), frames.OpenProducer(7, "orders", transaction="x")
    ):  # fmt: skip
        (served,) = session.step(frame)
        assert isinstance(served, Demand)
