"""What a seed decides."""

from __future__ import annotations

import json
from collections import Counter

from hocket.sim.swarm import ALWAYS, CALM, GUARDED, OF_REPLICAS, WILD, options_of

MANY = [options_of(seed) for seed in range(400)]


def test_a_seed_decides_the_same_every_time():
    assert options_of(11) == options_of(11) == MANY[11]
    assert options_of(11) != options_of(12)


def test_all_of_it_can_be_printed():
    for options in MANY[:20]:
        assert json.loads(json.dumps(options.to_json())).keys() == options.to_json().keys()


def test_every_temper_and_every_fault_come_up_and_none_comes_always():
    tempers = Counter(options.temper for options in MANY)
    assert tempers.keys() == {"still", "single", "split", "stopped", "calm", "wild"}
    assert tempers["calm"] > 100 < tempers["wild"]
    for kind in WILD:
        runs = [options for options in MANY if options.temper == "wild"]
        share = sum(options.has(kind) for options in runs) / len(runs)
        assert share == 1 if kind in ALWAYS else 0.3 < share < 0.7, kind


def test_calm_runs_have_no_fault_that_deceives_and_still_ones_none_at_all():
    for options in MANY:
        if options.temper == "calm":
            assert set(options.faults) <= {*CALM, *(OF_REPLICAS if options.replicas else ())}
            assert options.guarded or options.replicas
            assert options.loss < 0.05
        elif options.temper == "still":
            assert options.faults == ()


def test_in_some_runs_topics_have_several_replicas():
    runs = [options for options in MANY if options.replicas]
    assert len(MANY) / 3 < len(runs) < len(MANY) / 2
    assert {options.replicas for options in runs} >= {(3,), (5,), (3, 1), (3, 2)}
    for options in runs:
        assert max(options.replicas) <= options.holders <= options.nodes
        assert options.topics == len(options.replicas)
        assert [options.replicas_of(topic) for topic in range(3)][: options.topics] == [
            *options.replicas
        ]
        if options.guarded:
            assert set(options.faults) & set(OF_REPLICAS) <= set(GUARDED)
        if options.beyond:  # the dead stay a minority
            assert 2 * options.holders < options.nodes
        raft = options.raft()
        assert raft.heartbeat_us < raft.stall_us_max < raft.election_us
    for kind in OF_REPLICAS:
        share = sum(options.has(kind) for options in runs) / len(runs)
        assert 0.05 < share < 0.6, kind
    assert sum(options.beyond for options in runs) > 10
    assert sum(options.kept_bytes is not None for options in runs) > 10


def test_the_weather_is_bad_only_where_the_fault_is_on():
    for options in MANY:
        weather = options.weather()
        for kind in ("loss", "duplication", "reordering", "tails"):
            assert (getattr(weather, kind) > 0) == options.has(kind)
        if not options.has("clocks"):
            assert options.skew_us_max == options.drift_ppm_max == 0


def test_sizes_are_small_and_cross_the_borders():
    assert {options.nodes for options in MANY} >= {1, 2, 8, 12}
    assert {options.nodes - options.successors for options in MANY} >= {0, 1, 2, 3}
    for options in MANY:
        assert 1 <= options.nodes <= options.nodes_max <= 16
        ring = options.ring()
        assert ring.successors == options.successors in (2, 3, 4)
        # A conviction takes longer than the questions that precede it.
        assert ring.query_us_max <= ring.suspicion_us_min < ring.stabilize_us
