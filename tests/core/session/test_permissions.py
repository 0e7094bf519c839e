"""The access matrix: every kind of frame that a client sends, times everybody who may send it.

The table is written out here by hand, independently of the rules in `core.session.permissions`. A
new kind of frame belongs into it, and fails the test until it is there.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, get_args

import pytest

from hocket import frames
from hocket.core.metadata.access import Access
from hocket.core.metadata.catalogue import Catalogue
from hocket.core.metadata.roster import Change
from hocket.core.session.permissions import RULES, Rights
from hocket.core.session.session import (
    TRUSTED,
    Caller,
    Demand,
    Hangup,
    OpenedProducer,
    OpenedSubscription,
    Reply,
    Session,
)
from hocket.errors import NotAllowed
from hocket.frames import Frame, packed
from hocket.model import Grant, Limits, Participant, Start, TopicConfig
from tests.support.core.logged import ALICE, origin

# Who sends. All but the first live with access control on; `stranger` connected before it was.
OFF, STRANGER, TRUSTED_ONE = "off", "stranger", "trusted"
ROLES = {
    "publisher": "publish",
    "subscriber": "subscribe",
    "creator": "create",
    "alterer": "alter",
    "deleter": "delete",
    "binder": "bind",
    "connecter": "connect",
}
SUBJECTS = [OFF, STRANGER, "nobody", *ROLES, "admin", TRUSTED_ONE]
EVERYBODY = " ".join(SUBJECTS)
EVERYBODY_KNOWN = " ".join(each for each in SUBJECTS if each != STRANGER)
ADMINS = "off admin trusted"

PRODUCER, OWN, SHARED = 1, 2, 3  # handles that every one of them has open

# kind -> who may send it about the topic `orders`
MATRIX: dict[type, str] = {
    frames.Hello: EVERYBODY_KNOWN,  # a stranger cannot become anybody without a token
    frames.Goodbye: EVERYBODY,
    frames.Ping: EVERYBODY,
    frames.Done: EVERYBODY,
    frames.CreateTopic: "off creator admin trusted",
    frames.AlterTopic: "off alterer admin trusted",
    frames.DeleteTopic: "off deleter admin trusted",
    frames.ListTopics: EVERYBODY_KNOWN,
    frames.DescribeTopic: "off publisher subscriber creator alterer deleter admin trusted",
    frames.FindOffsets: "off publisher subscriber creator alterer deleter admin trusted",
    frames.ListIndexes: "off subscriber alterer deleter admin trusted",
    frames.OpenProducer: "off publisher admin trusted",
    frames.Publish: "off publisher admin trusted",
    frames.Push: EVERYBODY,  # who has the handle
    frames.OpenSubscription: "off subscriber admin trusted",
    frames.OpenFeed: "off subscriber admin trusted",
    frames.SeekIndex: "off subscriber admin trusted",
    frames.SkipUnreadable: "off subscriber admin trusted",
    frames.Revive: "off subscriber admin trusted",
    frames.DeleteMessages: "off deleter admin trusted",
    frames.DeleteIndex: "off deleter admin trusted",
    frames.Credit: EVERYBODY,  # who has the handle
    frames.Commit: EVERYBODY,
    frames.Settle: EVERYBODY,
    frames.CloseHandle: EVERYBODY,
    frames.CommitTransaction: "off publisher admin trusted",
    frames.NameParticipants: "off publisher admin trusted",
    frames.AbortTransaction: "off publisher admin trusted",
    frames.CreateUser: ADMINS,
    frames.RenewToken: ADMINS,
    frames.DeleteUser: ADMINS,
    frames.SetRoles: ADMINS,
    frames.CreateRole: ADMINS,
    frames.DeleteRole: ADMINS,
    frames.AddGrant: ADMINS,
    frames.RemoveGrant: ADMINS,
    frames.DescribeAccess: ADMINS,
    frames.ExplainAccess: ADMINS,  # about somebody else
    frames.DescribeRing: EVERYBODY_KNOWN,
    frames.LookUpKey: EVERYBODY_KNOWN,
    frames.ListNodes: EVERYBODY_KNOWN,
    frames.FindLeaders: "off publisher subscriber creator alterer deleter admin trusted",
    frames.DescribeTree: "off publisher subscriber creator alterer deleter admin trusted",
    frames.ReadAudit: ADMINS,
    frames.DescribeCluster: EVERYBODY_KNOWN,
    frames.SetCluster: ADMINS,
    frames.DescribePlugins: ADMINS,
    frames.RegisterName: "off binder admin trusted",
    frames.ReleaseName: EVERYBODY_KNOWN,  # who knows the lease
    frames.FindName: "off connecter admin trusted",
    frames.ListNames: EVERYBODY_KNOWN,
    frames.OpenPipe: "off connecter admin trusted",
    frames.TakePipe: EVERYBODY_KNOWN,  # who was told of the pipe
}
FROM_BROKERS = {
    frames.Welcome, frames.Failure, frames.Topics, frames.Offsets, frames.ProducerOpened,
    frames.PushAcked, frames.PushRefused, frames.Published, frames.SubscriptionOpened,
    frames.Deliver, frames.Moved, frames.HandleEnded, frames.PartitionsChanged, frames.Indexes,
    frames.Lease, frames.Settled, frames.TokenIssued, frames.Access, frames.Explained,
    frames.RingIs, frames.KeyIsOwned, frames.NodesAre, frames.LeadersAre, frames.AuditIs,
    frames.ClusterIs, frames.TreeIs, frames.NameIs, frames.NamesAre, frames.PipeWanted,
    frames.PipeIs, frames.DeliverAlike, frames.PluginsAre,
}  # fmt: skip
OF_TOPICS = [  # what is about a topic, and tells nothing about it to those who may not know
    frames.CreateTopic, frames.AlterTopic, frames.DeleteTopic, frames.DescribeTopic,
    frames.FindOffsets, frames.ListIndexes, frames.OpenProducer, frames.Publish,
    frames.OpenSubscription, frames.OpenFeed, frames.SeekIndex, frames.SkipUnreadable,
    frames.DeleteIndex,
    frames.CommitTransaction, frames.NameParticipants, frames.Revive, frames.DeleteMessages,
]  # fmt: skip


def sent(kind: type, topic: str = "orders") -> Frame:
    participant = Participant(topic, 0, ALICE, 1, 1, 0)
    grant = Grant("publish")
    fields: dict[type, tuple[Any, ...]] = {
        frames.Hello: (),
        frames.Goodbye: ("done",),
        frames.Ping: (),
        frames.Done: (),
        frames.CreateTopic: (topic, TopicConfig()),
        frames.AlterTopic: (topic, TopicConfig()),
        frames.DeleteTopic: (topic,),
        frames.ListTopics: (),
        frames.DescribeTopic: (topic,),
        frames.FindOffsets: (topic, Start()),
        frames.ListIndexes: (topic,),
        frames.OpenProducer: (topic,),
        frames.Publish: (topic,),
        frames.Push: (PRODUCER, 0),
        frames.OpenSubscription: (topic, "billing"),
        frames.OpenFeed: (topic, "billing", packed([0, 1, 0])),
        frames.SeekIndex: (topic, "billing", Start()),
        frames.SkipUnreadable: (topic, "billing", 0, 5),
        frames.Revive: (topic, "billing", 0, packed([5]), packed([0]), 0),
        frames.DeleteMessages: (topic, packed([5])),
        frames.DeleteIndex: (topic, "billing"),
        frames.Credit: (OWN, 1),
        frames.Commit: (OWN, packed([0, 0])),
        frames.Settle: (SHARED, "ack", packed([0, 0, 1])),
        frames.CloseHandle: (PRODUCER,),
        frames.CommitTransaction: ("t", 1, (participant,)),
        frames.NameParticipants: ("t", 1, 0, (participant,)),
        frames.AbortTransaction: ("t", 1, (b"p" * 16,)),
        frames.CreateUser: ("new", ()),
        frames.RenewToken: ("nobody",),
        frames.DeleteUser: ("nobody",),
        frames.SetRoles: ("nobody", ()),
        frames.CreateRole: ("new",),
        frames.DeleteRole: ("publisher",),
        frames.AddGrant: ("publisher", grant),
        frames.RemoveGrant: ("publisher", grant),
        frames.DescribeAccess: (),
        frames.ExplainAccess: ("somebody", "publish", topic),
        frames.DescribeRing: (),
        frames.LookUpKey: ("a key",),
        frames.ListNodes: (),
        frames.FindLeaders: (topic,),
        frames.DescribeTree: (topic,),
        frames.ReadAudit: (),
        frames.DescribeCluster: (),
        frames.SetCluster: (3,),
        frames.DescribePlugins: (),
        frames.RegisterName: (topic, "thread", b"l" * 16, b"k" * 32),
        frames.ReleaseName: (topic, b"l" * 16),
        frames.FindName: (topic,),
        frames.ListNames: (),
        frames.OpenPipe: (topic,),
        frames.TakePipe: (b"p" * 16,),
    }
    return kind(7, *fields[kind])  # type: ignore[no-any-return]


class World:
    """A topic `orders`, and a user of each role with its one grant on that topic."""

    def __init__(self) -> None:
        self.catalogue = Catalogue()
        for name in ("orders", "secret"):
            config = TopicConfig()
            self.catalogue.durable(self.catalogue.create(origin(1), name, config).index)
        self.access = Access()

    def turn_on(self) -> None:
        self.change(Change("createUser", "admin", ("admin",), token_hash="-"))
        self.change(Change("createUser", "nobody", token_hash="-"))
        for role, action in ROLES.items():
            self.change(Change("createRole", role))
            self.change(Change("addGrant", role, grant=Grant(action, "orders")))  # type: ignore[arg-type]
            self.change(Change("createUser", role, (role,), token_hash="-"))

    def change(self, change: Change) -> None:
        self.access.durable(self.access.change(origin(1), change).index)

    def connect(self, caller: Caller) -> Session:
        return Session(
            self.catalogue,
            node="n",
            software="s",
            limits=Limits(),
            caller=caller,
            access=self.access,
        )


@functools.cache
def world_turned_on() -> World:
    """For all sessions that only ask: none of them changes anything by itself."""
    world = World()
    world.turn_on()
    return world


def session_of(subject: str, *, greeted: bool = True) -> Session:
    if subject in (OFF, STRANGER):
        world = World()
        session = world.connect(Caller("10.0.0.1"))
    elif subject == TRUSTED_ONE:
        session = world_turned_on().connect(TRUSTED)
    else:
        session = world_turned_on().connect(Caller("10.0.0.1", certified=subject))
    if greeted:
        (welcome,) = session.step(frames.Hello(1))
        assert isinstance(welcome, Reply)
        assert isinstance(welcome.frame, frames.Welcome)
    if subject == STRANGER:
        world.turn_on()
    session.handles = {
        PRODUCER: OpenedProducer("orders", ALICE, 1),
        OWN: OpenedSubscription("orders", "billing", [0], {0: 1}, whole_topic=True),
        SHARED: OpenedSubscription("orders", "work", [0], {}, whole_topic=True, mode="shared"),
    }
    return session


def refusal(session: Session, frame: Frame) -> str:
    """What a frame is denied with; empty if it is not."""
    for effect in session.step(frame):
        answer = None if isinstance(effect, Demand) else effect.frame
        if isinstance(answer, frames.Failure) and answer.code == NotAllowed.code:
            assert isinstance(effect, Hangup if isinstance(frame, frames.Hello) else Reply)
            assert answer.request == frame.request
            return answer.message
    return ""


def test_every_kind_of_frame_stands_in_the_matrix_and_has_a_rule():
    assert MATRIX.keys() | FROM_BROKERS == set(get_args(Frame))
    assert not MATRIX.keys() & FROM_BROKERS
    assert RULES.keys() == MATRIX.keys()
    assert Session._handlers.keys() | {frames.Hello} == MATRIX.keys()


@pytest.mark.parametrize("kind", MATRIX, ids=lambda kind: kind.__name__)
def test_the_access_matrix(kind: type):
    allowed = {
        subject
        for subject in SUBJECTS
        if not refusal(session_of(subject, greeted=kind is not frames.Hello), sent(kind))
    }
    assert sorted(allowed) == sorted(MATRIX[kind].split())


@pytest.mark.parametrize("kind", OF_TOPICS, ids=lambda kind: kind.__name__)
def test_a_grant_on_one_topic_is_none_on_another(kind: type):
    allowed = {s for s in SUBJECTS if not refusal(session_of(s), sent(kind, "secret"))}
    assert allowed == {OFF, "admin", TRUSTED_ONE}


@pytest.mark.parametrize("kind", OF_TOPICS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("subject", [STRANGER, "nobody", *ROLES])
def test_a_refusal_does_not_tell_whether_the_topic_exists(kind: type, subject: str):
    there = refusal(session_of(subject), sent(kind, "secret"))
    not_there = refusal(session_of(subject), sent(kind, "nowhere"))
    assert there
    assert there.replace("secret", "nowhere") == not_there


def test_everybody_may_ask_about_himself():
    for subject in ("nobody", *ROLES):
        frame = frames.ExplainAccess(7, subject, "publish", "orders")
        assert not refusal(session_of(subject), frame)
    assert refusal(session_of(STRANGER), frames.ExplainAccess(7, "", "publish", "orders"))


def test_names_of_brokers_are_seen_by_those_with_a_grant_on_them():
    seeing = {s for s in SUBJECTS if session_of(s).rights.sees_name("orders")}
    assert {"binder", "connecter", "admin", TRUSTED_ONE} <= seeing
    assert not seeing & {STRANGER, "nobody", "publisher"}
    assert not session_of("binder").rights.sees_name("secret")


def test_reading_without_an_index_needs_the_grant_on_all_of_them():
    world = World()
    world.turn_on()
    world.change(Change("createRole", "billing"))
    world.change(Change("addGrant", "billing", grant=Grant("subscribe", "orders", "b*")))
    world.change(Change("createUser", "bob", ("billing",), token_hash="-"))
    session = world.connect(Caller(certified="bob"))
    session.step(frames.Hello(1))
    assert not refusal(session, frames.OpenSubscription(7, "orders", "billing"))
    assert "does not grant subscribe on topic 'orders';" in refusal(
        session, frames.OpenSubscription(7, "orders")
    )
    assert "index 'audit'" in refusal(session, frames.OpenSubscription(7, "orders", "audit"))
    assert not refusal(session, frames.ListIndexes(7, "orders"))
    assert session.rights.may(("subscribe",), "orders", "billing")
    assert not session.rights.may(("subscribe", "delete"), "orders", "audit")


def test_a_transaction_needs_the_grant_on_every_topic_it_writes_to():
    participants = tuple(Participant(topic, 0, ALICE, 1, 1, 0) for topic in ("orders", "secret"))
    frame = frames.CommitTransaction(7, "t", 1, participants)
    assert "'secret'" in refusal(session_of("publisher"), frame)
    assert not refusal(session_of("admin"), frame)
    assert refusal(session_of(STRANGER), frames.CommitTransaction(7, "t", 1, ()))


def test_participants_that_were_named_before_are_looked_at_again_when_the_commit_comes():
    participants = tuple(Participant(topic, 0, ALICE, 1, 1, 0) for topic in ("orders", "secret"))
    name = frames.NameParticipants(7, "t", 1, 0, participants)
    assert "'secret'" in refusal(session_of("publisher"), name)
    session = session_of("admin")
    assert not refusal(session, name)
    session.name(replace(name, transaction=f"{session.rights.user}/t"))
    session.rights.user = "publisher"  # as if the right had been taken since
    session.named.transaction = "publisher/t"
    assert "'secret'" in refusal(session, frames.CommitTransaction(7, "t", 1, (), named=2))


def test_handles_are_looked_at_when_they_are_made_and_when_rights_change():
    world = World()
    world.turn_on()
    session = world.connect(Caller(certified="subscriber"))
    session.step(frames.Hello(1))
    own = OpenedSubscription("orders", "billing", [0], {0: 1}, whole_topic=True)
    reader = OpenedSubscription("orders", "", [0], {}, whole_topic=True)
    assert (session.open(own), session.open(reader)) == (1, 2)
    with pytest.raises(NotAllowed, match="does not grant publish on topic 'orders'"):
        session.open(OpenedProducer("orders", ALICE, 1))
    assert session.without_right() == []
    world.change(Change("addGrant", "subscriber", grant=Grant("subscribe", "*", "bill*")))
    world.change(Change("removeGrant", "subscriber", grant=Grant("subscribe", "orders")))
    ((handle, error),) = session.without_right()
    assert handle == 2
    assert "does not grant subscribe on topic 'orders'" in str(error)


def test_strangers_lose_their_handles_when_access_is_turned_on():
    assert [handle for handle, _ in session_of(STRANGER).without_right()] == [1, 2, 3]
    assert session_of(TRUSTED_ONE).without_right() == []
    assert "asks for a token" in str(session_of(STRANGER).without_right()[0][1])


# --- Hello ---------------------------------------------------------------------------------------


def test_a_token_is_handed_on_to_be_looked_at_and_nothing_happens_meanwhile():
    world = World()
    world.turn_on()
    session = world.connect(Caller("10.0.0.1"))
    hello = frames.Hello(1, client="me", token="hocket_x")
    assert session.step(hello) == [Demand(hello)]
    for frame in (frames.Ping(2), hello):
        (effect,) = session.step(frame)
        assert isinstance(effect, Hangup)
        assert isinstance(effect.frame, frames.Failure)
        assert effect.frame.code == "protocol"
    reply = session.welcome(1, "publisher")
    assert isinstance(reply.frame, frames.Welcome)
    assert not refusal(session, sent(frames.OpenProducer))
    assert "hocket_x" not in repr(hello)


@pytest.mark.parametrize("is_on", [True, False])
def test_a_certificate_of_an_unknown_user_is_handed_on(is_on: bool):
    """The user may be new, and even the first; this node may not have heard of it yet."""
    world = World()
    if is_on:
        world.turn_on()
    for token in ("", "hocket_x"):
        session = world.connect(Caller("10.0.0.1", certified="ghost"))
        (effect,) = session.step(frames.Hello(1, token=token))
        assert isinstance(effect, Demand)
        assert session.has_shown


def test_who_shows_nothing_is_nobody_while_there_are_no_users():
    world = World()
    session = world.connect(Caller("10.0.0.1"))
    (effect,) = session.step(frames.Hello(1))
    assert isinstance(effect.frame, frames.Welcome)
    world.turn_on()
    assert "asks for a token" in refusal(session, sent(frames.ListTopics))
    (effect,) = world.connect(Caller("10.0.0.1")).step(frames.Hello(1))
    assert "asks for a token" in effect.frame.message


def test_whoever_is_about_to_lose_the_right_to_change_access_has_lost_it():
    world = World()
    world.turn_on()
    world.change(Change("createUser", "second", ("admin",), token_hash="-"))
    session = world.connect(Caller(certified="second"))
    session.step(frames.Hello(1))
    append = world.access.change(origin(1), Change("setRoles", "second", ()))
    assert refusal(session, frames.CreateRole(7, "back-door"))
    assert not refusal(session, sent(frames.CreateTopic))  # not in effect yet
    world.access.durable(append.index)
    assert refusal(session, sent(frames.CreateTopic))


def test_whoever_may_have_lost_the_right_to_change_access_waits_until_that_is_known():
    """A node that was started again has an entry in its log that may be committed."""
    world = World()
    world.turn_on()
    world.change(Change("createUser", "second", ("admin",), token_hash="-"))
    first, second = (world.connect(Caller(certified=name)) for name in ("admin", "second"))
    for session in (first, second):
        session.step(frames.Hello(1))
    world.access.in_doubt(Change("setRoles", "second", ()).encode())
    assert refusal(second, frames.CreateRole(7, "back-door"))
    assert not refusal(first, frames.CreateRole(7, "readers"))
    world.access.no_doubt()  # it was not committed
    assert not refusal(second, frames.CreateRole(8, "writers"))


def test_while_the_first_admin_is_on_its_way_nobody_else_can_be_made_one():
    world = World()
    session = world.connect(Caller("10.0.0.1"))
    session.step(frames.Hello(1))
    world.access.change(origin(1), Change("createUser", "ann", ("admin",), token_hash="-"))
    assert not world.access.is_on
    assert "asks for a token" in refusal(session, frames.CreateUser(7, "eve", ("admin",)))


@pytest.mark.parametrize(
    ("subject", "owner"), [(OFF, ""), (TRUSTED_ONE, "/"), ("publisher", "publisher")]
)
def test_producer_ids_are_their_users_and_of_nobody_while_there_are_none(subject: str, owner: str):
    assert session_of(subject).rights.owner == owner


def test_a_veto_takes_rights_and_gives_none():
    asked = []

    def veto(user: str, action: str, topic: str, index: str) -> str:
        asked.append((user, action, topic, index))
        return "" if topic == "day" else "it is night"

    access = Access()
    rights = Rights(access, trusted=False)
    access.veto = veto
    rights.need("publish", "day")
    with pytest.raises(NotAllowed, match="it is night"):
        rights.need("publish", "night")
    with pytest.raises(NotAllowed, match="it is night"):
        rights.need_admin()
    assert asked[-1] == ("", "admin", "*", "*")
    Rights(access, trusted=True).need("publish", "night")  # within the process nobody is asked
    assert len(asked) == 3
