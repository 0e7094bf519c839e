"""Runs that once failed, with the options they had. A seed alone would not do: what a seed decides
changes whenever a new option is drawn. The name says what must be so."""

from __future__ import annotations

import json

from hocket.sim.swarm import Options


def _parsed(seed: int, text: str) -> tuple[int, Options]:
    fields = json.loads(text)
    tuples = {name: tuple(fields[name]) for name in ("faults", "replicas") if name in fields}
    return seed, Options(**{**fields, **tuples})


REGRESSIONS: dict[str, tuple[int, Options]] = {
    "a_root_that_waits_is_not_registered_by_the_change_of_another": _parsed(
        11,
        """
        {"temper": "calm", "faults": ["loss", "tails", "join", "join_storm", "crash", "flap",
        "amnesia", "stall", "slow_disk", "clocks"], "guarded": true, "fault_every_us": 600000,
        "safety_us": 20000000, "nodes": 2, "nodes_max": 6, "successors": 2, "spread": "hashed",
        "routes_max": 4, "parallel_probes": 3, "loss": 0.0356, "duplication": 0.0, "reordering":
        0.0, "tails": 0.0216, "tail_us_max": 100000, "skew_us_max": 11581712, "drift_ppm_max": 1045,
        "topics": 2, "partitions": 2, "producers": 1, "batches": 20, "record_bytes_max": 60,
        "consumers": 8, "slow_consumers": 0.0, "credit_bytes": 200, "children_max": 2,
        "window_bytes": 1080, "fetch_bytes": 20000, "lookups_every_us": 400000}
        """,
    ),
    "a_predecessor_given_up_before_is_replaced": _parsed(
        45,
        """
        {"temper": "calm", "faults": ["duplication", "slow", "join", "crash", "stall", "slow_disk"],
        "guarded": true, "fault_every_us": 1000000, "safety_us": 20000000, "nodes": 3, "nodes_max":
        5, "successors": 3, "spread": "hashed", "routes_max": 0, "parallel_probes": 3, "loss": 0.0,
        "duplication": 0.0895, "reordering": 0.0, "tails": 0.0, "tail_us_max": 100000,
        "skew_us_max": 0, "drift_ppm_max": 0, "topics": 1, "partitions": 1, "producers": 1,
        "batches": 20, "record_bytes_max": 60, "consumers": 7, "slow_consumers": 0.0,
        "credit_bytes": 20000, "children_max": 4, "window_bytes": 3600, "fetch_bytes": 20000,
        "lookups_every_us": 400000}
        """,
    ),
    "a_node_told_only_of_the_dead_asks_the_root": _parsed(
        82,
        """
        {"temper": "wild", "faults": ["loss", "reordering", "breaks", "slow", "join", "leave",
        "crash", "amnesia", "stall", "clocks", "cut", "cut_one_way", "cut_partly"], "guarded":
        false, "fault_every_us": 300000, "safety_us": 40000000, "nodes": 6, "nodes_max": 12,
        "successors": 3, "spread": "crowded", "routes_max": 64, "parallel_probes": 2, "loss":
        0.1796, "duplication": 0.0, "reordering": 0.2236, "tails": 0.0, "tail_us_max": 100000,
        "skew_us_max": 49277379, "drift_ppm_max": 1332, "topics": 1, "partitions": 2, "producers":
        2, "batches": 20, "record_bytes_max": 60, "consumers": 6, "slow_consumers": 0.0,
        "credit_bytes": 200, "children_max": 2, "window_bytes": 3600, "fetch_bytes": 1500,
        "lookups_every_us": 400000}
        """,
    ),
    "a_root_that_comes_back_asks_all_it_knows": _parsed(
        270,
        """
        {"temper": "calm", "faults": ["loss", "reordering", "join", "join_storm", "crash", "flap",
        "amnesia"], "guarded": true, "fault_every_us": 300000, "safety_us": 40000000, "nodes": 10,
        "nodes_max": 16, "successors": 2, "spread": "crowded", "routes_max": 4, "parallel_probes":
        1, "loss": 0.0071, "duplication": 0.0, "reordering": 0.2006, "tails": 0.0, "tail_us_max":
        100000, "skew_us_max": 0, "drift_ppm_max": 0, "topics": 2, "partitions": 1, "producers": 2,
        "batches": 40, "record_bytes_max": 8, "consumers": 8, "slow_consumers": 0.0, "credit_bytes":
        2000, "children_max": 3, "window_bytes": 152, "fetch_bytes": 1500, "lookups_every_us":
        200000}
        """,
    ),
    "who_was_given_up_wrongly_is_asked_again": _parsed(
        521,
        """
        {"temper": "wild", "faults": ["loss", "duplication", "reordering", "tails", "breaks",
        "join", "crash", "amnesia", "stall", "clocks", "cut_partly", "clog", "long_stall"],
        "guarded": true, "fault_every_us": 2000000, "safety_us": 20000000, "nodes": 12, "nodes_max":
        15, "successors": 3, "spread": "crowded", "routes_max": 4, "parallel_probes": 1, "loss":
        0.0912, "duplication": 0.185, "reordering": 0.0119, "tails": 0.0447, "tail_us_max": 20000,
        "skew_us_max": 12385555, "drift_ppm_max": 654, "topics": 2, "partitions": 2, "producers": 1,
        "batches": 20, "record_bytes_max": 60, "consumers": 5, "slow_consumers": 0.0,
        "credit_bytes": 20000, "children_max": 2, "window_bytes": 3600, "fetch_bytes": 1500,
        "lookups_every_us": 200000}
        """,
    ),
    "a_lookup_does_not_hide_the_living_for_ever": _parsed(
        589,
        """
        {"temper": "wild", "faults": ["loss", "reordering", "breaks", "join", "crash", "flap",
        "clocks", "cut", "cut_one_way", "long_stall"], "guarded": true, "fault_every_us": 2000000,
        "safety_us": 40000000, "nodes": 10, "nodes_max": 16, "successors": 3, "spread": "even",
        "routes_max": 64, "parallel_probes": 2, "loss": 0.1485, "duplication": 0.0, "reordering":
        0.2698, "tails": 0.0, "tail_us_max": 1500000, "skew_us_max": 49163425, "drift_ppm_max":
        1680, "topics": 1, "partitions": 1, "producers": 2, "batches": 40, "record_bytes_max": 8,
        "consumers": 12, "slow_consumers": 0.2, "credit_bytes": 2000, "children_max": 4,
        "window_bytes": 456, "fetch_bytes": 1500, "lookups_every_us": 400000}
        """,
    ),
    "one_that_missed_how_its_ring_became_small_asks_for_the_registry": _parsed(
        167,
        """
        {"temper": "calm", "faults": ["loss", "tails", "breaks", "join", "leave", "crash",
        "amnesia", "slow_disk", "clocks"], "guarded": true, "fault_every_us": 1000000, "safety_us":
        40000000, "nodes": 6, "nodes_max": 11, "successors": 3, "spread": "hashed", "routes_max": 0,
        "parallel_probes": 3, "loss": 0.0296, "duplication": 0.0, "reordering": 0.0, "tails": 0.035,
        "tail_us_max": 100000, "skew_us_max": 39908140, "drift_ppm_max": 85, "topics": 1,
        "partitions": 2, "producers": 1, "batches": 20, "record_bytes_max": 60, "consumers": 9,
        "slow_consumers": 0.5, "credit_bytes": 20000, "children_max": 2, "window_bytes": 360,
        "fetch_bytes": 1500, "lookups_every_us": 200000}
        """,
    ),
    "who_is_not_greeted_yet_hears_that_the_machine_goes": _parsed(
        129,
        """
        {"temper": "wild", "faults": ["loss", "duplication", "slow", "join", "leave", "crash",
        "flap", "amnesia", "stall", "slow_disk", "clocks", "clog", "long_stall"], "guarded": true,
        "fault_every_us": 300000, "safety_us": 40000000, "nodes": 12, "nodes_max": 16, "successors":
        4, "spread": "hashed", "routes_max": 0, "parallel_probes": 2, "loss": 0.089, "duplication":
        0.1499, "reordering": 0.0, "tails": 0.0, "tail_us_max": 100000, "skew_us_max": 4628525,
        "drift_ppm_max": 1665, "topics": 1, "partitions": 1, "producers": 1, "batches": 20,
        "record_bytes_max": 300, "consumers": 8, "slow_consumers": 0.5, "credit_bytes": 20000,
        "children_max": 2, "window_bytes": 3960, "fetch_bytes": 300, "lookups_every_us": 200000,
        "changes_every_us": 300000, "raft_entries": 8}
        """,
    ),
    "what_is_staged_for_a_committed_number_may_be_dropped": _parsed(
        591,
        """
        {"temper": "wild", "faults": ["duplication", "reordering", "tails", "breaks", "slow",
        "join", "join_storm", "crash", "slow_disk", "cut", "cut_partly", "clog", "leader_crash",
        "lost_for_good", "bit_flip", "lost_write", "sync_error"], "guarded": false,
        "fault_every_us": 1000000, "safety_us": 20000000, "nodes": 3, "nodes_max": 5, "successors":
        3, "spread": "crowded", "routes_max": 8, "parallel_probes": 2, "loss": 0.0, "duplication":
        0.0202, "reordering": 0.1035, "tails": 0.0487, "tail_us_max": 100000, "skew_us_max": 0,
        "drift_ppm_max": 0, "topics": 1, "partitions": 2, "producers": 2, "batches": 20,
        "record_bytes_max": 60, "consumers": 3, "slow_consumers": 0.2, "credit_bytes": 2000,
        "children_max": 4, "window_bytes": 1080, "fetch_bytes": 20000, "lookups_every_us": 2000000,
        "changes_every_us": 1000000, "raft_entries": 8, "subscribers": 1, "workers": 0, "replicas":
        [3], "holders": 3, "publishers": 1, "kept_bytes": null, "transactors": 2, "keyed": false,
        "beyond": false, "popular": 32}
        """,
    ),
}
