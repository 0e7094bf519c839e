"""Shared indexes of topics with three replicas, on real processes, while their nodes die.

What consumers saw is judged by `tests.support.cluster.history`: nothing lost, nobody has what
another one has, keys in order, one dead letter for each message that was rejected. By default some
faults; with HOCKET_STRESS=long (make test-cluster) sixty, and six of a leader that stands still
for longer than a lease. Each step by itself, and who dies then:
`test_sharing_steps.py`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

import hocket
from tests.cluster.test_replication import NAMES, Kind, Run, nodes_in, some, tell
from tests.support.cluster.clients import LEASE_SECONDS, LOAD, TOPICS, Clients, buried, stored
from tests.support.cluster.faults import Fault, Faults
from tests.support.cluster.history import (
    History,
    check,
    one_consumer_at_a_time,
    the_rejected_are_buried_once,
)
from tests.support.threads import LONG

KINDS = ("keyed", "publish", "rejecting_shared", "key_shared")
IDLE = ("transactions_are_whole", "a_reader_skips_and_repeats_nothing")
STOPPED_SECONDS = 10.0
STOPS = 6
# A client hands out no message with less than a tenth of its lease left; and where its leader
# stands still, the next one begins some two seconds later, and counts a whole lease from then.
LEFT_SECONDS = LEASE_SECONDS / 4


class Deaths(Faults):
    """Who may die while messages are leased, acked, given back, rejected and buried."""

    def leader_stopped_for_long(self) -> Fault:
        """SIGSTOP, for longer than a lease: its consumers see no broken link."""
        node = self.cluster[self._leader()]
        node.stop()
        time.sleep(STOPPED_SECONDS)
        node.go_on()
        yield

    def leader_of_dead_letters_killed(self) -> Fault:
        found = self.client.describe(LOAD + ".dlq", timeout=30).partitions
        known = [self._ids[each.leader] for each in found if each.leader in self._ids]
        yield from self._kill(self.chance.choice(known))


def endure(directory: Path, kinds: Sequence[Kind]) -> None:
    with nodes_in(directory / "nodes", 3, None) as cluster:
        names = NAMES[:3]
        with hocket.connect(cluster[names[0]].url, timeout=30) as client:
            for topic in (LOAD, LOAD + ".dlq"):
                client.create_topic(topic, partitions=TOPICS[LOAD], replication=3)
            chance = random.Random("faults")
            faults = Deaths(cluster, names, LOAD, client, chance, None, {})
            faults.wait_led()
            with Clients([cluster[name].url for name in names], directory, KINDS) as clients:
                run = Run(faults, clients)
                run.suffer(kinds)
                events = clients.finish()
            faults.wait_led()
            events += stored(client, [LOAD])
            events += buried(client, LOAD)
        run.report()
    for sentence, looked_at in check(events, IDLE).items():
        tell(f"{sentence}: {looked_at}")
    history = History(events)
    for name, found in {
        "one_consumer_at_a_time": one_consumer_at_a_time(history, LEFT_SECONDS),
        "the_rejected_are_buried_once": the_rejected_are_buried_once(history),
    }.items():
        tell(f"{name}: {found.looked_at}")
        assert found.looked_at
        assert not found.breaches, found.breaches[:5]


SLICE = (Deaths.leader_killed,)
ALL = (
    *SLICE, Deaths.leader_stopped_for_long, Deaths.leader_of_dead_letters_killed,
    Deaths.follower_killed,
)  # fmt: skip


@pytest.mark.timeout(300)
def test_nobody_has_what_another_one_has_in_a_few_faults(tmp_path: Path):
    endure(tmp_path, SLICE)


@pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster")
@pytest.mark.timeout(3600)
def test_nobody_has_what_another_one_has_whoever_dies(tmp_path: Path):
    endure(tmp_path, some(60, ALL))


@pytest.mark.skipif(not LONG, reason="minutes long: make test-cluster")
@pytest.mark.timeout(600)
def test_nobody_has_what_another_one_has_while_a_leader_stands_still(tmp_path: Path):
    endure(tmp_path, [Deaths.leader_stopped_for_long] * STOPS)
