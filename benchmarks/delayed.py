"""What a million delayed messages that wait cost the others: rates with them over rates without.

Two brokers run side by side, one with the messages and one without, and take turns, so that what
else the machine does hits both. Run it by hand: python -m benchmarks.delayed [--waiting N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import hocket
from hocket.client.faces.blocking.client import Client

SENT_AT_ONCE = 1_000
VALUE = bytes(100)
READ_TIMES = 10  # the same messages are read so often: once takes 30 ms, of which nothing follows
SPREAD = timedelta(days=3)  # over which the messages are due, from a day on


@contextmanager
def served(data: Path) -> Iterator[tuple[Client, float, int]]:
    """A client of a broker in a process of its own; the seconds its start took, and its id."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "hocket.cli", "serve", "--listen", "127.0.0.1:0", "--data", data],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )  # fmt: skip
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split()[-1]
        with hocket.connect(address, timeout=60) as client:
            client.ping()
            yield client, time.perf_counter() - begun, process.pid
    finally:
        process.terminate()
        process.wait(60)


def resident_mib(pid: int) -> float:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def fill(client: Client, messages: int) -> None:
    """Delayed messages, each due at a time of its own, in no order."""
    first = datetime.now(UTC) + timedelta(days=1)
    with client.producer("reminders") as producer:
        for number in range(messages):
            at = first + SPREAD * ((number * 7919 % messages) / messages)
            producer.send(VALUE, deliver_at=at)


def rate(client: Client, topic: str, messages: int) -> tuple[float, float]:
    """Messages a second, published and consumed."""
    (start,) = client.find_offsets(topic, "latest")
    begun = time.perf_counter()
    with client.producer(topic) as producer:
        for _ in range(messages // SENT_AT_ONCE):
            producer.send_many([VALUE] * SENT_AT_ONCE)
    published = time.perf_counter()
    for _ in range(READ_TIMES):
        with client.subscribe(topic, positions={0: start}) as subscription:
            left = messages
            while left > 0:
                left -= len(subscription.receive_batch(timeout=60))
    consumed = time.perf_counter()
    return messages / (published - begun), READ_TIMES * messages / (consumed - published)


def one_by_one(client: Client, topic: str, messages: int) -> float:
    """Publishes a second, each waiting for the one before."""
    begun = time.perf_counter()
    for _ in range(messages):
        client.publish(topic, VALUE)
    return messages / (time.perf_counter() - begun)


def measure(waiting: int, rounds: int, messages: int, folder: Path) -> dict[str, object]:
    found: dict[str, list[float]] = {}
    names = ("filled", "empty")
    with served(folder / "filled") as (client, _, pid):
        client.create_topic("reminders", delayed=True)
        before = resident_mib(pid)
        begun = time.perf_counter()
        fill(client, waiting)
        print(f"filled in {time.perf_counter() - begun:.1f} s", file=sys.stderr)
        grown = resident_mib(pid) - before
    with served(folder / "empty") as (client, _, _):
        client.create_topic("reminders", delayed=True)
    with served(folder / "filled") as (full, full_start, pid), served(folder / "empty") as (
        bare, empty_start, empty_pid,
    ):  # fmt: skip
        (described,) = full.describe("reminders").partitions
        state = resident_mib(pid) - resident_mib(empty_pid)
        for client in (full, bare):
            client.create_topic("other")
        for number in range(rounds):
            order = [("filled", full), ("empty", bare)][:: -1 if number % 2 else 1]
            for topic in ("other", "reminders"):
                for name, client in order:
                    published, consumed = rate(client, topic, messages)
                    found.setdefault(f"{topic} published {name}", []).append(published)
                    found.setdefault(f"{topic} consumed {name}", []).append(consumed)
                for name, client in order:
                    single = one_by_one(client, topic, 300)
                    found.setdefault(f"{topic} one by one {name}", []).append(single)
    ratios = {}
    for what in sorted({key.rsplit(" ", 1)[0] for key in found}):
        pairs = zip(*(found[f"{what} {name}"] for name in names), strict=True)
        each = sorted(full / bare for full, bare in pairs)
        ratios[what] = {
            "median": round(statistics.median(each), 3),
            "lowest": round(each[0], 3),
            "highest": round(each[-1], 3),
            "best over best": round(max(found[f"{what} filled"]) / max(found[f"{what} empty"]), 3),
            "rate without": round(statistics.median(found[f"{what} empty"])),
        }
    return {
        "waiting": described.waiting,
        "start seconds": {"filled": round(full_start, 2), "empty": round(empty_start, 2)},
        "memory MiB": {"while filled": round(grown), "after a restart": round(state, 1)},
        "disk MiB": round(described.disk_bytes / (1 << 20)),
        "rounds": rounds,
        "with over without": ratios,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--waiting", type=int, default=1_000_000, help="delayed messages")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--messages", type=int, default=200_000, help="in each round and topic")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hocket-delayed-") as folder:
        found = measure(options.waiting, options.rounds, options.messages, Path(folder))
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
