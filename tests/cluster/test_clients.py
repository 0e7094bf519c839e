"""Clients of a cluster of real processes need not know where a topic is, nor which nodes live."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import hocket
import hocket.aio
from hocket import Client
from hocket.errors import HocketError, NoConnection
from tests.support.cluster.processes import cluster_in, wait_for

SECONDS = 30.0


def sessions(client: Client) -> int:
    return len(client._engine.router.sessions)


@pytest.mark.timeout(120)
def test_a_client_goes_on_by_a_node_that_its_url_does_not_name(tmp_path: Path):
    with cluster_in(tmp_path) as cluster:
        a = cluster.found("a")
        cluster.join(["b"], [a])
        b = cluster["b"]
        a.client().create_topic("of-a")
        b.client().create_topic("of-b")
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
                assert client.describe("of-b").partitions[0].end == 1001

                a.kill()
                # What was going on with b is not touched; what a answered is answered by b.
                assert messages.receive(timeout=SECONDS).value == b"500"
                assert client.topics() == ["of-a", "of-b"]
                assert late.topics() == ["of-a", "of-b"]
            assert client.publish("of-b", b"1000").offset > 1000
            assert late.publish("of-b", b"1001").offset > 1000
            with pytest.raises(NoConnection, match=rf"tried: node \w+ names .* at {a.address}; .*"
                               r"refused") as caught:  # fmt: skip
                client.seek("of-a", "i", "earliest", timeout=1)
            assert not caught.value.may_have_happened
            (described,) = client.describe("of-a").partitions
            assert "is known on" in described.problem
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
