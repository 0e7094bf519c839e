"""Nothing assumes one node: leaders are hints, and any server of the list will do."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace

import pytest

import hocket
from hocket.errors import NoConnection, NotAllowed
from hocket.spark import connections, reading
from hocket.spark.batch_reader import HocketBatchReader
from hocket.spark.connections import client_of
from hocket.spark.lookout import Lookout
from hocket.spark.options import ConnectionOptions, ReadOptions
from hocket.spark.planning import Span
from tests.spark.conftest import url_of
from tests.support.processes.server import ServerProcess, free_port
from tests.support.spark import fill

DEAD = "127.0.0.1:1"


def options_of(servers: str, topic: str) -> ReadOptions:
    return ReadOptions.parse({"servers": servers, "subscribe": topic}, streaming=False)


def count(span: Span, options: ReadOptions) -> int:
    return sum(batch.num_rows for batch in reading.read(span, options))


@pytest.mark.parametrize("leader", ["", DEAD, "0123abcd", "no:port:at all", "[::1]:1"])
def test_the_first_server_is_dead_and_the_leader_is_not_where_it_was(broker, client, topic, leader):
    client.create_topic(topic)
    fill(client, topic, 5)
    options = options_of(f"{DEAD},127.0.0.1:{broker.port}", topic)
    assert count(Span(topic, 0, 0, 5, leader=leader), options) == 5


def test_the_leader_is_tried_before_the_servers_that_were_named(tmp_path, broker, topic):
    with ServerProcess(tmp_path) as other:
        with hocket.connect(url_of(other)) as client:
            client.create_topic(topic)  # and not at `broker`
            fill(client, topic, 5)
        span = Span(topic, 0, 0, 5, leader=f"127.0.0.1:{other.port}")
        assert count(span, options_of(broker.address, topic)) == 5


def test_a_plan_names_the_leaders_that_the_broker_names(broker, client, topic, monkeypatch):
    client.create_topic(topic, partitions=2)
    fill(client, topic, 5, 0)
    fill(client, topic, 5, 1)
    real = hocket.client.faces.blocking.client.Client.describe

    def described(self, name, **more):
        found = real(self, name, **more)
        leaders = (DEAD, f"127.0.0.1:{broker.port}")
        return replace(
            found,
            partitions=tuple(
                replace(each, leader=leader)
                for each, leader in zip(found.partitions, leaders, strict=True)
            ),
        )

    monkeypatch.setattr(hocket.client.faces.blocking.client.Client, "describe", described)
    options = options_of(broker.address, topic)
    planned = HocketBatchReader(options).partitions()
    assert [each.span.leader for each in planned] == [DEAD, f"127.0.0.1:{broker.port}"]
    assert [count(each.span, options) for each in planned] == [5, 5]


def test_a_server_that_swallows_everything_does_not_use_up_the_time_of_the_others(
    broker, monkeypatch
):
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.3)
    with socket.socket() as hole:  # it is connected to by the system, and never says a word
        hole.bind(("127.0.0.1", 0))
        hole.listen()
        silent = f"127.0.0.1:{hole.getsockname()[1]}"
        client_of(ConnectionOptions(f"hocket://{silent},127.0.0.1:{broker.port}")).ping()
        with pytest.raises(NoConnection, match="in time"):
            client_of(ConnectionOptions(f"hocket://{silent}"))


# --- the clients of a process --------------------------------------------------------------------


def test_a_client_is_kept_and_replaced_when_it_is_closed(broker):
    options = ConnectionOptions(url_of(broker))
    first = client_of(options)
    assert client_of(ConnectionOptions(url_of(broker)), first=f"127.0.0.1:{broker.port}") is first
    assert client_of(options, first=DEAD) is not first
    first.close()
    second = client_of(options)
    assert second is not first
    second.ping()


def test_one_whose_session_was_ended_is_replaced_too(broker):
    options = ConnectionOptions(url_of(broker))
    first = client_of(options)
    engine = first._engine
    engine.do(lambda: engine.session.close(NotAllowed("the user was deleted")))
    client_of(options).ping()


def test_a_child_makes_its_own(broker):
    options = ConnectionOptions(url_of(broker))
    inherited = client_of(options)
    child = os.fork()
    if not child:
        code = 1
        try:
            own = client_of(options)
            own.ping(timeout=10)
            code = 0 if own is not inherited else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    inherited.ping()


def test_a_broker_that_is_being_restarted_is_waited_for(tmp_path):
    port = free_port()
    options = ConnectionOptions(f"hocket://127.0.0.1:{port}")
    with pytest.raises(NoConnection):
        client_of(options)
    from tests.support.threads import Running

    with Running(client_of, options, patience=20.0) as waiting:
        waiting.parked()
        with ServerProcess(tmp_path, port=port):
            waiting.result().ping()
            connections.close_all()


def test_the_token_file_is_read_when_it_is_needed_and_named_when_it_is_not_there(broker, tmp_path):
    path = tmp_path / "token"
    options = ConnectionOptions(url_of(broker), token_file=str(path))
    with pytest.raises(NotAllowed, match=r"option tokenFile.* cannot be read: No such file"):
        client_of(options)
    path.write_text("\n")
    with pytest.raises(NotAllowed, match="is empty"):
        client_of(options)
    path.write_text("a secret that nobody asks for\n")
    client_of(options).ping()


def test_the_driver_asks_again_and_then_says_whom_and_how_often(monkeypatch, topic):
    options = replace(options_of(DEAD, topic), retries=2, retry_interval=0.05)
    began = time.monotonic()
    with pytest.raises(NoConnection, match=r"hocket://127.0.0.1:1 gave no answer in 3 tries"):
        Lookout(options).partitions()
    assert time.monotonic() - began >= 0.1
