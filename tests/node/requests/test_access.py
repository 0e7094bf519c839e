"""Users, roles and grants at a node, step by step: what follows from a change, and when."""

from __future__ import annotations

import logging
import sys
from typing import Any

import pytest
from argon2 import PasswordHasher

from hocket import frames
from hocket.core.session.session import Caller
from hocket.core.session.throttle import FREE
from hocket.frames import packed
from hocket.model import Grant, TopicConfig, UserDescription
from hocket.node.identity import authentication, tokens
from tests.support.node.guarded import (
    CHEAP,
    GuardedNode,
    Person,
    is_refused,
    one_batch,
    token_of,
    with_users,
)

PUBLISH, SUBSCRIBE = Grant("publish", "orders"), Grant("subscribe", "orders")


def producer(person: Person) -> tuple[int, bytes]:
    answer = person.ask(frames.OpenProducer, "orders")
    assert isinstance(answer, frames.ProducerOpened), answer
    return answer.handle, answer.producer_id


def subscription(person: Person, index: str = "billing") -> int:
    answer = person.ask(frames.OpenSubscription, "orders", index, credit_bytes=10_000)
    assert isinstance(answer, frames.SubscriptionOpened), answer
    return answer.handle


def push(person: Person, handle: int, producer_id: bytes, sequence: int) -> None:
    batch = one_batch(producer_id=producer_id, sequence=sequence)
    frame = frames.Push(0, handle, 0)
    person.place.node.received(person.connection, frame, memoryview(batch))
    person.place.settle()


# --- turning it on -------------------------------------------------------------------------------


def test_without_users_everybody_may_do_everything():
    place = GuardedNode()
    assert not place.node.access_is_on
    anybody = place.greeted()
    assert isinstance(anybody.ask(frames.CreateTopic, "orders", TopicConfig()), frames.Done)
    producer(anybody)
    answer = anybody.ask(frames.ExplainAccess, "anybody", "admin", "*")
    assert answer == frames.Explained(4, True, "access control is off: there is no user yet")


def test_the_first_user_must_be_an_admin_and_turns_access_on():
    place = GuardedNode()
    first = place.greeted()
    assert is_refused(first.ask(frames.CreateUser, "ann", ()), "must have the role 'admin'")
    assert not place.node.access_is_on
    token = token_of(first.ask(frames.CreateUser, "ann", ("admin",)))
    assert place.node.access_is_on
    assert tokens.user_of(token) == "ann"
    admin = place.greeted(token)
    answer = admin.ask(frames.DescribeAccess)
    assert isinstance(answer, frames.Access)
    assert answer.users == (UserDescription("ann", ("admin",)),)


def test_whoever_was_there_before_loses_everything_at_once():
    place = GuardedNode()
    before, trusted = place.greeted(), place.trusted()
    before.ask(frames.CreateTopic, "orders", TopicConfig())
    handles = {producer(before)[0], subscription(before)}
    mine = producer(trusted)[0]
    before.ask(frames.CreateUser, "ann", ("admin",))
    ended = before.heard(frames.HandleEnded)
    assert {each.handle for each in ended} == handles
    assert all(each.code == "notAllowed" and "token" in each.message for each in ended)
    for request in ((frames.ListTopics,), (frames.Publish, "orders"), (frames.CreateRole, "x")):
        assert is_refused(before.ask(*request), "asks for a token")
    assert isinstance(before.ask(frames.Ping), frames.Done)
    assert not trusted.heard(frames.HandleEnded)
    assert isinstance(trusted.ask(frames.CloseHandle, mine), frames.Done)
    assert not before.hung_up


def test_two_who_want_to_be_the_first_admin_do_not_both_become_it():
    place = GuardedNode()
    one, other = place.greeted(), place.greeted()
    asked = one.say(frames.CreateUser, "ann", ("admin",))
    also = other.say(frames.CreateUser, "eve", ("admin",))
    place.settle()
    assert isinstance(one.answer(asked), frames.TokenIssued)
    assert is_refused(other.answer(also), "asks for a token")


