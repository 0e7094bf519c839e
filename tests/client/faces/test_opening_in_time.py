"""What is said when a broker does not open something in time: may it have happened?"""

from __future__ import annotations

import pytest

import hocket
import hocket.aio
from hocket import frames
from hocket.errors import OutcomeUnknown, Timeout
from tests.support.client.sockets import ScriptedServer, usual
from tests.support.threads import run


def opens_nothing(frame, payload):
    """A broker that answers everything but what opens a producer or a subscription."""
    if not isinstance(frame, frames.OpenProducer):
        yield from usual(frame, payload)


def test_a_subscription_may_have_replaced_another_consumer():
    with ScriptedServer(opens_nothing) as server, hocket.connect(server.url) as client:
        with pytest.raises(OutcomeUnknown, match="replaced the consumer") as caught:
            client.subscribe("t", index="i", timeout=0.2)
        assert caught.value.may_have_happened


def test_a_subscription_may_have_replaced_another_consumer_in_asyncio():
    async def subscribe(url: str) -> None:
        async with hocket.aio.connect(url) as client:
            with pytest.raises(OutcomeUnknown, match="replaced the consumer"):
                await client.subscribe("t", index="i", timeout=0.2)

    with ScriptedServer(opens_nothing) as server:
        run(subscribe(server.url))


def test_a_producer_that_was_not_opened_has_done_nothing():
    with ScriptedServer(opens_nothing) as server, hocket.connect(server.url) as client:
        with pytest.raises(Timeout, match="did not open the producer") as caught:
            client.producer("t", timeout=0.2)
        assert not isinstance(caught.value, OutcomeUnknown)
        assert not caught.value.may_have_happened
