"""Transactions over three nodes, on real processes: at each step somebody is killed with -9.

A table of steps and of those who die: the leader of a participant, the leader of the decider, a
node that only follows, the node at which the client enters, the root, the client. Whoever dies
stays dead until the transaction is over. What was sent is whole or absent in the end, and nothing
is doubled; what a dead client had asked for is done by another one, under the same id and number,
and then exactly one of the two attempts is there. Of what was to be aborted nothing is ever there,
and a consumer that reads all the while is handed what is there in the end, once and in order, and
nothing else (`tests.support.cluster.tables`). All of that is judged after each row.

With one replica each of the three nodes dies at each step. Its partition is away then, so the
transaction waits until the node is back.

By default some cells; all of them with HOCKET_STRESS=long (make test-cluster), HOCKET_TIMES times
(2).
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import hocket
from hocket.client_core.session.session import Route
from hocket.core.transactions.messages import decider_of
from hocket.errors import HocketError, Timeout
from hocket.model import DECIDERS, DECIDERS_COUNT
from tests.support.cluster.clients import end_of
from tests.support.cluster.faults import Faults
from tests.support.cluster.processes import (
    Cluster,
    cluster_in,
    root_of,
    wait_for,
    wait_until_three_keep_each,
)
from tests.support.cluster.tables import (
    Record,
    Transaction,
    as_markdown,
    judge_transactions,
    judge_watching,
)
from tests.support.cluster.transactor import STEPS, Transactor, prepared_in
from tests.support.threads import LONG

NAMES = ["one", "two", "three"]
TOPIC = "orders"
PARTITIONS = 3
RECORDS = 300  # in each partition
RECORDS_ROLLED = 2000  # so that some is still to be rolled forward when a partition has some of it
VICTIMS = ("participant", "decider", "follower", "its node", "root", "client")
TIMES = int(os.environ.get("HOCKET_TIMES", "2"))
SLICE = [("asked", "decider"), ("decided", "participant"), ("aborting", "its node")]
SLICE_OF_ONE_COPY = [("staged", "two"), ("decided", "three")]
SECONDS = 60.0
ASKED_SECONDS_MAX = 0.1  # between the request to commit and the kill: about what it takes
ABORTED_SECONDS_MAX = 0.02  # the same of an abort
AWAY_SECONDS_MAX = 4.0  # of a node that has the only copy of its partition


class Watcher(threading.Thread):
    """A consumer that reads all the while, and keeps what it was handed."""

    def __init__(self, url: str) -> None:
        super().__init__(name="test: watcher")
        self.seen: list[Record] = []
        self.error: HocketError | None = None
        self._url = url
        self._ending = threading.Event()

    def run(self) -> None:
        try:
            with (
                hocket.connect(self._url, timeout=SECONDS) as client,
                client.subscribe(TOPIC, timeout=SECONDS) as messages,
            ):
                while not self._ending.is_set():
                    self._receive(messages)
        except HocketError as error:
            self.error = error

    def _receive(self, messages: hocket.Subscription) -> None:
        with suppress(Timeout):
            self.seen.append(record_of(messages.receive(0.2)))

    def end(self) -> None:
        self._ending.set()
        self.join()


def record_of(message: hocket.Message) -> Record:
    """Of the value its head, which names it."""
    return message.partition, message.offset, message.value[:40].decode().rstrip(".")


class Table:
    def __init__(
        self,
        cluster: Cluster,
        client: hocket.Client,
        faults: Faults,
        watcher: Watcher,
        replication: int,
    ) -> None:
        self._watcher = watcher
        self._is_copied = replication > 1
        self.chance = random.Random("transactions")
        self._cluster = cluster
        self._client = client
        self._faults = faults
        self._names = {cluster[name].node: name for name in NAMES}  # by the ids of their stores
        self.made: list[Transaction] = []
        self.kills: Counter[tuple[str, str]] = Counter()
        self.in_time = 0  # kills between the request to commit or to abort and its answer
        self.slowest = 0.0

    # --- who is who ------------------------------------------------------------------------------

    def _decider(self, name: str) -> str:
        """Who leads the decider of this id: whoever has answered last."""
        router = self._client._engine.session.router
        assert router is not None
        route = Route(DECIDERS, decider_of(name, DECIDERS_COUNT))

        def found() -> str:
            self._client.transaction(name, number=0).commit(SECONDS)
            return router.leader_of(route) or router.first.node_id

        return self._names[str(wait_for(found, SECONDS))]

    def _victim(self, kind: str, name: str) -> str:
        if kind in NAMES:
            return kind
        if kind == "participant":
            return self.chance.choice(self._faults.wait_led())
        if kind == "decider":
            return self._decider(name)
        if kind == "follower":  # of what is left of the partitions, and of the decider
            decider, leaders = self._decider(name), self._faults.wait_led()
            return min((each for each in NAMES if each != decider), key=leaders.count)
        return root_of(self._cluster) if kind == "root" else self.chance.choice(NAMES)

    # --- one cell --------------------------------------------------------------------------------

    def suffer(self, step: str, kind: str) -> None:
        number = len(self.made) + 1
        name = f"job-{self.chance.randrange(1000)}-{number}"
        self._faults.wait_led()
        self._faults.wait_even()
        victim = "" if kind == "client" else self._victim(kind, name)
        partitions = self._partitions(kind, victim)
        records = RECORDS_ROLLED if step == "decided" else RECORDS
        cell = Transaction(f"{number}: {step} x {kind} {victim}", partitions, records)
        self.made.append(cell)
        entry = victim if kind == "its node" else ""
        transactor = self._transactor(entry, victim, f"{number}.1", name, cell)
        (cell.aborted if step == "aborting" else cell.attempts).append(transactor.attempt)
        began = time.monotonic()
        try:
            prepared = self._go_to(transactor, step)
            is_in_time = step in ("asked", "decided", "aborting") and not transactor.has_said()
            self.in_time += is_in_time
            self.kills[step, kind] += 1
            began = time.monotonic()
            if kind == "client":
                transactor.kill()
            else:
                self._cluster[victim].kill()
                if not self._is_copied:
                    self._comes_back(victim)
                self._finish(transactor, step)
            if kind == "client" or step == "aborting":
                self._take_over(cell, name, prepared)
        finally:
            transactor.kill()
        seconds = time.monotonic() - began
        self.slowest = max(self.slowest, seconds)
        when = ", killed before it was answered" if is_in_time else ""
        sys.stdout.write(f"{cell.name}{when}: over after {seconds:.1f} s\n")
        sys.stdout.flush()
        if victim and self._is_copied:
            self._cluster.restart(victim)

    def _comes_back(self, victim: str) -> None:
        """A moment later, in which those who are left find out what they cannot do."""
        time.sleep(self.chance.uniform(0, AWAY_SECONDS_MAX))
        self._cluster.restart(victim)

    def _partitions(self, kind: str, victim: str) -> list[int]:
        """Where the transaction sends to: all, or those that a follower does not lead."""
        leaders = self._faults.wait_led()
        everywhere = list(range(PARTITIONS))
        if kind != "follower":
            return everywhere
        return [each for each in everywhere if leaders[each] != victim]

    def _transactor(
        self, entry: str, victim: str, attempt: str, name: str, cell: Transaction
    ) -> Transactor:
        """Enters at this node, or at one that will not die."""
        entry = entry or next(each for each in NAMES if each != victim)
        others = [each for each in NAMES if each != entry]
        urls = ",".join(self._cluster[each].address for each in (entry, *others))
        return Transactor(
            f"hocket://{urls}", TOPIC, attempt, (name, 1), cell.records, cell.partitions
        )

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
        if step == "aborting":
            transactor.tell("aborting")
            time.sleep(self.chance.uniform(0, ABORTED_SECONDS_MAX))
            return ""
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
            assert transactor.hear() == ("aborted" if step == "aborting" else "committed")

    def _take_over(self, cell: Transaction, name: str, prepared: str) -> None:
        """Another client does what the dead one was about to, and does not know how far it came."""
        if prepared:
            self._client.commit_prepared(name, 1, prepared_in(prepared), SECONDS)
            return
        attempt = f"{len(self.made)}.2"
        cell.attempts.append(attempt)
        entry = self._cluster.up[self.chance.randrange(len(self._cluster.up))].name
        other = self._transactor(entry, "", attempt, name, cell)
        try:
            for step in ("open", "staged", "done"):
                other.take(step)
        finally:
            other.kill()

    # --- the end ---------------------------------------------------------------------------------

    def check(self) -> None:
        """All that was made since the beginning."""
        stored = self._stored()
        found: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        for at, _, value in stored:
            attempt, partition, number, _ = value.split("/")
            assert int(partition) == at
            found[attempt][at].append(int(number))
        wrong = judge_transactions(self.made, found)
        watcher = self._watcher
        wait_for(
            lambda: watcher.error or len(watcher.seen) >= len(stored),
            SECONDS,
            lambda: f"the consumer has seen {len(watcher.seen)} of {len(stored)}",
        )
        assert watcher.error is None, watcher.error
        wrong += judge_watching(watcher.seen, stored)
        assert not wrong, wrong
        sys.stdout.write(
            f"exact: {len(self.made)} transactions, {len(stored)} records, seen once and in order\n"
        )
        sys.stdout.flush()

    def _stored(self) -> list[Record]:
        """All that stands in the logs, read from their beginning."""
        with self._client.subscribe(TOPIC, timeout=SECONDS) as messages:
            count = end_of(self._client, TOPIC)
            return [record_of(messages.receive(SECONDS)) for _ in range(count)]


@contextmanager
def table_in(directory: Path, replication: int = 3) -> Iterator[Table]:
    with cluster_in(directory) as cluster:
        cluster.found(NAMES[0])
        cluster.join(NAMES[1:], [cluster[NAMES[0]]])
        wait_until_three_keep_each(cluster)
        urls = ",".join(cluster[name].address for name in NAMES)
        with hocket.connect(f"hocket://{urls}", timeout=SECONDS) as client:
            client.create_topic(TOPIC, partitions=PARTITIONS, replication=replication)
            faults = Faults(cluster, NAMES, TOPIC, client, random.Random("table"))
            faults.wait_led()
            watcher = Watcher(f"hocket://{urls}")
            watcher.start()
            try:
                table = Table(cluster, client, faults, watcher, replication)
                yield table
            finally:
                watcher.end()
    sys.stdout.write(
        f"{as_markdown(STEPS, victims_of(replication), table.kills)}\n"
        f"{table.kills.total()} kills, {table.in_time} of them between the request to commit or to "
        f"abort and its answer; the slowest took {table.slowest:.1f} s\n"
    )


def victims_of(replication: int) -> Sequence[str]:
    return VICTIMS if replication > 1 else (*NAMES, "client")


@pytest.mark.timeout(200)
def test_a_transaction_is_whole_or_absent_whoever_dies_at_whichever_step(tmp_path: Path):
    with table_in(tmp_path) as table:
        for step, victim in SLICE:
            table.suffer(step, victim)
        table.check()


@pytest.mark.timeout(200)
def test_a_transaction_waits_for_a_node_that_has_the_only_copy(tmp_path: Path):
    with table_in(tmp_path, replication=1) as table:
        for step, victim in SLICE_OF_ONE_COPY:
            table.suffer(step, victim)
        table.check()


@pytest.mark.skipif(not LONG, reason="HOCKET_STRESS=long")
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("replication", [3, 1], ids=["three_replicas", "one_replica"])
def test_the_whole_table(tmp_path: Path, replication: int):
    with table_in(tmp_path, replication) as table:
        for _ in range(TIMES):
            for step in STEPS:
                for victim in victims_of(replication):
                    table.suffer(step, victim)
                table.check()
        assert table.in_time > 2 * TIMES
