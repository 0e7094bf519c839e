"""`kill -9` while delayed messages wait and go: nothing is lost, and nothing comes twice."""

from __future__ import annotations

import time

import hocket
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG, until

ROUNDS = 20 if LONG else 2
EACH = 400


def test_kill_9_loses_no_delayed_message_and_doubles_none(tmp_path):
    sent: list[bytes] = []
    with ServerProcess(tmp_path / "data") as server:
        with hocket.connect(server.address, timeout=60) as client:
            client.create_topic("t", delayed=True, segment_bytes="64KiB")
            client.publish("t", b"much later", delay="1h")
        for round_number in range(ROUNDS):
            with hocket.connect(server.address, timeout=60) as client:
                with client.producer("t", batch_bytes=2_000) as producer:
                    for number in range(EACH):
                        sent.append(b"%d:%d" % (round_number, number))
                        producer.send(sent[-1], delay=number * 7 % EACH / 1000)

                def has_begun() -> bool:  # some have gone, others wait
                    return client.describe("t").partitions[0].end > len(sent) - EACH

                until(has_begun, what="the first of them are due")
                server.kill()
            server.start()
        with (
            hocket.connect(server.address, timeout=60) as client,
            client.subscribe("t") as messages,
        ):
            found = [messages.receive(timeout=60) for _ in sent]
            assert sorted(each.value for each in found) == sorted(sent)
            assert [each.offset for each in found] == list(range(len(sent)))
            assert all(each.timestamp <= time.time() * 1e6 for each in found)
            until(
                lambda: client.describe("t").partitions[0].waiting == 1, what="one waits for long"
            )
            assert client.describe("t").partitions[0].end == len(sent), "nothing came twice"
