"""Access control as clients see it: a real broker over TCP, blocking and asyncio clients."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
import hocket.aio
from hocket.client.faces import topics_reader
from hocket.client_core.consuming import attachment
from hocket.core.session.throttle import FREE
from hocket.errors import (
    NameInUse,
    NotAllowed,
    OutOfRange,
    TooManyAttempts,
    UnknownRole,
    UnknownUser,
    WrongType,
)
from hocket.model import Decision, Grant, RoleDescription, UserDescription
from hocket.node.settings import NodeSettings
from tests.support.node.guarded import CHEAP
from tests.support.node.running import listening
from tests.support.threads import run, until


def settings() -> NodeSettings:
    return NodeSettings(argon2=CHEAP)


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with listening(tmp_path / "data", settings()) as (host, port):
        yield f"hocket://{host}:{port}"


@pytest.fixture
def admin(url: str) -> Iterator[hocket.Client]:
    """The first admin, on a broker with a topic `orders` and a role `worker` for it."""
    with hocket.connect(url) as anybody:
        token = anybody.create_user("ann", ["admin"])
    with hocket.connect(url, token=token) as client:
        client.create_topic("orders")
        client.create_role("worker")
        client.grant("worker", "publish", "orders")
        client.grant("worker", "subscribe", "orders", "b*")
        yield client


def test_the_first_admin_turns_access_on_at_once(url: str):
    with hocket.connect(url) as before:
        before.create_topic("orders")
        with before.producer("orders", linger=0) as producer:
            producer.send(b"x")
            producer.flush()
            token = before.create_user("ann", ["admin"])
            with pytest.raises(NotAllowed, match="asks for a token"):
                before.topics()
            with pytest.raises(NotAllowed, match="asks for a token"):
                until(lambda: producer.send(b"y") or producer.flush())
            producer.close()
    with pytest.raises(NotAllowed, match="asks for a token"):
        hocket.connect(url)
    with hocket.connect(url, token=token) as ann:
        assert ann.topics() == ["orders"]
        assert ann.describe("orders").partitions[0].end == 1
        assert token not in repr(ann)


def test_a_revoke_cuts_an_open_stream(url: str, admin):
    token = admin.create_user("bob", ["worker"])
    admin.publish("orders", b"one")
    with hocket.connect(url, token=token) as bob:
        subscription = bob.subscribe("orders", index="billing")
        assert next(iter(subscription)).value == b"one"
        admin.revoke("worker", "subscribe", "orders", "b*")
        with pytest.raises(NotAllowed, match="does not grant subscribe on topic 'orders', index"):
            next(iter(subscription))
        admin.publish("orders", b"two")
        with pytest.raises(NotAllowed):
            bob.subscribe("orders", index="billing")
        subscription.close()
        assert bob.publish("orders", b"three").offset == 2  # what is left to him goes on


def test_a_pattern_reads_what_the_user_may_read_and_goes_on_without_what_is_revoked(
    url: str, admin, monkeypatch
):
    monkeypatch.setattr(topics_reader, "LOOK_US", 20_000)
    monkeypatch.setattr(topics_reader, "REFUSED_LOOKS", 1)
    token = admin.create_user("bob", ["worker"])
    for topic in ("orders.open", "orders.closed", "secrets"):
        admin.create_topic(topic)
        admin.publish(topic, topic.encode())
    admin.grant("worker", "subscribe", "orders.open")
    admin.grant("worker", "publish", "orders.closed")  # he sees it, and may not read it
    with hocket.connect(url, token=token) as bob:
        with bob.subscribe("*", index="billing") as messages:
            assert messages.topics == ["orders", "orders.open"]
            assert messages.receive(5).topic == "orders.open"
            admin.revoke("worker", "subscribe", "orders", "b*")
            until(lambda: messages.topics == ["orders.open"])
            admin.publish("orders.open", b"two")
            assert messages.receive(5).value == b"two"
            admin.grant("worker", "subscribe", "orders.closed")
            assert messages.receive(5).topic == "orders.closed"
        with pytest.raises(NotAllowed, match="secrets"):
            bob.subscribe(["orders.open", "secrets"])


@pytest.mark.parametrize("mode", ["own", "shared"])
def test_a_commit_tells_of_acks_that_a_revoke_undid_in_one_topic_of_a_pattern(
    url: str, admin, monkeypatch, mode
):
    monkeypatch.setattr(attachment, "TIDY_US", 60_000_000)  # acks leave when a commit asks for it
    token = admin.create_user("bob", ["worker"])
    topics = ["lines.a", "lines.b", "lines.c"]
    for topic in topics:
        admin.create_topic(topic)
        admin.publish(topic, topic.encode())
        admin.grant("worker", "subscribe", topic)
    with (
        hocket.connect(url, token=token) as bob,
        bob.subscribe("lines.*", index="billing", mode=mode) as messages,
    ):
        received = {message.topic: message for message in (messages.receive(5) for _ in topics)}
        received["lines.a"].ack()
        messages.commit()
        admin.revoke("worker", "subscribe", "lines.a")  # nothing is lost by that
        until(lambda: messages.topics == ["lines.b", "lines.c"])
        messages.commit()
        received["lines.b"].ack()
        received["lines.c"].ack()
        admin.revoke("worker", "subscribe", "lines.b")
        until(lambda: messages.topics == ["lines.c"])
        with pytest.raises(NotAllowed, match=r"lines\.b"):
            messages.commit()
        messages.commit()
        assert [admin.lag(topic, "billing") for topic in topics] == [0, 1, 0]


def test_a_revoke_fails_the_next_push(url: str, admin):
    token = admin.create_user("bob", ["worker"])
    with hocket.connect(url, token=token) as bob:
        producer = bob.producer("orders", linger=0)
        producer.send(b"one")
        producer.flush()
        admin.revoke("worker", "publish", "orders")
        with pytest.raises(NotAllowed, match="does not grant publish on topic 'orders'"):
            until(lambda: producer.send(b"two") or producer.flush())
        producer.close()
        with pytest.raises(NotAllowed):
            bob.publish("orders", b"three")
    assert admin.describe("orders").partitions[0].end == 1


def test_a_new_token_ends_the_old_one_and_who_came_with_it(url: str, admin):
    old = admin.create_user("bob", ["worker"])
    with hocket.connect(url, token=old) as bob:
        producer = bob.producer("orders")
        new = admin.renew_token("bob")
        with pytest.raises(NotAllowed, match="the token is not that of a user"):
            until(bob.ping)
        producer.close()
    with pytest.raises(NotAllowed):
        hocket.connect(url, token=old)
    with hocket.connect(url, token=new) as bob:
        bob.publish("orders", b"x")
        admin.delete_user("bob")
        with pytest.raises(NotAllowed):
            until(bob.ping)


def test_wrong_tokens_are_limited_and_a_right_one_gets_in_at_once(url: str, admin):
    right = admin.create_user("bob", ["worker"])
    wrong = right[:-4] + "xxxx"
    for _ in range(FREE):
        with pytest.raises(NotAllowed) as refused:
            hocket.connect(url, token=wrong)
        assert type(refused.value) is NotAllowed
        assert right[-43:-4] not in str(refused.value)
    for _ in range(12):
        with pytest.raises(TooManyAttempts, match=r"from 127.0.0.1; try again in 1 s"):
            hocket.connect(url, token=wrong)
    hocket.connect(url, token=right).close()


def test_a_restart_keeps_users_roles_and_tokens(tmp_path: Path):
    with listening(tmp_path / "data", settings()) as (host, port):
        url = f"hocket://{host}:{port}"
        with hocket.connect(url) as anybody:
            token = anybody.create_user("ann", ["admin"])
        with hocket.connect(url, token=token) as ann:
            ann.create_role("worker")
            ann.grant("worker", "publish", "o*")
            worker = ann.create_user("bob", ["worker"])
            ann.create_topic("orders")
            before = ann.access()
    with listening(tmp_path / "data", settings()) as (host, port):
        url = f"hocket://{host}:{port}"
        with pytest.raises(NotAllowed):
            hocket.connect(url)
        with hocket.connect(url, token=token) as ann, hocket.connect(url, token=worker) as bob:
            assert ann.access() == before
            bob.publish("orders", b"x")
            with pytest.raises(NotAllowed):
                bob.access()


def test_what_the_calls_give_and_what_they_refuse(admin):
    token = admin.create_user("bob", ("worker",))
    assert token.startswith("hocket_bob_")
    users, roles = admin.access()
    assert users == [UserDescription("ann", ("admin",)), UserDescription("bob", ("worker",))]
    assert roles == [
        RoleDescription("admin", (Grant("admin"),)),
        RoleDescription("worker", (Grant("publish", "orders"), Grant("subscribe", "orders", "b*"))),
    ]
    assert admin.can("bob", "publish", "orders") == Decision(
        True, "the role 'worker' grants publish on topic 'orders'"
    )
    assert not admin.can("bob", "subscribe", "orders").allowed
    assert admin.can("bob", "subscribe", "orders", "billing").allowed
    admin.set_roles("bob", [])
    assert not admin.can("bob", "publish", "orders").allowed
    admin.delete_role("worker")
    admin.delete_user("bob")
    for call, error in (
        (lambda: admin.can("bob", "publish", "orders"), UnknownUser),
        (lambda: admin.can("ann", "fly", "orders"), OutOfRange),
        (lambda: admin.create_user("ann"), NameInUse),
        (lambda: admin.create_user("eve", "admin"), WrongType),
        (lambda: admin.create_user("eve", ["worker"]), UnknownRole),
        (lambda: admin.delete_user("ann"), NotAllowed),
        (lambda: admin.set_roles("ann", []), NotAllowed),
        (lambda: admin.grant("admin", "publish"), NotAllowed),
        (lambda: admin.revoke("worker", "publish"), UnknownRole),
    ):
        with pytest.raises(error):
            call()


def test_the_asyncio_client_has_the_same(url: str):
    async def main() -> None:
        async with hocket.aio.connect(url) as anybody:
            token = await anybody.create_user("ann", ["admin"])
        async with hocket.aio.connect(url, token=token) as ann:
            await ann.create_topic("orders")
            await ann.create_role("worker")
            await ann.grant("worker", "subscribe", "orders")
            bob_token = await ann.create_user("bob")
            await ann.set_roles("bob", ["worker"])
            assert (await ann.can("bob", "subscribe", "orders")).allowed
            async with hocket.aio.connect(url, token=bob_token) as bob:
                subscription = await bob.subscribe("orders", index="billing")
                await ann.publish("orders", b"one")
                assert (await anext(aiter(subscription))).value == b"one"
                await ann.revoke("worker", "subscribe", "orders")
                with pytest.raises(NotAllowed):
                    await anext(aiter(subscription))
                await subscription.close()
                with pytest.raises(NotAllowed):
                    await bob.renew_token("bob")
            await ann.renew_token("bob")
            await ann.delete_user("bob")
            await ann.delete_role("worker")
            users, roles = await ann.access()
            assert [user.name for user in users] == ["ann"]
            assert [role.name for role in roles] == ["admin"]

    run(main())


def test_an_embedded_client_needs_no_token(tmp_path: Path):
    with hocket.embedded(tmp_path / "data") as client:
        client.create_user("ann", ["admin"])
        client.create_topic("orders")
        client.publish("orders", b"x")
    with hocket.embedded(tmp_path / "data") as client:
        assert [user.name for user in client.access()[0]] == ["ann"]
        client.publish("orders", b"y")
