"""Users and roles count at this door as at the other, and what is revoked ends at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hocket import Client
from hocket.client.connection.embedded import EmbeddedConnector
from tests.support.certificates import made
from tests.support.rpc.world import Sink, World, connected, fails, of, run, session, world
from tests.support.threads import until_async


@contextmanager
def administrator(here: World) -> Iterator[Client]:
    """Somebody in the broker's own process, who may do everything."""
    with Client(EmbeddedConnector(here.broker), closing=lambda: None) as client:
        yield client


@contextmanager
def guarded(here: World) -> Iterator[tuple[Client, str]]:
    """With a topic and a user who may use it; his token."""
    with administrator(here) as admin:
        admin.create_topic("t")
        admin.create_user("root", ["admin"])
        admin.create_role("staff")
        for action in ("publish", "subscribe"):
            admin.grant("staff", action, "t")
        yield admin, admin.create_user("alice", ["staff"])


def test_a_token_lets_in_and_grants_decide(here: World):
    with guarded(here) as (_, token):

        async def main() -> None:
            async with session(here.address, token) as one:
                await one.topic("t").topic.publish(of(b"x"))
                assert list((await one.topics()).names) == ["t"]
                async with fails("notAllowed", "create"):
                    await one.createTopic("u")
                async with fails("notAllowed"):
                    await one.topic("u").topic.publish(of(b"x"))
            for wrong in ("", "hocket_alice_" + "x" * 43):
                async with connected(here.address) as broker, fails("notAllowed"):
                    await broker.login(wrong, "a test")

        run(main())


def test_wrong_tokens_are_limited(here: World):
    with guarded(here):

        async def main() -> None:
            async with connected(here.address) as broker:
                for _ in range(20):
                    try:
                        await broker.login("hocket_alice_" + "x" * 43, "a test")
                    except Exception as error:
                        if "tooManyAttempts: " in str(error):
                            return
            raise AssertionError("twenty wrong tokens, and no end")

        run(main())


def test_what_is_revoked_ends_at_once(here: World):
    with guarded(here) as (admin, token):

        async def main() -> None:
            async with session(here.address, token) as one:
                topic = one.topic("t").topic
                sink = Sink()
                reading = await topic.subscribe({"index": "i"}, sink)
                producer = (await topic.producer({})).producer
                await producer.push(of(b"x"))
                await producer.flush()
                await sink.received(1)
                admin.revoke("staff", "subscribe", "t")
                await until_async(lambda: sink.end)
                assert sink.end is not None
                assert sink.end[0] == "notAllowed"
                await producer.push(of(b"still permitted"))
                await producer.flush()
                admin.revoke("staff", "publish", "t")

                async def push_on() -> None:
                    while True:
                        await producer.push(of(b"not any more"))
                        await producer.flush()

                async with fails("notAllowed"):
                    await push_on()
                del reading

        run(main())
        assert admin.describe("t").partitions[0].end == 2


def test_a_user_who_is_deleted_is_cut_off(here: World):
    with guarded(here) as (admin, token):

        async def main() -> None:
            async with session(here.address, token) as one:
                sink = Sink()
                reading = await one.topic("t").topic.subscribe({}, sink)
                admin.delete_user("alice")
                await until_async(lambda: sink.end)
                assert sink.end is not None
                assert sink.end[0] == "notAllowed"
                async with fails("notAllowed"):
                    await one.topics()
                del reading

        run(main())


@pytest.mark.parametrize("certified", [True, False])
def test_a_certificate_lets_in_instead_of_a_token(tmp_path: Path, certified: bool):
    files = made(tmp_path)
    with world(tmp_path / "data", tls=files.broker(asks=True)) as here, guarded(here):

        async def main() -> None:
            context = files.client(of=files.alice if certified else None)
            async with connected(here.address, ssl=context) as broker:
                if certified:
                    one = (await broker.login("", "a test")).session
                    await one.topic("t").topic.publish(of(b"x"))
                else:
                    async with fails("notAllowed"):
                        await broker.login("", "a test")

        run(main())