# --- Hello ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "token", ["", "nonsense", "hocket_ann_" + "x" * 43, "hocket_ghost_" + "x" * 43, "hocket__x"]
)
def test_without_a_right_token_nobody_gets_in(token: str):
    place, _ = with_users()
    stranger = place.connect()
    answer = stranger.ask(frames.Hello, token=token)
    assert is_refused(answer)
    assert stranger.hung_up


def test_an_unknown_user_and_a_wrong_secret_are_told_the_same():
    place, _ = with_users()
    answers = [
        place.connect().ask(frames.Hello, token=f"hocket_{name}_" + "x" * 43)
        for name in ("ann", "ghost")
    ]
    assert answers[0] == answers[1]


def test_a_right_token_gets_in_at_once_until_it_changes():
    place, known = with_users()
    person = place.connect()
    person.say(frames.Hello, token=known["bob"])
    assert isinstance(person.told[0], frames.Welcome)  # nothing had to be waited for
    new = token_of(place.trusted().ask(frames.RenewToken, "bob"))
    assert is_refused(place.connect().ask(frames.Hello, token=known["bob"]))
    place.greeted(new)


# --- tokens of earlier versions ------------------------------------------------------------------


def with_old_hashes(monkeypatch, seed: int = 0) -> tuple[GuardedNode, dict[str, str], list[str]]:
    """A place whose users were made by an earlier version, and the tokens that it looks at."""
    with monkeypatch.context() as patch:
        patch.setattr(tokens, "hash_token", argon2_hash)
        place, known = with_users(seed)
    looked_at: list[str] = []
    verify = tokens.is_slow_token_of

    def noted(*args: Any) -> bool:
        looked_at.append(args[0])
        return verify(*args)

    monkeypatch.setattr(tokens, "is_slow_token_of", noted)
    return place, known, looked_at


def argon2_hash(token: str) -> str:
    hasher = PasswordHasher(CHEAP.time_cost, CHEAP.memory_cost, CHEAP.parallelism)
    return hasher.hash(token, salt=bytes(tokens.SALT_BYTES))


def test_an_old_token_is_verified_once_and_remembered_until_it_changes(monkeypatch):
    place, known, looked_at = with_old_hashes(monkeypatch)
    for _ in range(3):
        place.greeted(known["bob"])
    assert looked_at == [known["bob"]]
    place.greeted(known["ann"])
    new = token_of(place.trusted().ask(frames.RenewToken, "bob"))
    assert is_refused(place.connect().ask(frames.Hello, token=known["bob"]))
    place.greeted(new)  # is kept as today's are, so that nothing slow is done for it
    assert looked_at == [known["bob"], known["ann"], known["bob"]]


def test_an_old_token_still_opens_after_a_restart(monkeypatch):
    place, known, _ = with_old_hashes(monkeypatch)
    place.crash()
    place.greeted(known["bob"])
    assert is_refused(place.connect().ask(frames.Hello, token=known["bob"][:-1] + "-"))


def test_many_who_come_at_once_with_one_old_token_cost_one_verification(monkeypatch):
    place, known, looked_at = with_old_hashes(monkeypatch)
    people = [place.connect() for _ in range(50)]
    for person in people:
        person.say(frames.Hello, token=known["bob"])
    place.settle()
    assert all(isinstance(person.told[0], frames.Welcome) for person in people)
    assert len(looked_at) == 1


def test_while_a_hash_is_slow_everything_wrong_is_as_slow(monkeypatch):
    """Or the time would tell for whom a slow hash is kept."""
    place, _, looked_at = with_old_hashes(monkeypatch)
    new = token_of(place.trusted().ask(frames.CreateUser, "eve", ()))
    wrong_ones = [f"hocket_{name}_" + "x" * 43 for name in ("bob", "eve", "ghost")]
    for token in wrong_ones:
        assert is_refused(place.connect().ask(frames.Hello, token=token))
    assert looked_at == wrong_ones
    place.greeted(new)
    assert looked_at == wrong_ones


def test_nothing_may_be_said_before_the_welcome(monkeypatch):
    place, known, _ = with_old_hashes(monkeypatch)
    hasty = place.connect()
    hasty.say(frames.Hello, token=known["bob"])
    hasty.say(frames.ListTopics)
    assert hasty.hung_up
    place.settle()
    assert [frame.request for frame in hasty.told] == [2]  # no Welcome after that


