"""The end of a process whose clients nobody closed: all is delivered, or said to be lost."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import count

import pytest

import hocket
from hocket import errors
from tests.support.processes.script import run_script
from tests.support.processes.server import ServerProcess

_numbers = count()


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("leaving") / "data") as server:
        yield server.address


@pytest.fixture
def client(url: str) -> Iterator[hocket.Client]:
    with hocket.connect(url) as made:
        yield made


@pytest.fixture
def topic(client: hocket.Client) -> str:
    name = f"topic-{next(_numbers)}"
    client.create_topic(name)
    return name


def stored(client: hocket.Client, topic: str) -> Counter[str]:
    (end,) = client.find_offsets(topic, "latest")
    with client.subscribe(topic) as messages:
        return Counter(messages.receive(timeout=20).value.decode() for _ in range(end))


def left(text: str, *arguments: str) -> list[str]:
    """What a script said on stderr; it ended as if nothing was wrong."""
    done = run_script(text, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stderr.splitlines()


def test_what_was_sent_is_stored(url, client, topic):
    said = left(
        """
        import sys, hocket
        c = hocket.connect(sys.argv[1])
        p = c.producer(sys.argv[2])
        [p.send(b"x") for _ in range(5000)]
        """,
        url,
        topic,
    )
    assert (said, stored(client, topic)) == ([], {"x": 5000})


def test_whoever_sent_it_and_whenever(url, client, topic):
    said = left(
        """
        import atexit, asyncio, sys, threading, hocket, hocket.aio
        url, topic = sys.argv[1:]

        def send(name, client):
            client.producer(topic, linger=60).send(name)
            return client

        several = [send(b"several", hocket.connect(url)) for _ in range(3)]
        send(b"dropped", hocket.connect(url))
        at_exit = hocket.connect(url)
        atexit.register(send, b"at exit", at_exit)

        def on_a_thread():
            client = hocket.connect(url)
            threading.main_thread().join()
            send(b"on a thread", client)
            sys.exit(3)

        threading.Thread(target=on_a_thread).start()

        def on_a_daemon():
            send(b"on a daemon", hocket.connect(url))
            sent.set()
            threading.Event().wait()

        sent = threading.Event()
        threading.Thread(target=on_a_daemon, daemon=True).start()
        assert sent.wait(20)
        """,
        url,
        topic,
    )
    assert said == []
    assert stored(client, topic) == {
        "several": 3, "dropped": 1, "at exit": 1, "on a thread": 1, "on a daemon": 1,
    }  # fmt: skip


def test_what_was_sent_in_asyncio_is_stored(url, client, topic):
    """Also when its loop was closed long before, or was never closed."""
    said = left(
        """
        import asyncio, sys, threading, hocket.aio
        url, topic = sys.argv[1:]
        kept = []

        async def send(name):
            client = await hocket.aio.connect(url)
            producer = await client.producer(topic, linger=60)
            await producer.send(name)
            await producer.send_future(name)
            return client

        async def drop(name):
            await send(name)

        kept.append(asyncio.run(send(b"kept")))
        asyncio.run(drop(b"dropped"))
        late = asyncio.run(send(b"dropped late"))
        del late
        loop = asyncio.new_event_loop()
        kept.append(loop.run_until_complete(send(b"not closed")))

        def run_for_ever():
            loop = asyncio.new_event_loop()
            kept.append(loop.run_until_complete(send(b"on a daemon")))
            sent.set()
            loop.run_forever()

        sent = threading.Event()
        threading.Thread(target=run_for_ever, daemon=True).start()
        assert sent.wait(20)
        """,
        url,
        topic,
    )
    assert said == []
    assert stored(client, topic) == {
        "kept": 2, "dropped": 2, "dropped late": 2, "not closed": 2, "on a daemon": 2,
    }  # fmt: skip


def test_what_is_due_when_a_loop_is_closed_waits_for_the_next_link(url, client, topic):
    """The thread that goes on is made to be quick: it runs before its maker does anything else."""
    said = left(
        """
        import asyncio, sys, threading, time, hocket.aio
        from hocket.client.engines.driver import Driver
        url, topic = sys.argv[1:]

        async def send():
            client = await hocket.aio.connect(url)
            producer = await client.producer(topic)
            for _ in range(5000):
                await producer.send(b"x")
            return client

        def start(thread):
            start_as_always(thread)
            has_run.wait(0.3)

        def run_due(driver):
            try:
                run_due_as_always(driver)
            finally:
                has_run.set()

        has_run = threading.Event()
        client = asyncio.run(send())
        while client._engine.timers.delay_us():  # until what gathers is due to leave
            time.sleep(0.001)
        start_as_always, threading.Thread.start = threading.Thread.start, start
        run_due_as_always, Driver.run_due = Driver.run_due, run_due
        """,
        url,
        topic,
    )
    assert (said, stored(client, topic)) == ([], {"x": 5000})


def test_a_client_that_is_collected_while_its_successor_is_made_has_one_successor(
    url, client, topic
):
    client.producer(topic).send_many([b"x"] * 10)
    script = """
        import asyncio, sys, hocket.aio
        from hocket.client.engines import aio

        made = []

        class Engine(aio.Engine):
            def go_on(self, why):
                made.append(self)
                super().go_on(why)
                engine.abandon(None)  # as the garbage collector may have it, at any line

        aio.Engine = Engine

        async def main():
            global engine
            client = await hocket.aio.connect(sys.argv[1])
            engine = client._engine
            messages = await client.subscribe(sys.argv[2], index="i")
            for _ in range(7):
                await (await messages.receive(20)).ack()
            return client, messages

        kept = asyncio.run(main())
        engine.rescue()
        assert len(made) == 1, made
    """
    assert left(script, url, topic) == []
    assert client.lag(topic, "i") == 3


@pytest.mark.parametrize("mode", ["own", "shared"])
@pytest.mark.parametrize("style", ["sync", "aio"])
def test_what_was_acknowledged_is_done(url, client, topic, mode, style):
    client.producer(topic).send_many([b"x"] * 10)
    scripts = {
        "sync": """
        import sys, hocket
        client = hocket.connect(sys.argv[1])
        messages = client.subscribe(sys.argv[2], index="i", mode=sys.argv[3])
        for _ in range(7):
            messages.receive(20).ack()
        """,
        "aio": """
        import asyncio, sys, hocket.aio

        async def main():
            client = await hocket.aio.connect(sys.argv[1])
            messages = await client.subscribe(sys.argv[2], index="i", mode=sys.argv[3])
            for _ in range(7):
                await (await messages.receive(20)).ack()

        asyncio.run(main())
        """,
    }
    assert left(scripts[style], url, topic, mode) == []
    assert client.lag(topic, "i") == 3


def test_a_transaction_that_is_open_is_aborted_and_said(url, client, topic):
    said = left(
        """
        import sys, hocket
        client = hocket.connect(sys.argv[1])
        transaction = client.transaction("t", number=3)
        transaction.send_many(sys.argv[2], [b"x"] * 50)
        prepared = client.transaction("t", number=4)
        prepared.send(sys.argv[2], b"y")
        prepared.prepare()
        unused = client.transaction("t", number=5)
        """,
        url,
        topic,
    )
    assert said == [
        "hocket: when the process ended, transaction 't' number 3 was not committed, so it was "
        "aborted: 50 messages dropped"
    ]
    with client.transaction("t", number=3) as transaction:  # at once: nothing of it is left
        transaction.send(topic, b"again")
    assert stored(client, topic) == {"again": 1}


def test_what_cannot_be_delivered_in_time_is_said(tmp_path):
    """The broker goes away, and does not come back."""
    server = ServerProcess(tmp_path / "data")
    with server:
        done = run_script(
            """
            import asyncio, os, signal, sys, hocket, hocket.aio
            client = hocket.connect(sys.argv[1], exit_timeout=0.3)
            client.create_topic("t")
            client.publish("t", b"x")
            messages = client.subscribe("t", index="i")
            message = messages.receive(20)
            staging = client.transaction("t")
            staging.send_many("t", [b"y"] * 20)
            core = staging._producers["t"].staging
            client._engine.do(core.cut_all)
            until_staged = lambda: core.is_staged() or None
            client._engine.wait_for(until_staged, core.settled, 20, ValueError)
            producer = client.producer("t", linger=60)

            async def main():
                client = await hocket.aio.connect(sys.argv[1], exit_timeout=0.3)
                producer = await client.producer("t", linger=60)
                await producer.send(b"one")

            loop = asyncio.new_event_loop()
            loop.run_until_complete(main())
            os.kill(int(sys.argv[2]), signal.SIGKILL)
            loop.close()
            message.ack()
            producer.send_many([b"x"] * 4200)
            """,
            server.address,
            str(server.process.pid),
        )
    assert done.returncode == 0
    said = sorted(line.removeprefix("hocket: when the process ended, ")
                  for line in done.stderr.splitlines() if line.startswith("hocket: "))  # fmt: skip
    where = rf"could not be delivered to {server.address}: there is no connection \(.*\)"
    patterns = [
        rf"1 acknowledgement of topic 't', index 'i' \(the messages come again\) {where}",
        rf"1 message for topic 't' {where}",
        rf"4200 messages for topic 't' {where}",
        r"transaction 't' number 0 was not committed; 20 messages will be dropped by the broker.*",
    ]
    assert len(said) == len(patterns), done.stderr
    for line, pattern in zip(said, patterns, strict=True):
        assert re.fullmatch(pattern, line)


def test_what_was_lost_before_and_nobody_was_told_is_said(url, client, topic):
    """A producer that came to its end by itself. Who was told, is not told again."""
    said = left(
        """
        import sys, time, hocket
        from hocket import errors
        url, topic = sys.argv[1:]
        client = hocket.connect(url)
        unseen, flushed, closed, watched = (client.producer(topic, linger=60) for _ in range(4))
        heard = []
        watched = client.producer(topic, linger=60, on_delivery=heard.append)
        for producer in (unseen, flushed, closed, watched):
            producer.send_many([b"x"] * 30)
        future = unseen.send_future(b"y")
        client.delete_topic(topic)
        assert isinstance(future.exception(20), errors.UnknownTopic)
        for call in (flushed.flush, closed.close):
            try:
                call()
            except errors.UnknownTopic:
                continue
            raise AssertionError("it was not told")
        """,
        url,
        topic,
    )
    assert len(said) == 1
    assert re.fullmatch(
        f"hocket: when the process ended, 30 messages for topic '{topic}' had been given up "
        "unseen: .*deleted.*", said[0]
    )  # fmt: skip


def test_a_link_that_was_lost_is_opened_anew_where_no_thread_can_be_started(url, client, topic):
    """As it is in Python 3.12 and later, when a process ends."""
    said = left(
        """
        import atexit, socket, sys, threading, hocket
        client = hocket.connect(sys.argv[1])
        producer = client.producer(sys.argv[2], linger=60)
        producer.send_many([b"x"] * 100)

        def refuse(thread):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        def cut():
            threading.Thread.start = refuse
            client._engine.links[0]._socket.shutdown(socket.SHUT_RDWR)

        atexit.register(cut)
        """,
        url,
        topic,
    )
    assert all(line.startswith("lost the connection") for line in said), said
    assert stored(client, topic) == {"x": 100}


def test_an_embedded_broker_works_until_all_is_stored(tmp_path):
    path = tmp_path / "data"
    said = left(
        """
        import sys, hocket
        client = hocket.embedded(sys.argv[1])
        client.create_topic("t")
        client.producer("t", linger=60).send_many([b"x"] * 5000)
        temporary = hocket.embedded()
        temporary.create_topic("t")
        temporary.producer("t", linger=60).send_many([b"x"] * 5000)
        """,
        str(path),
    )
    assert said == []
    with hocket.embedded(path) as client:
        assert stored(client, "t") == {"x": 5000}


def test_ctrl_c_ends_the_wait(tmp_path):
    with ServerProcess(tmp_path / "data") as server:
        said = left(
            """
            import os, signal, sys, time, types, hocket
            from hocket.client.engines import leaving

            def interrupted(seconds):
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(seconds)

            client = hocket.connect(sys.argv[1], exit_timeout=None)
            client.create_topic("t")
            producer = client.producer("t", linger=60)
            os.kill(int(sys.argv[2]), signal.SIGSTOP)
            producer.send(b"x")
            leaving.time = types.SimpleNamespace(monotonic=time.monotonic, sleep=interrupted)
            """,
            server.address,
            str(server.process.pid),
        )
    assert said == [
        "hocket: when the process ended, 1 message for topic 't' could not be delivered to "
        f"{server.address}: the broker has not answered"
    ]


@pytest.mark.parametrize("wrong", [-1, "soon"])
def test_the_time_is_checked(url, wrong):
    with pytest.raises((errors.OutOfRange, errors.WrongType), match="exit_timeout"):
        hocket.connect(url, exit_timeout=wrong)
    with pytest.raises((errors.OutOfRange, errors.WrongType), match="exit_timeout"):
        hocket.aio.connect(url, exit_timeout=wrong)
    with pytest.raises((errors.OutOfRange, errors.WrongType), match="exit_timeout"):
        hocket.embedded(exit_timeout=wrong)
