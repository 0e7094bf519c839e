"""A client in a forked child: refused at once, and the parent's goes on as if nothing had been."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import hocket
from tests.support.processes.script import run_script
from tests.support.processes.server import ServerProcess

# What a child does with an inherited client and what came of it, and what the parent finds then.
# The child ends like any program, so that what runs at its exit runs.
BLOCKING = """
    import json, os, sys, threading, time, hocket
    from hocket import errors

    url, path = sys.argv[1:]
    client = hocket.embedded(path) if url == "embedded" else hocket.connect(url)
    client.create_topic("t", partitions=2)
    client.producer("t").send_many([b"%d" % n for n in range(10)])
    own = client.subscribe("t", index="own")
    shared = client.subscribe("t", index="shared", mode="shared")
    mine, ours = own.receive(20), shared.receive(20)
    late, batch = own.receive(20), shared.receive_batch(20)
    late.ack()  # so that somebody is about to send it when the fork comes
    ours.extend()
    producer = client.producer("t", linger=60)
    producer.send(b"of the parent")
    staging = client.transaction("x")
    staging.send("t", b"staged")
    reader, writer = os.pipe()
    sys.stderr.flush()
    child = os.fork()
    if not child:
        calls = {
            "ping": client.ping, "topics": client.topics, "describe": lambda: client.describe("t"),
            "publish": lambda: client.publish("t", b"?"), "producer": lambda: client.producer("t"),
            "subscribe": lambda: client.subscribe("t"), "lag": lambda: client.lag("t", "own"),
            "send": lambda: producer.send(b"?"), "keyed": lambda: producer.send(b"?", b"k"),
            "future": lambda: producer.send_future(b"?"),
            "many": lambda: producer.send_many([b"?"]), "flush": producer.flush,
            "receive": own.receive, "now": own.receive_nowait, "batch": own.receive_batch,
            "next": lambda: next(iter(own)), "shared": shared.receive, "commit": own.commit,
            "seek": lambda: own.seek(0, 0), "position": lambda: own.position(0),
            "ack": mine.ack, "late": late.ack, "all": batch.ack, "ours": ours.ack,
            "nack": ours.nack, "extend": ours.extend, "reject": ours.reject,
            "stage": lambda: staging.send("t", b"?"), "other": lambda: staging.send("u", b"?"),
            "decide": staging.commit, "prepare": staging.prepare, "abort": staging.abort,
            "prepared": lambda: client.commit_prepared("x", 0, ()),
        }
        said = {}
        for name, call in calls.items():
            began = time.monotonic()
            try:
                call()
                said[name] = "nothing"
            except Exception as error:
                said[name] = type(error).__name__
                assert "Open a client of your own" in str(error), error
            if time.monotonic() - began > 10:  # a wait for the broker would take 30
                said[name] += ", late"
        for each in (producer, own, shared, staging, client):
            each.close()
        os.write(writer, json.dumps(said).encode())
        sys.exit(0)
    os.close(writer)
    said = json.loads(os.read(reader, 1 << 16))
    _, status = os.waitpid(child, 0)
    mine.ack(); ours.ack(); batch.ack()
    own.commit(); shared.commit()
    producer.send(b"and after")
    producer.close()
    staging.commit()
    ends = sum(each.end for each in client.describe("t").partitions)
    client.close()
    print(json.dumps({"said": said, "status": status, "ends": ends}))