def test_who_leaves_while_his_token_is_looked_at_does_no_harm(monkeypatch):
    place, known, _ = with_old_hashes(monkeypatch)
    gone, wrong = place.connect(), place.connect()
    gone.say(frames.Hello, token=known["bob"])
    wrong.say(frames.Hello, token="hocket_bob_" + "x" * 43)
    for person in (gone, wrong):
        place.node.disconnected(person.connection)
    place.settle()
    assert gone.told == wrong.told == []
    place.greeted(known["bob"])


@pytest.mark.parametrize("change", [frames.RenewToken, frames.DeleteUser])
def test_a_token_that_changes_while_it_is_looked_at_opens_nothing(change: type, monkeypatch):
    first_heard = set()
    for seed in range(30):  # whichever of the two is quicker
        place, known, _ = with_old_hashes(monkeypatch, seed)
        admin, late = place.trusted(), place.connect()
        admin.say(change, "bob")
        late.say(frames.Hello, token=known["bob"])
        place.settle()
        first_heard.add(type(late.told[0]))
        assert late.hung_up
        assert is_refused(place.connect().ask(frames.Hello, token=known["bob"]))
    assert first_heard == {frames.Welcome, frames.Failure}


def test_a_verification_that_breaks_is_a_refusal_and_is_logged(monkeypatch, caplog):
    place, known, _ = with_old_hashes(monkeypatch)

    def broken(*_: object) -> bool:
        raise MemoryError("no room")

    monkeypatch.setattr(tokens, "is_slow_token_of", broken)
    assert is_refused(place.connect().ask(frames.Hello, token=known["bob"]))
    assert "cannot be verified: MemoryError" in caplog.text


def test_without_argon2_an_old_token_is_refused_with_what_to_do_and_all_else_works(
    monkeypatch, caplog
):
    place, known, looked_at = with_old_hashes(monkeypatch)
    eve = token_of(place.trusted().ask(frames.CreateUser, "eve", ("worker",)))
    monkeypatch.setitem(sys.modules, "argon2", None)  # as if it were not installed
    place.crash()
    assert "2 users cannot log in by their tokens" in caplog.text
    assert "ann, bob; renew the token with `hocket user token NAME`, or install" in caplog.text
    caplog.clear()
    answer = place.connect().ask(frames.Hello, token=known["bob"])
    assert is_refused(answer, "renew the token with `hocket user token NAME`, or install")
    assert "as user 'bob'" in caplog.text
    assert "install hocket[argon2]" in caplog.text
    for token in ("nonsense", "hocket_eve_" + "x" * 43, "hocket_ghost_" + "x" * 43):
        other = place.connect("10.0.0.2").ask(frames.Hello, token=token)
        assert other == answer  # or it would tell who these users are
    assert looked_at == []
    assert isinstance(place.greeted(eve).ask(frames.ListTopics), frames.Topics)
    new = token_of(place.trusted().ask(frames.RenewToken, "bob"))
    place.greeted(new)
    place.trusted().ask(frames.RenewToken, "ann")
    answer = place.connect("10.0.0.3").ask(frames.Hello, token=known["bob"])
    assert not is_refused(answer, "argon2")  # there is no such user any more
    caplog.clear()
    place.crash()
    assert "cannot log in" not in caplog.text


def test_more_tokens_than_can_wait_are_turned_away(monkeypatch):
    monkeypatch.setattr(authentication, "WAITING_MAX", 2)
    place, _, _ = with_old_hashes(monkeypatch)
    people = [place.connect(f"10.0.0.{n}") for n in range(4)]
    for n, person in enumerate(people):
        person.say(frames.Hello, token=f"hocket_bob_{n:043}")
    (answer,) = people[3].told
    assert isinstance(answer, frames.Failure)
    assert answer.code == "busy"
    place.settle()
    assert [is_refused(person.told[0]) for person in people] == [True, True, True, False]


def test_a_certificate_makes_its_user_and_no_other():
    place, _ = with_users()
    for name, welcome in (("bob", True), ("ghost", False)):
        person = place.connect(caller=Caller("10.0.0.1", certified=name))
        answer = person.ask(frames.Hello)
        assert isinstance(answer, frames.Welcome) == welcome
    bob = place.connect(caller=Caller("10.0.0.1", certified="bob"))
    bob.ask(frames.Hello)
    producer(bob)
    assert is_refused(bob.ask(frames.CreateRole, "x"), "does not grant admin")


