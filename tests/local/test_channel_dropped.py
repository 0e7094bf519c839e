"""Channel: an end that is dropped wakes the other one, and says so."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest

from hocket.errors import Disconnected
from hocket.local import Broker, BrokerManager, Channel
from tests.support.threads import Running, run, settle


def pair(channels: list[Channel], buffer_bytes: int = 4) -> list[Channel]:
    """Two ends that nobody else holds."""
    ends = list(Channel.pair(buffer_bytes))
    channels.clear()
    return ends


def drop(ends: list[Channel]) -> None:
    with pytest.warns(ResourceWarning, match="dropped without disconnect: <Channel connected"):
        del ends[0]


@pytest.mark.parametrize("call", ["read", "read_exactly", "write_all"])
def test_an_end_that_is_dropped_wakes_the_other_which_waits(channels: list[Channel], call: str):
    ends = pair(channels)
    arguments: Any = {"read": bytearray(1), "read_exactly": 1, "write_all": bytes(5)}
    with Running(getattr(ends[1], call), arguments[call]) as waiting:
        waiting.parked()
        drop(ends)
        waiting.failure(Disconnected)


def test_a_coroutine_that_waits_is_woken_too(channels: list[Channel]):
    async def wait() -> None:
        ends = pair(channels)
        reading = asyncio.ensure_future(ends[1].read_async(bytearray(1)))
        await settle()
        drop(ends)
        with pytest.raises(Disconnected):
            await reading

    run(wait())


def test_what_was_written_before_is_read_and_then_the_other_end_is_disconnected(
    channels: list[Channel],
):
    ends = pair(channels)
    ends[0].write_all(b"last")
    drop(ends)
    (left,) = ends
    assert not left.disconnected
    assert left.read_exactly(4, timeout=10) == b"last"
    assert left.disconnected
    with pytest.raises(Disconnected):
        left.write(b"x")


def test_an_end_that_nobody_waits_for_is_dropped_silently(channels: list[Channel]):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ends = pair(channels)
        with ends[0]:
            pass
        del ends
        here, there = pair(channels)
        here.disconnect()
        del here
        del there  # the other end has left: nothing is owed to it
        gc.collect()


def test_ends_that_die_together_in_a_circle_warn_once(channels: list[Channel]):
    class Holder:
        """Refers to itself, and so waits for the collector."""

        def __init__(self) -> None:
            self.itself = self
            self.ends = pair(channels)

    Holder()
    with pytest.warns(ResourceWarning) as caught:
        gc.collect()
    assert len(caught) == 1


def test_an_accepted_channel_that_nobody_keeps_wakes_its_partner(channels: list[Channel]):
    manager = BrokerManager()
    with Broker("server", manager) as server, Broker("client", manager) as client:

        def talk() -> bytes:
            with client.connect(server, 1) as channel:
                return channel.read_exactly(1)

        with Running(talk) as talking:
            accepted = [server.accept(1, timeout=10)]
            channels.clear()
            with pytest.warns(ResourceWarning):
                del accepted[0]
            talking.failure(Disconnected)


def test_a_warning_that_is_an_error_does_not_keep_the_end_connected(
    channels: list[Channel], monkeypatch: pytest.MonkeyPatch
):
    unraisable: list[Any] = []
    monkeypatch.setattr("sys.unraisablehook", lambda fault: unraisable.append(fault.exc_type))
    ends = pair(channels)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del ends[0]
        gc.collect()
    assert unraisable == [ResourceWarning]
    with pytest.raises(Disconnected):
        ends[0].read(bytearray(1), timeout=10)
