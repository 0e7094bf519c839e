"""A forgotten `await`, and the words of one world used for the other: what their user is told."""

from __future__ import annotations

import gc
import re
import warnings

import pytest

import hocket
from hocket.errors import NotAwaited, WrongType
from tests.support.threads import run


def said(error: type[Exception], *words: str):
    return pytest.raises(error, match=".*".join(map(re.escape, words)))


def collected_warnings(make):
    """What is warned of when the thing that `make` makes is dropped."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
        gc.collect()
    return [str(each.message) for each in caught if each.category is RuntimeWarning]


# --- asyncio: not opened yet ---------------------------------------------------------------------

CONNECT = "hocket.aio.connect(...)"
OPENINGS = {
    CONNECT: lambda _client: hocket.aio.connect(),
    "hocket.aio.embedded(...)": lambda _client: hocket.aio.embedded(),
    "client.producer(...)": lambda client: client.producer("t"),
    "client.subscribe(...)": lambda client: client.subscribe("t"),
}


def test_something_that_was_not_awaited_says_so():
    async def main():
        async with hocket.aio.embedded() as client:
            await client.create_topic("t")
            for call, make in OPENINGS.items():
                found = collected_warnings(lambda make=make, call=call: misuse(make(client), call))
                assert found == [f"{call} was never awaited, so nothing was opened"]

    def misuse(opening, call):
        assert repr(opening) == f"<{call}, not awaited yet>"
        with said(NotAwaited, call, "must be awaited", f"await {call}", f"async with {call} as"):
            opening.publish("t", b"x")
        with said(AttributeError, "'receive' was asked for"):
            opening.receive()
        with said(TypeError, f"async with {call}", "instead of `with`"), opening:
            pass
        with said(TypeError, "must be awaited", "and then it is `async for`"):
            next(iter(opening))
        with said(TypeError, "must be awaited"):
            aiter(opening)
        assert not hasattr(opening, "topic")
        with pytest.raises(AttributeError, match="has no attribute '__len__'"):
            opening.__len__()

    run(main())


def test_what_was_awaited_or_entered_is_not_warned_of():
    async def main():
        async with hocket.aio.embedded() as client:
            await client.create_topic("t")
            opening = client.producer("t")
            producer = await opening
            assert repr(opening) == "<client.producer(...), awaited>"
            await producer.close()
            async with client.subscribe("t"):
                pass

    assert collected_warnings(lambda: run(main())) == []


def test_an_opening_that_could_not_be_made_warns_of_nothing():
    def make():
        with pytest.raises(WrongType):
            hocket.aio.connect(5)

    assert collected_warnings(make) == []


def test_a_coroutine_of_ours_that_is_not_awaited_is_named_by_python():
    async def main():
        async with hocket.aio.embedded() as client:
            await client.create_topic("t")
            async with client.subscribe("t") as messages, client.producer("t") as producer:
                return collected_warnings(
                    lambda: [client.publish("t", b"x"), producer.send(b"x"), messages.receive()]
                )

    assert sorted(run(main())) == [
        "coroutine 'AsyncClient.publish' was never awaited",
        "coroutine 'AsyncProducer.send' was never awaited",
        "coroutine 'AsyncSubscription.receive' was never awaited",
    ]


# --- asyncio, used as if it were blocking --------------------------------------------------------


def test_with_and_for_say_that_it_is_for_asyncio():
    async def main():
        async with hocket.aio.embedded() as client:
            await client.create_topic("t")
            async with client.subscribe("t") as messages, client.producer("t") as producer:
                transaction = client.transaction("tx")
                for each in (client, messages, producer, transaction):
                    name = type(each).__name__
                    with said(NotAwaited, name, "`async with` instead of `with`"), each:
                        pass
                with said(NotAwaited, "AsyncSubscription", "`async for` instead of `for`"):
                    list(messages)
                with pytest.raises(TypeError, match="not iterable"):
                    list(client)
                await client.publish("t", b"x")  # nothing of that has done any harm
                assert (await messages.receive()).value == b"x"

    run(main())


# --- blocking, used as if it were asyncio --------------------------------------------------------


def test_async_with_await_and_async_for_say_which_import_to_use():
    async def enter(each):
        async with each:
            pass

    async def wait(each):
        await each

    async def iterate(each):
        async for _ in each:
            pass

    with hocket.embedded() as client:
        client.create_topic("t")
        with client.subscribe("t") as messages, client.producer("t") as producer:
            transaction = client.transaction("tx")
            for each in (client, messages, producer, transaction):
                name = f"this {type(each).__name__} is blocking"
                with said(WrongType, name, "`with` instead of `async with`", CONNECT):
                    run(enter(each))
                with said(WrongType, name, "leave out `await`", f"await {CONNECT}"):
                    run(wait(each))
            with said(WrongType, "Subscription", "`for` instead of `async for`", CONNECT):
                run(iterate(messages))
            client.publish("t", b"x")
            assert messages.receive(timeout=30).value == b"x"