# --- wrong tokens --------------------------------------------------------------------------------


def wrong(place: GuardedNode, address: str = "10.0.0.1") -> frames.Failure:
    answer = place.connect(address).ask(frames.Hello, token="hocket_bob_" + "x" * 43)
    assert isinstance(answer, frames.Failure)
    return answer


@pytest.mark.parametrize("old", [False, True])
def test_after_a_few_wrong_tokens_an_address_waits_longer_and_longer(monkeypatch, old: bool):
    place, known, looked_at = with_old_hashes(monkeypatch) if old else (*with_users(), [])
    assert [wrong(place).code for _ in range(FREE)] == ["notAllowed"] * FREE
    for seconds in (1, 2, 4):
        looked_at.clear()
        refused = wrong(place)
        assert refused.code == "tooManyAttempts"
        assert f"try again in {seconds} s" in refused.message
        assert looked_at == []
        assert wrong(place, "10.0.0.2").code == "notAllowed"  # others do not wait
        place.pass_time(seconds)
        assert wrong(place).code == "notAllowed"
    place.pass_time(8)
    place.greeted(known["bob"])  # a right one clears it
    assert [wrong(place).code for _ in range(FREE)] == ["notAllowed"] * FREE


def test_a_flood_of_wrong_tokens_at_once_is_looked_at_a_few_times_only(monkeypatch):
    place, _, looked_at = with_old_hashes(monkeypatch)
    people = [place.connect() for _ in range(40)]
    for n, person in enumerate(people):
        person.say(frames.Hello, token=f"hocket_bob_{n:043}")
    place.settle()
    assert len(looked_at) == FREE
    assert [person.told[0].code for person in people].count("tooManyAttempts") == 40 - FREE  # type: ignore[union-attr]


def test_a_new_user_gets_in_past_the_wait_of_an_address():
    """However many wrong tokens came from there, and though he was never here before."""
    place, known = with_users()
    for _ in range(12):
        wrong(place)
    assert wrong(place).code == "tooManyAttempts"
    person = place.connect()
    person.say(frames.Hello, token=known["bob"])
    assert isinstance(person.told[0], frames.Welcome)
    new = token_of(place.trusted().ask(frames.CreateUser, "eve", ()))
    for _ in range(12):
        wrong(place)
    place.greeted(new)


def test_an_old_token_known_already_gets_in_past_the_wait_of_its_address(monkeypatch):
    place, known, _ = with_old_hashes(monkeypatch)
    place.greeted(known["bob"])
    for _ in range(FREE):
        wrong(place)
    refused = place.connect().ask(frames.Hello, token=known["ann"])  # not looked at yet
    assert isinstance(refused, frames.Failure)
    assert refused.code == "tooManyAttempts"
    place.greeted(known["bob"])


def test_those_within_the_process_never_wait():
    place, _ = with_users()
    for _ in range(2 * FREE):
        assert isinstance(place.trusted().ask(frames.ListTopics), frames.Topics)


# --- what follows from a change --------------------------------------------------------------


def test_a_revoke_ends_the_producer_and_its_pushes_are_not_stored():
    place, known = with_users()
    bob, admin = place.greeted(known["bob"]), place.trusted()
    handle, producer_id = producer(bob)
    push(bob, handle, producer_id, 0)
    assert len(bob.heard(frames.PushAcked)) == 1
    admin.ask(frames.RemoveGrant, "worker", PUBLISH)
    (ended,) = bob.heard(frames.HandleEnded)
    assert (ended.handle, ended.code) == (handle, "notAllowed")
    assert "does not grant publish on topic 'orders'" in ended.message
    push(bob, handle, producer_id, 1)
    assert len(bob.heard(frames.PushAcked)) == 1
    assert is_refused(bob.ask(frames.OpenProducer, "orders"), "publish on topic 'orders'")
    answer = admin.ask(frames.DescribeTopic, "orders")
    assert answer.topics[0].partitions[0].end == 1  # type: ignore[union-attr]
    assert not bob.hung_up