"""

AIO = """
    import asyncio, json, os, sys, hocket.aio

    loop = asyncio.new_event_loop()
    run = loop.run_until_complete

    async def begin():
        global client, producer, messages, message, staging
        url, path = sys.argv[1:]
        opening = hocket.aio.embedded(path) if url == "embedded" else hocket.aio.connect(url)
        client = await opening
        await client.create_topic("t")
        producer = await client.producer("t", linger=60)
        await producer.send_many([b"x"] * 3)
        await producer.flush()
        messages = await client.subscribe("t", index="i")
        message = await messages.receive(20)
        await producer.send(b"of the parent")
        staging = client.transaction("x")
        await staging.send("t", b"staged")

    async def use():
        calls = {
            "ping": client.ping, "publish": lambda: client.publish("t", b"?"),
            "producer": lambda: client.producer("t"), "subscribe": lambda: client.subscribe("t"),
            "send": lambda: producer.send(b"?"), "flush": producer.flush,
            "many": lambda: producer.send_many([b"?"]), "receive": messages.receive,
            "batch": messages.receive_batch, "ack": message.ack, "commit": messages.commit,
            "stage": lambda: staging.send("t", b"?"), "decide": staging.commit,
            "next": lambda: messages.__aiter__().__anext__(),
        }
        said = {}
        for name, call in calls.items():
            try:
                async with asyncio.timeout(5):
                    await call()
                said[name] = "nothing"
            except Exception as error:
                said[name] = type(error).__name__
        for each in (producer, messages, staging, client):
            await each.close()
        return said

    async def end():
        await message.ack()
        await messages.commit()
        await producer.send(b"and after")
        await producer.close()
        await staging.commit()
        (found,) = (await client.describe("t")).partitions
        await client.close()
        return found.end

    run(begin())
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, json.dumps(asyncio.run(use())).encode())
        sys.exit(0)
    os.close(writer)
    said = json.loads(os.read(reader, 1 << 16))
    _, status = os.waitpid(child, 0)
    ends = run(end())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    print(json.dumps({"said": said, "status": status, "ends": ends}))
"""


@pytest.fixture
def url(tmp_path) -> Iterator[str]:
    with ServerProcess(tmp_path / "served") as server:
        yield server.address


def outcome(text: str, *arguments: str) -> dict[str, Any]:
    done = run_script(text, *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.mark.parametrize(("script", "ends"), [(BLOCKING, 13), (AIO, 6)], ids=["sync", "aio"])
@pytest.mark.parametrize("kind", ["embedded", "served"])
def test_a_child_is_refused_at_once_and_the_parent_goes_on(request, tmp_path, kind, script, ends):
    url = "embedded" if kind == "embedded" else request.getfixturevalue("url")
    found = outcome(script, url, str(tmp_path / "data"))
    assert {name: said for name, said in found["said"].items() if said != "WrongProcess"} == {}
    assert len(found["said"]) > 10
    assert (found["status"], found["ends"]) == (0, ends)


def test_a_child_has_clients_of_its_own(url):
    """Also by `multiprocessing`, and while the parent's sends."""
    with hocket.connect(url) as client:
        client.create_topic("t")
    found = outcome(
        """
        import json, multiprocessing, os, sys, hocket
        url = sys.argv[1]

        def work(number):
            with hocket.connect(url) as mine:
                return mine.publish("t", b"%d" % number).topic

        client = hocket.connect(url)
        producer = client.producer("t", linger=60)
        producer.send(b"of the parent")
        with multiprocessing.get_context("fork").Pool(3) as pool:
            done = pool.map(work, range(6))
        child = os.fork()
        if not child:
            own = hocket.connect(url)
            own.producer("t", linger=60).send(b"of the child")  # and it is delivered at its exit
            sys.exit(0)
        os.waitpid(child, 0)
        (before,) = client.describe("t").partitions
        producer.close()
        (after,) = client.describe("t").partitions
        client.close()
        print(json.dumps([done, before.end, after.end]))
        """,
        url,
    )
    assert found == [["t"] * 6, 7, 8]


def test_a_child_that_lives_on_keeps_nothing_of_the_parent_s_open(tmp_path):
    """Neither the data directory nor the port nor a connection: the parent decides on them."""
    found = outcome(
        """
        import json, os, signal, sys, hocket
        from pathlib import Path
        from hocket.errors import DataDirectoryInUse
        from hocket.node.broker import Broker

        path = Path(sys.argv[1])
        broker = Broker(path)
        host, port = broker.listen("127.0.0.1", 0)
        broker.start()
        client = hocket.connect(f"hocket://{host}:{port}")
        client.create_topic("t")
        first = client.subscribe("t", index="i")
        reader, writer = os.pipe()
        child = os.fork()
        if not child:
            sockets = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if
                       os.path.exists(f"/proc/self/fd/{fd}")]
            os.write(writer, json.dumps([name for name in sockets if "socket" in name]).encode())
            signal.pause()
        sockets = json.loads(os.read(reader, 1 << 16))
        client.close()
        broker.close()
        again = Broker(path)
        again.listen(host, port)
        again.start()
        with hocket.connect(f"hocket://{host}:{port}") as client:
            topics = client.topics()
        again.close()
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(json.dumps([sockets, topics]))
        """,
        str(tmp_path / "data"),
    )
    assert found == [[], ["t"]]
