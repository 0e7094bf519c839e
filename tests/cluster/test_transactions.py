"""Transactions on three replicas, on real processes: at each step somebody is killed with -9.

A table of steps and of those who die: the leader of a participant, the leader of the decider, the
root, the client. Whoever dies stays dead until the transaction is over. What was sent is whole or
absent in the end, and nothing is doubled; what a dead client had asked for is done by another
one, under the same id and number, and then exactly one of the two attempts is there.

By default some cells; all of them five times with HOCKET_STRESS=long (make test-cluster).
"""

from __future__ import annotations

import random
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import hocket
from hocket.client_core.session.session import Route
from hocket.core.transactions.messages import decider_of
from hocket.model import DECIDERS, DECIDERS_COUNT
from tests.support.cluster.clients import stored
from tests.support.cluster.faults import Faults
from tests.support.cluster.history import Stored
from tests.support.cluster.processes import Cluster, cluster_in, wait_for
from tests.support.cluster.transactor import STEPS, Transactor, prepared_in
from tests.support.threads import LONG

NAMES = ["one", "two", "three"]
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 300  # in each partition
VICTIMS = ("participant", "decider", "root", "client")
ROUNDS = 5
ALL = [(step, victim) for step in STEPS for victim in VICTIMS]
SLICE = [("asked", "decider"), ("asked", "participant"), ("decided", "participant")]
SECONDS = 60.0
ASKED_SECONDS_MAX = 0.1  # between the request to commit and the kill: about what it takes


