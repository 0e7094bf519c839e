"""`hocket serve --rpc-listen`: the endpoint in a broker process of its own."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
from pathlib import Path
from typing import Any

import pytest

import hocket
from tests.support.cli import HOCKET, Serving, environment, serving
from tests.support.processes import forked
from tests.support.rpc.world import Address, Sink, of, run, session
from tests.support.threads import PATIENCE, until_async


def rpc_address(broker: Serving) -> Address:
    """From the line it says when it is ready."""
    host, port = broker.ready.split("RPC on ")[1].split(",")[0].rsplit(":", 1)
    return host, int(port)


def refused(*args: str) -> str:
    """What `serve` says when it does not start."""
    done = forked.run(
        [*HOCKET, "serve", "--listen", "127.0.0.1:0", *args],
        text=True, timeout=PATIENCE, env=environment(),
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def test_it_says_one_line_whose_last_word_is_the_other_port(tmp_path: Path):
    with serving(tmp_path, "--rpc-listen", "127.0.0.1:0") as broker:
        assert broker.url.startswith("hocket://127.0.0.1:")
        with hocket.connect(broker.url) as native:
            native.create_topic("t")
            native.publish("t", b"by the one door")

        async def main() -> None:
            async with session(rpc_address(broker)) as one:
                topic = one.topic("t").topic
                await topic.publish(of(b"by the other"))
                sink = Sink()
                held = await topic.subscribe({}, sink)
                assert await sink.received(2) == [b"by the one door", b"by the other"]
                del held

        run(main())
        assert broker.stop() == 0
        assert broker.process.stdout is not None
        assert broker.process.stdout.read() == ""


def test_sigterm_answers_what_was_begun_and_tells_the_sinks(tmp_path: Path):
    with serving(tmp_path, "--rpc-listen", "127.0.0.1:0") as broker:

        async def main() -> int:
            async with session(rpc_address(broker)) as one:
                topic = (await one.createTopic("t")).topic
                sink = Sink()
                held = await topic.subscribe({"index": "i"}, sink)
                producer = (await topic.producer({"lingerUs": 60_000_000})).producer
                await producer.push(of(b"pushed"))
                publishing = [asyncio.ensure_future(_answer(topic, n)) for n in range(50)]
                await asyncio.sleep(0)
                broker.process.send_signal(signal.SIGTERM)
                await until_async(lambda: sink.end)
                assert sink.end is not None
                assert sink.end[0] == "shuttingDown"
                answers = await asyncio.gather(*publishing)
                del held
                return sum(answers)

        answered = run(main())
        assert broker.process.wait(PATIENCE) == 0
    with serving(tmp_path) as broker, hocket.connect(broker.url) as native:
        stored = native.describe("t").partitions[0].end
        assert answered + 1 <= stored <= 51  # nothing answered is lost, nor what was pushed
        assert broker.stop() == 0


async def _answer(topic: Any, number: int) -> bool:
    try:
        await topic.publish(of(b"%d" % number))
    except Exception:
        return False
    return True


def test_it_stops_in_time_whatever_its_clients_do(tmp_path: Path):
    """A sink that never answers, and a client that does not read."""
    with serving(tmp_path, "--rpc-listen", "127.0.0.1:0") as broker:

        async def main() -> int:
            async with session(rpc_address(broker)) as one:
                topic = (await one.createTopic("t")).topic
                await topic.publish(of(b"x"))
                sink = Sink()
                sink.open.clear()
                held = await topic.subscribe({}, sink)
                await sink.received(1)
                broker.process.send_signal(signal.SIGTERM)
                code = await asyncio.to_thread(broker.process.wait, PATIENCE)
                sink.open.set()
                del held
                return code

        with socket.create_connection(rpc_address(broker)):
            assert run(main()) == 0


def test_it_listens_on_loopback_only(tmp_path: Path):
    said = refused("--data", str(tmp_path / "data"), "--rpc-listen", "0.0.0.0:0")
    assert "refused to listen on 0.0.0.0:0" in said
    assert "hocket certs init" in said
    assert not (tmp_path / "data").exists()


def test_a_port_that_is_taken_is_named(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused("--data", str(tmp_path / "data"), "--rpc-listen", address)
    assert f"cannot listen on {address}" in said
    assert "--rpc-listen" in said


def test_whoever_has_not_logged_in_is_not_listened_to_for_long(tmp_path: Path):
    with serving(tmp_path / "data", "--rpc-listen", "127.0.0.1:0") as broker:
        with socket.create_connection(rpc_address(broker), timeout=10) as stranger:
            stranger.sendall(struct.pack("<II", 0, (100 << 20) // 8))  # a message of 100 MiB
            with pytest.raises(ConnectionError):
                stranger.sendall(bytes(64 << 20))
        assert broker.stop() == 0
