"""Clients of a cluster of real processes need not know where a topic is, nor which nodes live."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

import hocket
import hocket.aio
from hocket import Client
from hocket.errors import HocketError, NoConnection, OutcomeUnknown
from tests.support.cluster.processes import cluster_in, wait_for

SECONDS = 30.0


def sessions(client: Client) -> int:
    return len(client._engine.router.sessions)


def not_sought(client: hocket.Client) -> NoConnection | None:
    """Why a seek in a topic whose node is down was not made.

    None: when its time was over it was just being asked about at another node, whose answer nobody
    waited for. That is told as an unknown outcome, as it has to be.
    """
    try:
        client.seek("of-a", "i", "earliest", timeout=1)
    except OutcomeUnknown:
        return None
    except NoConnection as error:
        return error
    raise AssertionError("nobody could have made it")


@pytest.mark.timeout(120)
def test_a_client_goes_on_by_a_node_that_its_url_does_not_name(tmp_path: Path):
    with cluster_in(tmp_path) as cluster:
        a = cluster.found("a")
        a.client().create_topic("of-a")  # it is alone, so that this is where it is
        cluster.join(["b"], [a])
        b = cluster["b"]
        b.client().create_topic("of-b")  # b has nothing yet, so that it gets this one
        wait_for(lambda: "of-b" in a.client().topics(), SECONDS, lambda: cluster.logs())
        with hocket.connect(a.url) as client, hocket.connect(a.url) as late:
            # One session while one node is needed, and a second one for the topic that b has.
            client.publish("of-a", b"0")
            assert sessions(client) == 1
            assert client.publish("of-b", b"0").offset == 0
            assert sessions(client) == 2
            with client.producer("of-b") as producer:
                producer.send_many([b"%d" % number for number in range(1, 1000)])
            with client.subscribe("of-b", index="i") as messages:
                read = [messages.receive(timeout=SECONDS) for _ in range(500)]
                assert [m.value for m in read] == [b"%d" % number for number in range(500)]
                read[-1].ack()
                with client.transaction("x", number=1) as transaction:
                    transaction.send("of-b", b"in a transaction")
                assert client.lag("of-b", "i") >= 500

                a.kill()
                # What was going on with b is not touched; what a answered is answered by b.
                assert messages.receive(timeout=SECONDS).value == b"500"
                assert client.topics() == ["of-a", "of-b"]
                assert late.topics() == ["of-a", "of-b"]
            assert client.publish("of-b", b"1000").offset > 1000
            assert late.publish("of-b", b"1001").offset > 1000
            error = wait_for(lambda: not_sought(client), SECONDS)
            assert re.search(rf"tried: .*node \w+ names .* at {a.address}", str(error))
            assert "refused" in str(error)
            assert not error.may_have_happened
            with pytest.raises(HocketError, match="names"), client.producer("of-a", timeout=1):
                pass
            asyncio.run(with_asyncio(b.url))

            cluster.restart("a")
            assert client.publish("of-a", b"1", timeout=SECONDS).offset == 1


async def with_asyncio(url: str) -> None:
    async with hocket.aio.connect(url) as client:
        await client.publish("of-b", b"from a loop")
        with pytest.raises(HocketError, match="names"):
            await client.subscribe("of-a", index="i", timeout=1)