class Table:
    def __init__(self, cluster: Cluster, client: hocket.Client, faults: Faults) -> None:
        self.chance = random.Random("transactions")
        self._cluster = cluster
        self._client = client
        self._faults = faults
        self._number = 0
        # Of each cell the attempts that were made: exactly one of them is there in the end.
        self.made: dict[str, list[str]] = {}
        self.kills = 0
        self.in_time = 0  # kills between the request to commit and its answer
        self.slowest = 0.0

    # --- who is who ------------------------------------------------------------------------------

    def _names(self) -> dict[str, str]:
        return {each.node: each.name for each in self._client.nodes()}

    def _decider(self, name: str) -> str:
        """Who leads the decider of this id: whoever has answered last."""
        router = self._client._engine.session.router
        assert router is not None
        route = Route(DECIDERS, decider_of(name, DECIDERS_COUNT))

        def found() -> str:
            self._client.transaction(name, number=0).commit(SECONDS)
            return router.leader_of(route) or router.first.node_id

        return self._names()[str(wait_for(found, SECONDS))]

    def _root(self) -> str:
        """The node that has said last that it leads group 0."""
        said = {}
        for name in NAMES:
            for line in self._cluster[name].said().splitlines():
                if "this node is the root" in line and ", in term " in line:
                    said[int(line.rpartition("term ")[2].split()[0].rstrip(",.;"))] = name
        return said[max(said)] if said else NAMES[0]

    def _victim(self, kind: str, name: str) -> str:
        if kind == "participant":
            partition = self.chance.randrange(PARTITIONS)
            found = wait_for(lambda: self._faults.leaders()[partition], SECONDS)
            assert isinstance(found, str)
            return found
        return self._decider(name) if kind == "decider" else self._root()

    # --- one cell --------------------------------------------------------------------------------

    def suffer(self, step: str, kind: str) -> None:
        self._number += 1
        number = self._number
        name = f"job-{self.chance.randrange(1000)}-{number}"
        self._faults.wait_led()
        self._faults.wait_even()
        victim = "" if kind == "client" else self._victim(kind, name)
        cell = f"{number}: {step} x {kind} {victim}"
        attempt = f"{number}.1"
        self.made[cell] = [attempt]
        entry = next(each for each in NAMES if each != victim)
        transactor = Transactor(
            self._cluster[entry].url, TOPIC, attempt, (name, 1), (PARTITIONS, RECORDS)
        )
        began = time.monotonic()
        try:
            prepared = self._go_to(transactor, step)
            is_in_time = step in ("asked", "decided") and not transactor.has_said()
            self.in_time += is_in_time
            if kind == "client":
                transactor.kill()
                self.kills += 1
                self._take_over(cell, name, prepared)
            else:
                began = time.monotonic()
                self._cluster[victim].kill()
                self.kills += 1
                self._finish(transactor, step)
        finally:
            transactor.kill()
        seconds = time.monotonic() - began
        self.slowest = max(self.slowest, seconds)
        when = ", killed before it was answered" if is_in_time else ""
        sys.stdout.write(f"{cell}{when}: over after {seconds:.1f} s\n")
        sys.stdout.flush()
        if victim:
            self._cluster.restart(victim)

    def _go_to(self, transactor: Transactor, step: str) -> str:
        """Up to the step at which somebody dies; what is prepared by then."""
        assert transactor.take("open") == "sent"
        if step == "open":
            return ""
        assert transactor.take("staged") == "staged"
        if step == "staged":
            return ""
        if step == "prepared":
            return transactor.take("prepared")
        before = self._ends()
        transactor.tell("done")
        if step == "asked":
            time.sleep(self.chance.uniform(0, ASKED_SECONDS_MAX))
        elif step == "decided":  # a partition has it, which is so after the decision only
            while self._ends() == before:
                pass
        else:
            assert transactor.hear() == "committed"
        return ""

    def _ends(self) -> list[int]:
        return [each.end for each in self._client.describe(TOPIC).partitions]

    def _finish(self, transactor: Transactor, step: str) -> None:
        """The client goes on by itself; so do those who are left."""
        if step == "open":
            assert transactor.take("staged") == "staged"
        if step in ("open", "staged", "prepared"):
            transactor.tell("done")
        if step != "done":
            assert transactor.hear() == "committed"

    def _take_over(self, cell: str, name: str, prepared: str) -> None:
        """Another client does what the dead one was about to, and does not know how far it came."""
        if prepared:
            self._client.commit_prepared(name, 1, prepared_in(prepared), SECONDS)
            return
        attempt = self.made[cell][0].replace(".1", ".2")
        self.made[cell].append(attempt)
        entry = self.chance.choice(NAMES)
        other = Transactor(
            self._cluster[entry].url, TOPIC, attempt, (name, 1), (PARTITIONS, RECORDS)
        )
        try:
            for step in ("open", "staged", "done"):
                other.take(step)
        finally:
            other.kill()

    # --- the end ---------------------------------------------------------------------------------

    def check(self) -> None:
        found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for event in stored(self._client, [TOPIC]):
            assert isinstance(event, Stored)
            attempt, partition, number, _ = event.value.split("/")
            assert int(partition) == event.partition
            found[attempt][event.partition].append(int(number))
        whole = {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}
        for cell, attempts in self.made.items():
            there = [each for each in attempts if each in found]
            assert len(there) == 1, f"{cell}: of {attempts} there are {there}"
            assert found.pop(there[0]) == whole, f"{cell}: {there[0]} is torn"
        assert not found, f"nobody has sent {list(found)}"


@contextmanager
def table_in(directory: Path) -> Iterator[Table]:
    with cluster_in(directory) as cluster:
        cluster.found(NAMES[0])
        cluster.join(NAMES[1:], [cluster[NAMES[0]]])
        urls = ",".join(cluster[name].address for name in NAMES)
        with hocket.connect(f"hocket://{urls}", timeout=SECONDS) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
            faults = Faults(cluster, NAMES, TOPIC, client, random.Random("table"))
            faults.wait_led()
            table = Table(cluster, client, faults)
            yield table
            faults.wait_led()
            table.check()
    sys.stdout.write(
        f"{table.kills} kills, {table.in_time} of them between the request to commit and its "
        f"answer; the slowest took {table.slowest:.1f} s\n"
    )


@pytest.mark.timeout(200)
def test_a_transaction_is_whole_or_absent_whoever_dies_at_whichever_step(tmp_path: Path):
    with table_in(tmp_path) as table:
        for step, victim in SLICE:
            table.suffer(step, victim)


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.timeout(3000)
def test_the_whole_table(tmp_path: Path):
    with table_in(tmp_path) as table:
        for _ in range(ROUNDS):
            for step, victim in ALL:
                table.suffer(step, victim)
        assert table.in_time > 2 * ROUNDS