@pytest.mark.parametrize("index", ["billing", ""])
def test_a_revoke_ends_the_subscription_and_nothing_more_is_delivered(index: str):
    place, known = with_users()
    bob, admin = place.greeted(known["bob"]), place.trusted()
    handle = subscription(bob, index)
    admin.ask(frames.Publish, "orders", payload=one_batch(b"one"))
    assert len(bob.heard(frames.Deliver)) == 1
    admin.ask(frames.RemoveGrant, "worker", SUBSCRIBE)
    (ended,) = bob.heard(frames.HandleEnded)
    assert (ended.handle, ended.code) == (handle, "notAllowed")
    assert "does not grant subscribe on topic 'orders'" in ended.message
    admin.ask(frames.Publish, "orders", payload=one_batch(b"two"))
    assert len(bob.heard(frames.Deliver)) == 1
    assert bob.ask(frames.CloseHandle, handle).code == "unknownHandle"  # type: ignore[union-attr]


def test_a_revoke_ends_a_shared_subscription_and_others_get_what_it_had():
    place, known = with_users()
    bob, admin = place.greeted(known["bob"]), place.trusted()
    admin.ask(frames.Publish, "orders", payload=one_batch(b"one"))
    for person in (bob, admin):
        request = person.say(
            frames.OpenSubscription, "orders", "work", "shared",
            consumer=f"consumer {person.connection}".encode().ljust(16), prefetch=5,
            credit_bytes=10_000,
        )  # fmt: skip
        place.settle()
        assert isinstance(person.answer(request), frames.SubscriptionOpened)
    assert len(bob.heard(frames.Lease)) == 1
    admin.ask(frames.RemoveGrant, "worker", SUBSCRIBE)
    (ended,) = bob.heard(frames.HandleEnded)
    assert ended.code == "notAllowed"
    assert len(admin.heard(frames.Lease)) == 1
    assert len(bob.heard(frames.Lease)) == 1


@pytest.mark.parametrize(
    "change",
    [
        (frames.SetRoles, "bob", ()),
        (frames.DeleteRole, "worker"),
    ],
)
def test_whatever_takes_the_right_ends_what_is_open(change):
    place, known = with_users()
    bob, ann = place.greeted(known["bob"]), place.greeted(known["ann"])
    handles = {producer(bob)[0], subscription(bob)}
    subscription(ann, "audit")
    assert isinstance(ann.ask(*change), frames.Done)
    assert {each.handle for each in bob.heard(frames.HandleEnded)} == handles
    assert not ann.heard(frames.HandleEnded)


def test_a_right_by_another_grant_keeps_it_open():
    place, known = with_users()
    bob, admin = place.greeted(known["bob"]), place.trusted()
    subscription(bob)
    admin.ask(frames.AddGrant, "worker", Grant("subscribe", "ord*", "b*"))
    admin.ask(frames.RemoveGrant, "worker", SUBSCRIBE)
    assert not bob.heard(frames.HandleEnded)


def test_nothing_slips_through_while_it_is_being_opened():
    place, known = with_users()
    bob, admin = place.greeted(known["bob"]), place.trusted()
    admin.ask(frames.Publish, "orders", payload=one_batch(b"secret"))
    # Both are on their way to the disk; whichever is committed first.
    admin.say(frames.RemoveGrant, "worker", SUBSCRIBE)
    asked = bob.say(frames.OpenSubscription, "orders", "billing", credit_bytes=10_000)
    place.settle()
    assert is_refused(bob.answer(asked), "does not grant subscribe")
    assert not bob.heard(frames.Deliver)


def test_a_new_token_hangs_up_on_its_user_but_not_on_who_asked():
    place, known = with_users()
    bob, ann, also_ann = (place.greeted(known[name]) for name in ("bob", "ann", "ann"))
    ann.ask(frames.RenewToken, "bob")
    assert bob.hung_up
    assert is_refused(bob.told[-1], "has a new token")
    token_of(ann.ask(frames.RenewToken, "ann"))
    assert not ann.hung_up
    assert also_ann.hung_up
    assert isinstance(ann.ask(frames.ListTopics), frames.Topics)


