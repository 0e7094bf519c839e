"""A served broker's metrics, as Prometheus would read them."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

import hocket
from hocket.addresses import Address
from hocket.errors import Timeout
from hocket.metrics import endpoint as door, gathering
from hocket.metrics.endpoint import ASKING_MAX
from hocket.metrics.meters import BOUNDS, Histogram, Publishing
from hocket.metrics.names import METRICS
from hocket.plugins import hook
from hocket.plugins.doors import Surroundings
from hocket.plugins.testing import broker_with
from tests.support import certificates
from tests.support.cli import Hocket, Serving, serving
from tests.support.threads import until

if TYPE_CHECKING:
    from hocket.node.broker import Broker

METRICS_AT = "--metrics-listen"


def get(url: str, token: str = "", tls: ssl.SSLContext | None = None) -> str:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
        return answer.read().decode()


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def endpoint(broker: Serving) -> str:
    found = re.search(r"https?://\S+/metrics", broker.ready)
    assert found, broker.ready
    return found[0]


def test_a_node_tells_what_it_did(tmp_path: Path):
    with serving(tmp_path / "data", METRICS_AT, "127.0.0.1:0") as broker:
        url = endpoint(broker)
        with hocket.connect(broker.url) as client:
            client.create_topic("t", partitions=2)
            with client.producer("t") as producer:
                for number in range(100):
                    producer.send(b"v%d" % number, partition=number % 2)
            with client.subscribe("t", index="slow", start="earliest") as subscription:
                for _ in range(30):
                    subscription.receive(10).ack()
                subscription.commit()
            found = samples(get(url))

            def value(name: str, **labels: str) -> float:
                return found[name, frozenset(labels.items())]

            assert value("hocket_records_taken_total") == 100
            assert value("hocket_records_given_total") >= 30
            assert value("hocket_connections") == 1
            assert value("hocket_publish_seconds_count") >= 2
            assert 0 < value("hocket_publish_seconds_sum") < 60
            assert value("hocket_fsync_seconds_count") >= 2
            assert value("hocket_delivery_seconds_count") >= 1
            assert value("hocket_partition_end_offset", topic="t", partition="0") == 50
            lags = [value("hocket_index_lag_records", topic="t", partition=each, index="slow")
                    for each in "01"]  # fmt: skip
            assert sum(lags) == 70
            assert value("hocket_partition_bytes", topic="t", partition="0", tier="memory") > 0
            assert value("hocket_leaders") >= 2
            assert value("hocket_under_replicated_partitions") == 0
            assert value("hocket_ring_member") == 1
            assert value("hocket_cluster_nodes") == 1
            assert value("hocket_plugin_calls_total", plugin="metrics", hook="on_deliver") >= 1
        assert get(url.replace("/metrics", "/healthz")) == "ok\n"
        assert get(url.replace("/metrics", "/readyz")) == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(url.replace("/metrics", "/secrets"))
        assert {name for name, _ in found if not name.startswith("hocket_")} == set()
        names = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name, _ in found}
        assert names <= METRICS.keys()
        assert broker.stop() == 0


def test_with_users_a_scrape_needs_a_token_that_may_read_everything(tmp_path: Path):
    with serving(tmp_path / "data", METRICS_AT, "127.0.0.1:0") as broker:
        url = endpoint(broker)
        with hocket.connect(broker.url) as client:
            admin = client.create_user("root", roles=["admin"])
        with hocket.connect(broker.url, token=admin) as client:
            client.create_role("reader")
            client.grant("reader", "subscribe", "*")
            reader = client.create_user("prometheus", roles=["reader"])
            nobody = client.create_user("nobody")
        assert "hocket_build_info" in get(url, reader)
        for token in ("", nobody, "wrong"):
            with pytest.raises(urllib.error.HTTPError, match="401"):
                get(url, token)
        assert get(url.replace("/metrics", "/healthz")) == "ok\n"


def test_with_tls_it_speaks_tls_and_who_says_nothing_holds_nobody_up(tmp_path: Path):
    made = certificates.made(tmp_path)
    token_file = tmp_path / "admin.token"
    with serving(
        tmp_path / "data", METRICS_AT, "127.0.0.1:0", "--tls-cert", str(made.server.certificate),
        "--tls-key", str(made.server.key), "--admin-token-file", str(token_file),
    ) as broker:  # fmt: skip
        url = endpoint(broker)
        assert url.startswith("https://")
        port = int(url.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)):  # and no handshake
            tls = made.client()
            assert get(url.replace("/metrics", "/readyz"), tls=tls) == "ok\n"
            text = get(url, token_file.read_text().strip(), tls)
        assert samples(text)["hocket_leaders", frozenset()] == 0
        assert broker.stop() == 0


def test_who_connects_and_asks_nothing_takes_neither_files_nor_threads_nor_the_port(tmp_path: Path):
    with serving(tmp_path / "data", METRICS_AT, "127.0.0.1:0") as broker, ExitStack() as stack:
        url = endpoint(broker)
        where = ("127.0.0.1", int(url.split(":")[2].split("/")[0]))
        task = Path(f"/proc/{broker.process.pid}")
        idle = len(list((task / "task").iterdir()))
        silent = []
        for _ in range(3 * ASKING_MAX):
            silent.append(stack.enter_context(socket.create_connection(where)))
            silent[-1].sendall(b"GET /metrics HTTP/1.0\r\nX-Slow: ")
        assert get(url.replace("/metrics", "/healthz")) == "ok\n"
        assert "hocket_build_info" in get(url)
        silent[0].settimeout(10)
        with suppress(ConnectionResetError):
            assert silent[0].recv(1) == b""  # the oldest were hung up on
        if task.exists():
            assert len(list((task / "task").iterdir())) <= idle + ASKING_MAX + 2
            assert len(list((task / "fd").iterdir())) < 2 * ASKING_MAX
        began = time.monotonic()
        assert broker.stop() == 0
        assert time.monotonic() - began < 10  # whoever has not asked is not waited for


def test_a_connection_ends_in_time_whatever_it_sends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(door, "CONNECTION_SECONDS", 0.3)
    broker = cast("Broker", None)  # nobody asks it
    made = door.Endpoint(Address("127.0.0.1", 0), Surroundings(broker), lambda: b"")
    try:
        port = int(made.address.split(":")[2].split("/")[0])
        with socket.create_connection(("127.0.0.1", port)) as drip:
            drip.settimeout(0.05)
            until, is_open = time.monotonic() + 5, True
            while is_open and time.monotonic() < until:  # a byte at a time
                try:
                    drip.send(b"x")
                    is_open = drip.recv(1) != b""
                except TimeoutError:
                    continue
                except OSError:
                    is_open = False
        assert not is_open
    finally:
        made.close()
    assert not [each for each in threading.enumerate() if "process_request_thread" in each.name]


def test_beyond_loopback_it_is_refused_without_tls_and_users(tmp_path: Path):
    outcome = Hocket("")("serve", "--data", str(tmp_path / "data"), "--listen", "127.0.0.1:0",
                         METRICS_AT, "0.0.0.0:0")  # fmt: skip
    assert outcome.code == 1
    assert "refused to listen on 0.0.0.0:0" in outcome.stderr
    assert not (tmp_path / "data").exists()


def test_a_topic_may_be_deleted_in_the_middle_of_a_scrape(monkeypatch: pytest.MonkeyPatch):
    class Nothing:
        api = 1

        @hook
        def on_close(self) -> None: ...

    monkeypatch.setattr(gathering, "PARTITIONS_AT_ONCE", 1)
    with broker_with(Nothing) as broker:
        for name in ("a", "b", "c"):
            broker.client.create_topic(name)
        found = gathering.Gathering(broker._broker)
        steps = found.steps()
        for _ in range(2):
            broker.on_its_thread(lambda: next(steps))
        for name in ("a", "b", "c"):
            broker.client.delete_topic(name)
        broker.on_its_thread(lambda: list(steps))
    assert len(found.samples["hocket_partition_end_offset"]) <= 1
    assert found.samples["hocket_under_replicated_partitions"] == [((), 0)]


def test_who_asks_all_the_time_has_the_numbers_gathered_a_tenth_of_it():
    made, threads = [], []

    def make() -> bytes:
        made.append(threading.active_count())
        time.sleep(0.02)
        return b"%d" % len(made)

    shared, end = door.Shared(make), time.monotonic() + 0.5
    answers: set[bytes] = set()

    def ask() -> None:
        while time.monotonic() < end:
            answers.add(shared())

    for _ in range(8):
        threads.append(threading.Thread(target=ask))
        threads[-1].start()
    for each in threads:
        each.join()
    assert 1 <= len(made) <= 4
    assert answers == {b"%d" % each for each in range(1, len(made) + 1)}
    until(lambda: shared() not in answers)  # the last one is good no more
    assert shared() == b"%d" % len(made)
    assert len(made) == len(answers) + 1


def test_numbers_that_cannot_be_gathered_are_told_and_hold_nobody_up(
    monkeypatch: pytest.MonkeyPatch,
):
    def fail() -> bytes:
        raise Timeout("the node has not answered")

    shared = door.Shared(fail)
    for _ in range(2):
        with pytest.raises(Timeout, match="has not answered"):
            shared()
    monkeypatch.setattr(door, "ANSWER_SECONDS", 0.01)
    shared._lock.acquire()
    with pytest.raises(Timeout, match="that takes long"):
        shared()


def test_a_histogram_counts_what_it_saw():
    histogram = Histogram()
    for seconds in (0.00005, 0.0001, 0.003, 100.0):
        histogram.observe(seconds)
    buckets = dict(histogram.buckets())
    assert buckets["0.0001"] == 2
    assert buckets["0.0025"] == 2
    assert buckets["0.005"] == 3
    assert buckets[repr(BOUNDS[-1])] == 3
    assert buckets["+Inf"] == 4
    assert histogram.total == pytest.approx(100.00315)


def test_what_is_never_acknowledged_is_forgotten_in_time(monkeypatch: pytest.MonkeyPatch):
    from hocket.core.origin import Origin

    monkeypatch.setattr("hocket.metrics.meters.WAITING_MAX", 3)
    histogram = Histogram()
    publishing = Publishing(histogram)
    origin = Origin(1, 2, 0)
    for sequence in range(5):
        publishing.pushed(origin, 0, sequence)
    publishing.acked(origin, 0, 4, 5)  # all five, of which the oldest two are forgotten
    assert histogram.buckets()[-1] == ("+Inf", 3.0)
