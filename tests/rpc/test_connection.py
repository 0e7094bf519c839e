"""When a connection is read from, and when it is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from hocket.errors import HocketError, OutcomeUnknown, Timeout, UnknownTopic
from hocket.rpc import connection as connections
from hocket.rpc.connection import Connection
from hocket.rpc.failure import cleaned, failure
from tests.support.threads import settle


class Transport:
    """As far as a connection looks at it."""

    def __init__(self) -> None:
        self.reading = True

    def resume_reading(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False


class Inner:
    def pause_writing(self) -> None:
        """pycapnp waits, too."""

    resume_writing = pause_writing


def on_a_connection(scenario: Callable[[Connection, Transport], Any]) -> None:
    async def main() -> None:
        connection = Connection(lambda *_: None, lambda _connection: None)
        transport: Any = Transport()
        connection._transport, connection._inner = transport, Inner()
        connection.resume_reading()
        assert transport.reading
        await scenario(connection, transport)
        await settle()
        assert transport.reading
        connection.pause_reading()  # pycapnp has enough
        assert not transport.reading

    asyncio.run(main())


def test_while_many_calls_are_in_progress_nothing_is_read():
    async def scenario(connection: Connection, transport: Transport) -> None:
        with ExitStack() as calls:
            for _ in range(connections.CALLS_MAX - 1):
                calls.enter_context(connection.call())
            await settle()
            assert transport.reading
            with connection.call():
                await settle()
                assert not transport.reading
                connection.resume_reading()  # pycapnp would like to
                assert not transport.reading
            await settle()
            assert transport.reading

    on_a_connection(scenario)


def test_while_calls_carry_much_nothing_is_read():
    async def scenario(connection: Connection, transport: Transport) -> None:
        with connection.carrying(connections.CARRIED_BYTES_MAX - 1):
            await settle()
            assert transport.reading
            with connection.carrying(1):
                await settle()
                assert not transport.reading

    on_a_connection(scenario)


def test_while_a_stream_waits_nothing_is_read():
    async def scenario(connection: Connection, transport: Transport) -> None:
        with connection.carrying(1, stream=True):
            await settle()
            assert not transport.reading

    on_a_connection(scenario)


def test_while_answers_are_not_fetched_only_so_many_calls_are_read():
    async def scenario(connection: Connection, transport: Transport) -> None:
        connection.pause_writing()
        for _ in range(connections.CALLS_MAX - 1):
            with connection.call():
                pass
        await settle()
        assert transport.reading
        with connection.call():
            pass
        await settle()
        assert not transport.reading
        connection.resume_writing()

    on_a_connection(scenario)


# --- failures on their way out -------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["message = ", ""])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (UnknownTopic("there is no topic 'x'"), b"unknownTopic: there is no topic 'x'"),
        (Timeout("too late"), b"timeout: too late"),
        (OutcomeUnknown("who knows"), b"timeout: who knows"),
        (HocketError("something"), b"failed: something"),
        (HocketError("é\nü"), "failed: é\nü".encode()),
    ],
)
def test_a_failure_is_found_and_cleaned_in_place(prefix: str, error: HocketError, reason: bytes):
    raised = failure(error)
    text = f"{prefix}{type(raised).__qualname__}: {raised}\n".encode()
    data = b"before" + text + b"\0behind"
    sent = cleaned(data)
    assert len(sent) == len(data)
    assert sent.startswith(b"before" + reason + b" ")
    assert sent.endswith(b" \0behind")
    assert cleaned(sent) == sent


def test_what_has_no_failure_in_it_goes_as_it_is():
    for data in (b"", b"message = ", bytes(1000), b"message = unknownTopic: not ours\n"):
        assert cleaned(data) is data