def test_a_deleted_user_is_hung_up_on_also_by_himself():
    place, known = with_users()
    ann, bob = place.greeted(known["ann"]), place.greeted(known["bob"])
    ann.ask(frames.SetRoles, "bob", ("admin", "worker"))
    assert isinstance(bob.ask(frames.DeleteUser, "bob"), frames.Done)
    assert bob.hung_up
    assert is_refused(ann.ask(frames.DeleteUser, "ann"), "the last one")
    assert is_refused(place.connect().ask(frames.Hello, token=known["bob"]))


def test_who_is_about_to_lose_the_right_makes_no_user():
    place, known = with_users()
    admin, bob = place.trusted(), place.greeted(known["bob"])
    admin.ask(frames.SetRoles, "bob", ("admin",))
    admin.say(frames.SetRoles, "bob", ())
    asked = bob.say(frames.CreateUser, "back-door", ("admin",))
    place.settle()
    assert is_refused(bob.answer(asked), "admin")
    users = [user.name for user in admin.ask(frames.DescribeAccess).users]  # type: ignore[union-attr]
    assert users == ["ann", "bob"]


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ((frames.CreateUser, "bob", ()), "nameInUse"),
        ((frames.CreateUser, "eve", ("ghost",)), "unknownRole"),
        ((frames.CreateUser, "e e", ()), "badName"),
        ((frames.RenewToken, "eve"), "unknownUser"),
        ((frames.DeleteUser, "eve"), "unknownUser"),
        ((frames.SetRoles, "bob", ("ghost",)), "unknownRole"),
        ((frames.CreateRole, "worker"), "nameInUse"),
        ((frames.DeleteRole, "ghost"), "unknownRole"),
        ((frames.AddGrant, "ghost", PUBLISH), "unknownRole"),
        ((frames.AddGrant, "worker", Grant("publish", "a b")), "badName"),
        ((frames.RemoveGrant, "worker", Grant("delete")), "outOfRange"),
        ((frames.ExplainAccess, "ghost", "publish", "orders"), "unknownUser"),
        ((frames.ExplainAccess, "g h", "publish", "orders"), "badName"),
        ((frames.ExplainAccess, "bob", "publish", "a b"), "badName"),
        ((frames.ExplainAccess, "bob", "subscribe", "orders", "a b"), "badName"),
    ],
)
def test_bad_requests_are_answered_and_change_nothing(request_, code: str):
    place, _ = with_users()
    admin = place.trusted()
    before = admin.ask(frames.DescribeAccess)
    answer = admin.ask(*request_)
    assert isinstance(answer, frames.Failure)
    assert answer.code == code
    after = admin.ask(frames.DescribeAccess)
    assert (after.users, after.roles) == (before.users, before.roles)  # type: ignore[union-attr]


def test_a_user_sees_only_the_topics_and_indexes_of_his_grants():
    place, known = with_users()
    admin = place.trusted()
    admin.ask(frames.CreateTopic, "salaries", TopicConfig())
    for index in ("billing", "audit"):
        subscription(admin, index)
    bob = place.greeted(known["bob"])
    topics = bob.ask(frames.ListTopics)
    assert [topic.name for topic in topics.topics] == ["orders"]  # type: ignore[union-attr]
    for topic in ("salaries", "nowhere"):
        assert is_refused(bob.ask(frames.DescribeTopic, topic))
    admin.ask(frames.AddGrant, "worker", Grant("subscribe", "orders", "b*"))
    admin.ask(frames.RemoveGrant, "worker", SUBSCRIBE)
    indexes = bob.ask(frames.ListIndexes, "orders")
    assert [index.name for index in indexes.indexes] == ["billing"]  # type: ignore[union-attr]
    assert is_refused(bob.ask(frames.DeleteIndex, "orders", "billing"), "delete on topic 'orders'")


def test_it_explains_its_decisions():
    place, known = with_users()
    bob = place.greeted(known["bob"])
    yes = bob.ask(frames.ExplainAccess, "bob", "subscribe", "orders", "billing")
    assert yes.allowed  # type: ignore[union-attr]
    assert yes.reason == "the role 'worker' grants subscribe on topic 'orders'"  # type: ignore[union-attr]
    no = bob.ask(frames.ExplainAccess, "bob", "admin", "*")
    assert not no.allowed  # type: ignore[union-attr]
    assert is_refused(bob.ask(frames.ExplainAccess, "ann", "publish", "orders"))


