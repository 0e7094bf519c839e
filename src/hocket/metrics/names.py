"""The names of all metrics, in one table: what is served, documented, drawn and alarmed about.

A name stays what it is. `tests/metrics` compares this table with the documentation, the dashboard
and the rules in `deploy`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["counter", "gauge", "histogram"]


class Metric(NamedTuple):
    kind: Kind
    labels: tuple[str, ...]
    text: str


_PARTITION = ("topic", "partition")
_HOOK = ("plugin", "hook")

METRICS: dict[str, Metric] = {
    "hocket_build_info": Metric("gauge", ("version", "node", "cluster"), "1; which node this is."),
    "hocket_records_taken_total": Metric("counter", (), "Records stored, by clients."),
    "hocket_bytes_taken_total": Metric("counter", (), "Bytes of batches stored."),
    "hocket_records_given_total": Metric("counter", (), "Records sent to consumers."),
    "hocket_bytes_given_total": Metric("counter", (), "Bytes of batches sent to consumers."),
    "hocket_connections": Metric("gauge", (), "Connections of clients that are open."),
    "hocket_connections_total": Metric("counter", (), "Connections since the node was started."),
    "hocket_publish_seconds": Metric(
        "histogram", (), "From the arrival of a batch to its acknowledgement."
    ),
    "hocket_fsync_seconds": Metric("histogram", (), "A synced write of the write-ahead log."),
    "hocket_replication_seconds": Metric(
        "histogram", (), "From sending entries to another replica until it has them durably."
    ),
    "hocket_delivery_seconds": Metric(
        "histogram", (), "Age, by its timestamp, of the first batch of a frame sent to a consumer."
    ),
    "hocket_partition_start_offset": Metric(
        "gauge", _PARTITION, "The oldest offset of a partition that this node leads."
    ),
    "hocket_partition_end_offset": Metric(
        "gauge", _PARTITION, "The end of what is committed; its rate is that of publishing."
    ),
    "hocket_partition_bytes": Metric(
        "gauge",
        (*_PARTITION, "tier"),
        "Bytes of a partition in memory, on disk, and in a storage tier.",
    ),
    "hocket_index_lag_records": Metric(
        "gauge", (*_PARTITION, "index"), "Records that an index has not come to yet."
    ),
    "hocket_leaders": Metric("gauge", (), "Partitions that this node leads."),
    "hocket_under_replicated_partitions": Metric(
        "gauge", (), "Partitions led here of which a replica is behind or silent."
    ),
    "hocket_ring_member": Metric("gauge", (), "1 if this node is a member of the ring."),
    "hocket_ring_successors": Metric("gauge", (), "Successors of this node on the ring."),
    "hocket_cluster_nodes": Metric("gauge", (), "Nodes that belong to the cluster."),
    "hocket_cluster_nodes_given_up": Metric("gauge", (), "Nodes that the ring has given up."),
    "hocket_undurable_bytes": Metric("gauge", (), "Bytes that wait for the write-ahead log."),
    "hocket_wal_bytes": Metric("gauge", (), "Write-ahead log since the last checkpoint, in bytes."),
    "hocket_loop_wait_seconds": Metric(
        "gauge", (), "How long this scrape waited for the node's thread at its first step."
    ),
    "hocket_plugin_on": Metric("gauge", ("plugin",), "0 if a plug-in has been switched off."),
    "hocket_plugin_calls_total": Metric("counter", _HOOK, "Calls of a hook."),
    "hocket_plugin_seconds_total": Metric("counter", _HOOK, "Time spent in a hook."),
    "hocket_plugin_rejections_total": Metric("counter", _HOOK, "Batches that a hook refused."),
    "hocket_plugin_failures_total": Metric("counter", _HOOK, "Calls of a hook that failed."),
    "hocket_plugin_slow_total": Metric("counter", _HOOK, "Calls that took longer than they may."),
    "hocket_plugin_dropped_total": Metric(
        "counter", _HOOK, "What a plug-in apart was not told: too much waited, or no process was."
    ),
    "hocket_plugin_running": Metric(
        "gauge", ("plugin",), "1 while the process of a plug-in apart runs."
    ),
    "hocket_plugin_waiting": Metric(
        "gauge", ("plugin",), "Questions that a plug-in apart has not answered yet."
    ),
    "hocket_plugin_kills_total": Metric(
        "counter", ("plugin",), "How often the process of a plug-in apart was killed."
    ),
    "hocket_plugin_ends_total": Metric(
        "counter", ("plugin",), "How often the process of a plug-in apart ended, kills included."
    ),
    "hocket_scrape_seconds": Metric("gauge", (), "How long it took to gather the numbers."),
}
