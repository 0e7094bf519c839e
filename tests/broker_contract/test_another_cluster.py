"""A client never goes on in a cluster that it does not belong to."""

from __future__ import annotations

import asyncio
import json
import shutil

import pytest

import hocket
import hocket.aio
from hocket.errors import AnotherCluster
from tests.support.processes.server import ServerProcess
from tests.support.threads import run


def test_two_brokers_that_do_not_belong_together(tmp_path):
    """After A dies, nothing goes on in B: no producer, no subscription, no call."""
    with ServerProcess(tmp_path / "a") as a, ServerProcess(tmp_path / "b") as b:
        with hocket.connect(b.address) as client:
            client.create_topic("t")
            client.producer("t").send_many([b"b"] * 100)
        url = f"{a.address},{b.address.removeprefix('hocket://')}"
        with hocket.connect(url) as client:
            client.create_topic("t")
            client.publish("t", b"a")
            messages = client.subscribe("t", index="i")
            producer = client.producer("t", linger=60)
            assert messages.receive(timeout=20).value == b"a"
            sent = producer.send_future(b"precious")
            a.kill()
            for call in (messages.receive, client.ping, lambda: client.publish("t", b"?")):
                with pytest.raises(AnotherCluster, match="do not belong together") as caught:
                    call()
                assert not caught.value.may_have_happened
            with pytest.raises(AnotherCluster):
                sent.result(timeout=20)
            with pytest.raises(AnotherCluster):
                producer.close()
        with hocket.connect(b.address) as client:
            assert [each.end for each in client.describe("t").partitions] == [100]
            assert client.indexes("t") == []


def test_what_was_in_flight_may_have_happened(tmp_path):
    with ServerProcess(tmp_path / "a") as a, ServerProcess(tmp_path / "b") as b:
        url = f"{a.address},{b.address.removeprefix('hocket://')}"
        with hocket.connect(url) as client:
            client.create_topic("t")
            with client.producer("t") as producer:
                a.process.send_signal(19)  # SIGSTOP: it takes bytes, and answers nothing
                futures = [producer.send_future(b"?") for _ in range(3)]
                producer._engine.do(producer._core.cut_all)
                a.kill()
                for future in futures:
                    error = future.exception(timeout=20)
                    assert isinstance(error, AnotherCluster)
                    assert error.may_have_happened
                with pytest.raises(AnotherCluster):
                    producer.flush()


def test_a_data_directory_that_was_made_anew_is_another_cluster(tmp_path):
    """On the same address, and also in asyncio."""

    async def main() -> None:
        async with hocket.aio.connect(server.address) as client:
            await client.create_topic("t")
            async with client.subscribe("t", index="i") as messages:
                waiting = asyncio.create_task(messages.receive())
                server.kill()
                shutil.rmtree(server.data)
                server.start()
                with pytest.raises(AnotherCluster, match="data directory was replaced"):
                    await waiting
                with pytest.raises(AnotherCluster):
                    await client.topics()

    with ServerProcess(tmp_path / "data") as server:
        run(main())


def test_the_id_is_that_of_the_data_directory_for_ever(tmp_path):
    path = tmp_path / "data"
    with hocket.embedded(path) as client:
        first = client.cluster
    assert first == json.loads((path / "hocket.json").read_text())["store"]
    with hocket.embedded(path) as client:
        assert client.cluster == first
    with ServerProcess(path) as server, hocket.connect(server.address) as client:
        assert client.cluster == first
        server.kill()
        server.start()
        client.ping()
        assert client.cluster == first
