"""The plug-in behind `hocket serve --metrics-listen`, and behind the hook `on_metrics`."""

from __future__ import annotations

from dataclasses import dataclass
from time import time

from hocket.addresses import Address
from hocket.metrics.endpoint import Endpoint
from hocket.metrics.exposition import exposed
from hocket.metrics.feeding import Feeding, plain
from hocket.metrics.gathering import gather
from hocket.metrics.meters import Histogram, Publishing
from hocket.metrics.names import METRICS
from hocket.node.running.hooks import Sample
from hocket.plugins import Delivery, hook
from hocket.plugins.doors import Door, Surroundings
from hocket.wire.entry import unpack_header


class Metrics:
    api = 1
    policy = "closed"  # who asks for metrics, and cannot have them, is told at once

    @dataclass
    class Settings:
        host: str = ""  # empty: nobody may ask
        port: int = 0
        seconds: float = 0.0  # between two times that plug-ins are told; 0: never

    def __init__(self, settings: Settings) -> None:
        self._listen = Address(settings.host, settings.port) if settings.host else None
        self._seconds = settings.seconds
        self.histograms = {
            name: Histogram() for name, each in METRICS.items() if each.kind == "histogram"
        }
        self._delivery = self.histograms["hocket_delivery_seconds"]

    @hook
    def on_deliver(self, delivery: Delivery) -> None:
        for view in delivery.payload[:1]:
            self._delivery.observe(max(0.0, time() - unpack_header(view).max_timestamp / 1e6))

    @hook
    def open_door(self, around: Surroundings) -> Door | None:
        broker = around.broker
        broker.node.wiring.hooks.meter = Publishing(self.histograms["hocket_publish_seconds"])
        broker.disk.on_sync = self.histograms["hocket_fsync_seconds"].observe
        member = broker.member
        if member is not None:
            replication = self.histograms["hocket_replication_seconds"]
            member.on_stored(lambda us: replication.observe(us / 1e6))

        def expose() -> bytes:
            return exposed(gather(broker, around.on_loop), self.histograms)

        def tell() -> list[Sample]:
            return plain(gather(broker, around.on_loop), self.histograms)

        endpoint = None if self._listen is None else Endpoint(self._listen, around, expose)
        if not self._seconds:
            return endpoint
        return Feeding(broker.node.wiring.hooks, tell, self._seconds, endpoint)
