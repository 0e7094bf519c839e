"""Plug-ins that are handed a node's metrics, in a served broker."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import hocket
from hocket.metrics.exposition import exposed
from hocket.metrics.feeding import Feeding, plain
from hocket.metrics.meters import Histogram
from hocket.metrics.names import METRICS
from hocket.node.running.hooks import Hooks, Sample
from tests.metrics.test_metrics import samples
from tests.support.cli import serving
from tests.support.plugins import package
from tests.support.threads import PATIENCE

STATSD = """
import socket
from dataclasses import dataclass
from hocket.plugins import hook

class Plugin:
    api = 1
    policy = "open"

    @dataclass
    class Settings:
        port: int

    def __init__(self, settings):
        self._to = ("127.0.0.1", settings.port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    @hook
    def on_metrics(self, samples):
        for each in samples:
            if each.kind == "gauge" and not each.labels:
                self._socket.sendto(f"{each.name}:{each.value}|g".encode(), self._to)
"""
FAILING = """
from hocket.plugins import hook

class Plugin:
    api = 1
    policy = "open"

    @hook
    def on_metrics(self, samples):
        raise ValueError("the server is away")
"""


def test_plain_samples_are_those_of_a_scrape():
    gathered = {name: [] for name in METRICS}
    gathered["hocket_leaders"] = [((), 3.0)]
    gathered["hocket_index_lag_records"] = [(("t", "0", "i"), 5.0)]
    histograms = {name: Histogram() for name, each in METRICS.items() if each.kind == "histogram"}
    histograms["hocket_fsync_seconds"].observe(0.002)

    told = plain(gathered, histograms)

    shown = samples(exposed(gathered, histograms).decode())
    assert {(each.name, frozenset(each.labels.items())): each.value for each in told} == shown
    assert Sample("hocket_leaders", {}, 3.0, "gauge") in told


def test_a_plug_in_is_handed_the_metrics_and_one_that_fails_is_switched_off(tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()
    package(site, "statsd", STATSD)
    package(site, "failing", FAILING)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        server.settimeout(PATIENCE)
        config = tmp_path / "hocket.toml"
        config.write_text(
            'plugin = ["failing", "statsd"]\nmetrics-interval = "50ms"\n'
            "[plugins.failing]\nfailures-max = 2\n"
            f"[plugins.statsd]\nport = {server.getsockname()[1]}\n"
        )
        log = tmp_path / "log"
        with (
            log.open("wb") as to,
            serving(
                tmp_path / "data", "--config", str(config), log=to, PYTHONPATH=str(site)
            ) as broker,
            hocket.connect(broker.url) as client,
        ):
            client.create_topic("t", partitions=3)
            while server.recv(1_000) != b"hocket_leaders:3|g":
                pass
            states = {}
            while not states or states["failing"].on:
                server.recv(1_000)  # one more round, or a part of one
                states = {
                    each.plugin: each for each in client.plugins().hooks if "metrics" in each.hook
                }
            assert states["failing"].failures == 2
            assert states["statsd"].on
            assert states["statsd"].failures == 0
            assert broker.stop() == 0
    assert "plug-in 'failing' is switched off" in log.read_text()


def test_a_plug_in_that_hangs_does_not_keep_the_node_from_going_down():
    called, never = threading.Event(), threading.Event()
    hooks = Hooks()

    def hang(_samples: list[Sample]) -> None:
        called.set()
        never.wait()

    hooks.on_metrics = hang
    feeding = Feeding(hooks, list, 0.001)
    assert called.wait(PATIENCE)
    feeding.close()
    never.set()
