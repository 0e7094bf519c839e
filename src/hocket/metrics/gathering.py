"""The numbers of a node, gathered on its own thread in steps that are each short.

A step looks at PARTITIONS_AT_ONCE partitions, so that a scrape of ten thousand keeps no client
waiting. All numbers of one step are of one moment; those of a scrape are of moments that are close.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

from hocket.metrics.names import METRICS
from hocket.model import is_own_topic
from hocket.node.broker import Broker
from hocket.node.running.partitions import Hosted
from hocket.version import __version__

PARTITIONS_AT_ONCE = 200

Labels = tuple[str, ...]
Samples = dict[str, list[tuple[Labels, float]]]


class Gathering:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.samples: Samples = {name: [] for name in METRICS}

    def steps(self) -> Iterator[None]:
        """To be driven on the node's thread, a step at a time."""
        self._of_node()
        yield
        hosts = self._broker.node.wiring.partitions
        partitions = [each for each in hosts if not each.waits_for]
        self._add("hocket_leaders", len(partitions))
        behind, waiting = 0, iter(partitions)
        while some := list(islice(waiting, PARTITIONS_AT_ONCE)):
            # Between two steps a topic may be deleted, or a partition may go to another node.
            here = [each for each in some if hosts.get(each.group) is each]
            behind += sum(self._of_partition(hosted) for hosted in here)
            yield
        self._add("hocket_under_replicated_partitions", behind)

    def _add(self, name: str, value: float, *labels: str) -> None:
        self.samples[name].append((labels, value))

    def _of_node(self) -> None:
        broker, node = self._broker, self._broker.node
        wiring, traffic = node.wiring, node.traffic
        self._add("hocket_build_info", 1, __version__, node.name, node.cluster)
        self._add("hocket_records_taken_total", traffic.records_taken)
        self._add("hocket_bytes_taken_total", traffic.bytes_taken)
        self._add("hocket_records_given_total", traffic.records_given)
        self._add("hocket_bytes_given_total", traffic.bytes_given)
        self._add("hocket_connections", len(wiring.sessions))
        self._add("hocket_connections_total", broker.connections_total)
        self._add("hocket_undurable_bytes", wiring.log.wal.staged_bytes)
        self._add("hocket_wal_bytes", wiring.log.wal.bytes_since_checkpoint)
        self._of_ring()
        states = wiring.hooks.states()
        for state in states:
            hook = (state.plugin, state.hook)
            self._add("hocket_plugin_calls_total", state.calls, *hook)
            self._add("hocket_plugin_seconds_total", state.total_us / 1e6, *hook)
            self._add("hocket_plugin_rejections_total", state.rejections, *hook)
            self._add("hocket_plugin_failures_total", state.failures, *hook)
            self._add("hocket_plugin_slow_total", state.slow, *hook)
            if state.process:
                self._add("hocket_plugin_dropped_total", state.dropped, *hook)
        for plugin, state in {each.plugin: each for each in states}.items():
            self._add("hocket_plugin_on", state.on, plugin)
            if state.process:
                self._add("hocket_plugin_running", state.process == "running", plugin)
                self._add("hocket_plugin_waiting", state.waiting, plugin)
                self._add("hocket_plugin_kills_total", state.kills, plugin)
                self._add("hocket_plugin_ends_total", state.ends, plugin)

    def _of_ring(self) -> None:
        member: Any = self._broker.member
        if member is None:
            return
        ring = member.cluster_node.ring.core
        _version, members = self._broker.node.registering.members()
        self._add("hocket_ring_member", ring.standing in ("small", "member"))
        self._add("hocket_ring_successors", len(ring.successors))
        self._add("hocket_cluster_nodes", max(1, len(members)))
        self._add("hocket_cluster_nodes_given_up", len(self._broker.node.registering.left))

    def _of_partition(self, hosted: Hosted) -> bool:
        """Whether a replica of it is behind."""
        node, core = self._broker.node, hosted.core
        if is_own_topic(core.topic):
            return self._is_behind(hosted)
        where = (core.topic, str(core.number))
        stats = node.store.stats(hosted.group)
        self._add("hocket_partition_start_offset", core.start, *where)
        self._add("hocket_partition_end_offset", core.high_watermark, *where)
        self._add("hocket_partition_bytes", stats.memory_bytes, *where, "memory")
        self._add("hocket_partition_bytes", stats.disk_bytes, *where, "disk")
        if stats.tier_bytes:
            self._add("hocket_partition_bytes", stats.tier_bytes, *where, "tier")
        for index, cursor in core.cursors.applied.items():
            lag = max(0, core.high_watermark - max(cursor.position, core.start))
            self._add("hocket_index_lag_records", lag, *where, index)
        return self._is_behind(hosted)

    def _is_behind(self, hosted: Hosted) -> bool:
        if hosted.copy is None:
            return False
        return any(state.behind for state in self._broker.node.copies.states(hosted))


def gather(broker: Broker, on_loop: Callable[[Callable[[], Any]], Any]) -> Samples:
    """Called on another thread: `on_loop` has the node's thread call something, and waits."""
    gathering = Gathering(broker)
    steps = gathering.steps()
    began = posted = perf_counter()
    waited: list[float] = []

    def step() -> bool:
        waited.append(perf_counter() - posted)
        return next(steps, _END) is not _END

    while on_loop(step):
        pass
    gathering.samples["hocket_loop_wait_seconds"].append(((), waited[0]))
    gathering.samples["hocket_scrape_seconds"].append(((), perf_counter() - began))
    return gathering.samples


_END = object()
