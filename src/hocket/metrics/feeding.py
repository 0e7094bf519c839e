"""Hands the numbers of a node to plug-ins that want them (`on_metrics`), on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from hocket.errors import HocketError
from hocket.metrics.gathering import Samples
from hocket.metrics.meters import Histogram
from hocket.metrics.names import METRICS
from hocket.node.running.hooks import Hooks, Sample
from hocket.plugins.doors import Door

log = logging.getLogger("hocket.metrics")
CLOSE_SECONDS = 1.0  # for a plug-in that is at work; whatever it waits for, the node goes down


class Feeding:
    """A `hocket.plugins.doors.Door` that nobody comes in by; or another one, and feeding beside."""

    def __init__(
        self,
        hooks: Hooks,
        gather: Callable[[], list[Sample]],
        seconds: float,
        door: Door | None = None,
    ) -> None:
        self.address = "" if door is None else door.address
        self._door = door
        self._hooks = hooks
        self._gather = gather
        self._seconds = seconds
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hocket-metrics-feed", daemon=True)
        self._thread.start()

    def renew_tls(self) -> None:
        if self._door is not None:
            self._door.renew_tls()

    def close(self) -> None:
        self._ending.set()
        if self._door is not None:
            self._door.close()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while not self._ending.wait(self._seconds):
            on_metrics = self._hooks.on_metrics
            if on_metrics is None:  # who wanted them has been switched off
                continue
            try:
                samples = self._gather()
            except HocketError as error:
                log.warning("there are no metrics for plug-ins this time: %s", error)
            else:
                on_metrics(samples)


def plain(samples: Samples, histograms: Mapping[str, Histogram]) -> list[Sample]:
    """What `exposition.exposed` writes, as values."""
    found: list[Sample] = []
    for name, metric in METRICS.items():
        if metric.kind == "histogram":
            found += _of_histogram(name, histograms[name])
        else:
            found += [
                Sample(name, dict(zip(metric.labels, labels, strict=True)), value, metric.kind)
                for labels, value in samples[name]
            ]
    return found


def _of_histogram(name: str, histogram: Histogram) -> list[Sample]:
    buckets = histogram.buckets()
    return [
        *(Sample(f"{name}_bucket", {"le": le}, count, "histogram") for le, count in buckets),
        Sample(f"{name}_sum", {}, histogram.total, "histogram"),
        Sample(f"{name}_count", {}, buckets[-1][1], "histogram"),
    ]
