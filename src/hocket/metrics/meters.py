"""What is measured while it happens: four histograms."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from time import perf_counter

from hocket.core.origin import Origin

BOUNDS = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 60.0,
)  # fmt: skip
WAITING_MAX = 20_000  # batches whose acknowledgement is awaited; of more, the oldest are forgotten


class Histogram:
    """Written to by one thread at a time; a reader may see a sum that is one sample behind."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative, as Prometheus wants them."""
        found, below = [], 0
        for bound, count in zip((*BOUNDS, float("inf")), list(self.counts), strict=True):
            below += count
            found.append(("+Inf" if bound == float("inf") else repr(bound), float(below)))
        return found


class Publishing:
    """See `node.running.hooks.Meter`. A batch that was refused is forgotten in time."""

    def __init__(self, histogram: Histogram) -> None:
        self._histogram = histogram
        self._began: OrderedDict[tuple[int, int, int, int, int], float] = OrderedDict()

    def pushed(self, origin: Origin, partition: int, sequence: int) -> None:
        key = (origin.connection, origin.handle, origin.request, partition, sequence)
        self._began[key] = perf_counter()
        if len(self._began) > WAITING_MAX:
            self._began.popitem(last=False)

    def acked(self, origin: Origin, partition: int, sequence: int, batches: int) -> None:
        """`sequence` is that of the last batch."""
        now = perf_counter()
        connection, handle, request = origin.connection, origin.handle, origin.request
        for each in range(sequence - batches + 1, sequence + 1):
            began = self._began.pop((connection, handle, request, partition, each), None)
            if began is not None:
                self._histogram.observe(now - began)
