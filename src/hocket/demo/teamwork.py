"""More scenes of level 3: consumers that share the work, all or nothing, and who may do what."""

from __future__ import annotations

import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable

import hocket
from hocket.client.faces.blocking.client import Client
from hocket.demo.outcome import Outcome, check
from hocket.demo.topics import PATIENCE_SECONDS, serving
from hocket.errors import NotAllowed, Timeout

WORKERS = 3


def shared_work(progress: Callable[[float], None]) -> Outcome:
    """Three consumers share an index; one dies with messages in hand, and one message is poison."""
    total = 3_000
    done: Counter[bytes] = Counter()
    by_worker: Counter[int] = Counter()
    with hocket.embedded() as client:
        client.create_topic("jobs", partitions=2)
        # The one that will die takes some messages, and never says another word about them.
        doomed = client.subscribe("jobs", index="workers", mode="shared", lease=1, prefetch=20)
        stop = threading.Event()
        workers = [
            threading.Thread(target=_work, args=(client, number, done, by_worker, stop))
            for number in range(WORKERS)
        ]
        with client.producer("jobs") as producer:
            producer.send_many([b"%d" % number for number in range(total)])
        taken = [doomed.receive(timeout=PATIENCE_SECONDS) for _ in range(10)]
        for worker in workers:
            worker.start()
        doomed.close()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(done) < total - 1 or not client.dead_letters("jobs"):
            check(time.monotonic() < deadline, "every message is done")
            progress(len(done) / total)
            time.sleep(0.05)
        stop.set()
        for worker in workers:
            worker.join()
        (letter,) = client.dead_letters("jobs")
        check(letter.value == b"13" and letter.deliveries == 5, "poison after five deliveries")
        check(all(count == 1 for count in done.values()), "each was done once")
        check(all(each.value in done or each.value == b"13" for each in taken), "none is lost")
    return Outcome(
        WORKERS + 1, total, total * 4,
        f"{len(by_worker)} consumers at work; {len(taken)} taken over; 1 dead letter",
    )  # fmt: skip


def _work(
    client: Client,
    number: int,
    done: Counter[bytes],
    by_worker: Counter[int],
    stop: threading.Event,
) -> None:
    with client.subscribe("jobs", index="workers", mode="shared", prefetch=50) as jobs:
        while not stop.is_set():
            try:
                job = jobs.receive(timeout=0.1)
            except Timeout:
                continue
            if job.value == b"13":
                job.nack()
                continue
            job.ack()
            done[job.value] += 1
            by_worker[number] += 1


def all_or_nothing() -> Outcome:
    """A transaction over two topics: one is committed, one fails half-way and leaves no trace."""
    count = 10_000
    values = [b"%d" % number for number in range(count)]
    with hocket.embedded() as client:
        client.create_topic("orders", partitions=4)
        client.create_topic("ledger")
        with client.transaction("import", number=1) as transaction:
            transaction.send_many("orders", values, keys=values)
            transaction.send_many("ledger", values)
        try:
            with client.transaction("import", number=2) as transaction:
                transaction.send_many("orders", values)
                raise RuntimeError("the power of the till is gone")
        except RuntimeError:
            pass
        ends = [
            sum(each.end for each in client.describe(topic).partitions)
            for topic in ("orders", "ledger")
        ]
    check(ends == [count, count], "all of the first, nothing of the second")
    return Outcome(1, 3 * count, 3 * count * 5, "2 topics, 5 partitions; the aborted one left none")


def revoked(progress: Callable[[float], None]) -> Outcome:
    """Users, roles, grants; and a grant that is taken away while its stream is open."""
    with (
        tempfile.TemporaryDirectory(prefix="hocket-demo-") as data,
        serving(data, "127.0.0.1:0") as (address, _),
    ):
        with hocket.connect(address) as first:
            first.create_topic("orders")
            token = first.create_user("ann", roles=["admin"])
        with hocket.connect(address, token=token) as admin:
            admin.create_role("writer")
            admin.grant("writer", "publish", "orders")
            progress(0.5)
            with hocket.connect(address, token=admin.create_user("bob", roles=["writer"])) as bob:
                producer = bob.producer("orders")
                producer.send(b"one")
                producer.flush()
                admin.revoke("writer", "publish", "orders")
                try:
                    producer.send(b"two")
                    producer.flush(timeout=PATIENCE_SECONDS)
                    refused = False
                except NotAllowed:
                    refused = True
                check(refused, "the open producer is cut off")
            check(admin.describe("orders").partitions[0].end == 1, "nothing came through")
    return Outcome(3, 1, 3, "the revoke cut an open producer off; nothing came through")
