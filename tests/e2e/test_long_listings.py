"""What is too long for one frame, made through a real broker: a listing, and a transaction."""

from __future__ import annotations

import asyncio

import pytest

import hocket
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG


def test_a_listing_just_beyond_what_one_frame_takes(tmp_path):
    names = [f"{n:04}".rjust(250, "t") for n in range(2700)]  # of some 390 bytes each

    async def make(url: str) -> None:
        async with await hocket.aio.connect(url) as client:
            await asyncio.gather(*(client.create_topic(name, timeout=60) for name in names))
            assert await client.topics() == names

    with ServerProcess(tmp_path / "data") as server:
        asyncio.run(make(server.address))
        with hocket.connect(server.address) as client:
            assert client.topics() == names


@pytest.mark.stress
@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long; tests/node has as many by default")
def test_a_transaction_of_ten_thousand_participants(tmp_path):
    """As many as may be: of 40 tasks that have each written to 250 partitions of a long name."""
    topic = "t" * 250
    with ServerProcess(tmp_path / "data") as server, hocket.connect(server.address) as client:
        client.create_topic(topic, partitions=250)
        participants = []
        for _ in range(40):
            with client.transaction("job", number=1) as transaction:
                for partition in range(250):
                    transaction.send(topic, b"x", partition=partition)
                participants += transaction.prepare()
        assert len(participants) == 10_000
        client.commit_prepared("job", 1, participants, timeout=60)
        assert [each.end for each in client.describe(topic).partitions] == [40] * 250