# --- keeping it ------------------------------------------------------------------------------


def test_users_roles_and_grants_survive_a_crash_and_their_tokens_still_open():
    place, known = with_users()
    before = place.trusted().ask(frames.DescribeAccess)
    place.crash()
    assert place.node.access_is_on
    after = place.trusted().ask(frames.DescribeAccess)
    assert (after.users, after.roles) == (before.users, before.roles)  # type: ignore[union-attr]
    producer(place.greeted(known["bob"]))
    assert is_refused(place.connect().ask(frames.Hello))
    # and also from a checkpoint
    place.node.close()
    place.start()
    producer(place.greeted(known["bob"]))
    assert isinstance(place.trusted().ask(frames.CreateTopic, "more", TopicConfig()), frames.Done)


def test_what_was_not_committed_was_not_done():
    place = GuardedNode()
    first = place.greeted()
    first.say(frames.CreateUser, "ann", ("admin",))
    place.crash()
    assert not place.node.access_is_on
    place.greeted()


# --- the audit log, and secrets -------------------------------------------------------------


def test_denials_and_changes_are_in_the_audit_log_and_secrets_nowhere(caplog):
    caplog.set_level(logging.DEBUG)
    place, known = with_users()
    bob, ann = place.greeted(known["bob"]), place.greeted(known["ann"])
    bob.ask(frames.CreateTopic, "mine", TopicConfig())
    bob.ask(frames.CreateUser, "eve", ("admin",))
    subscription(bob)
    ann.ask(frames.RemoveGrant, "worker", SUBSCRIBE)
    renewed = token_of(ann.ask(frames.RenewToken, "bob"))
    place.connect().ask(frames.Hello, token=known["bob"])
    text = "\n".join(r.getMessage() for r in caplog.records if r.name == "hocket.audit")
    for line in (
        "changed: user=(this process) createUser 'ann' roles=['admin']",
        "changed: user=(this process) addGrant 'worker' publish on topic 'orders'",
        "denied: user='bob' address=10.0.0.1 CreateTopic topic='mine': ",
        "denied: user='bob' address=10.0.0.1 CreateUser name='eve': ",
        "ended: user='bob' address=10.0.0.1 subscription of topic 'orders': ",
        "changed: user='ann' address=10.0.0.1 removeGrant 'worker' subscribe on topic 'orders'",
        "changed: user='ann' address=10.0.0.1 setToken 'bob'",
        "denied: user=(nobody) address=10.0.0.1 Hello as user 'bob': ",
    ):
        assert line in text
    for token in (*known.values(), renewed):
        assert token[-43:] not in caplog.text
    assert "sha256" not in caplog.text


def test_only_hashes_are_on_the_disk():
    place, known = with_users()
    place.node.close()
    stored = b"".join(place.disk.open(path).read(1 << 30, 0) for path in place.disk.files())
    assert b"$sha256$" in stored
    for token in known.values():
        assert token[-43:].encode() not in stored


def test_what_is_said_of_a_handle_needs_no_more_than_the_handle():
    place, known = with_users()
    bob = place.greeted(known["bob"])
    handle = subscription(bob)
    place.trusted().ask(frames.Publish, "orders", payload=one_batch())
    assert isinstance(bob.ask(frames.Commit, handle, packed([0, 1])), frames.Done)


# --- tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["a", "a_b", "a_" * 20 + "z", "x" * 255])
def test_a_token_names_its_user_whatever_its_secret(user: str):
    for secret in (bytes(32), b"\xff" * 32, bytes(range(32))):  # some have '_' and '-' in them
        token = tokens.make_token(user, lambda _, secret=secret: secret)
        assert token.startswith(f"hocket_{user}_")
        assert len(token) == len(user) + 51
        assert tokens.user_of(token) == user


@pytest.mark.parametrize(
    "token", ["", "hocket_", "hocket_" + "x" * 44, "hocket_a" + "x" * 44, "x" * 300,
              "hocket_" + "u" * 256 + "_" + "x" * 43, "Hocket_a_" + "x" * 43]
)  # fmt: skip
def test_what_is_no_token_names_nobody(token: str):
    assert tokens.user_of(token) is None
