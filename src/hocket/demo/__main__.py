"""`make demo`: each level at work on this machine, and a table of what happened.

Every scene counts what it sent and what came back, and fails the demo if the two differ.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from time import perf_counter

from hocket.demo import crowd, local, names, spark, teamwork, topics
from hocket.demo.outcome import Outcome
from hocket.local import MixedQueueBroker, QueueBroker


def show_progress(scene: str, part: float) -> None:
    if sys.stderr.isatty():
        filled = int(part * 24)
        print(f"\r  {scene:<44} [{'#' * filled:<24}]", end="", file=sys.stderr, flush=True)


Scene = tuple[str, str, Callable[[Callable[[float], None]], Outcome]]

SCENES: list[Scene] = [
    ("1 channels", "echo server on threads", lambda _: local.channels_between_threads()),
    ("1 channels", "graceful disconnect", lambda _: local.bytes_in_transit_survive_a_disconnect()),
    ("2 queues", "full-event echo", lambda bar: local.many_queues(QueueBroker, 2000, 50, bar)),
    (
        "2 queues",
        "mixed: threads and events",
        lambda bar: local.many_queues(MixedQueueBroker, 100, 200, bar),
    ),
    ("2 queues", "thread to asyncio", lambda _: local.a_thread_and_a_coroutine()),
    ("2 queues", "refusal and abort", local.refusals_and_force),
    ("2 queues", "three processes, by name", names.three_processes),
    *([("2 queues", "a chat of three", lambda _: names.chat())] if names.CHAT.exists() else []),
    ("3 topics", "embedded broker, two indexes", topics.two_indexes),
    ("3 topics", "memory, then disk", lambda _: topics.memory_then_disk()),
    ("3 topics", "served, kill -9, recovered", topics.killed_under_load),
    ("3 topics", "shared index, dead letter", teamwork.shared_work),
    ("3 topics", "transactions", lambda _: teamwork.all_or_nothing()),
    ("3 topics", "access, revoked while open", teamwork.revoked),
    ("3 topics", "five nodes, a popular topic", crowd.popular_topic),
]


def main() -> None:
    rows = []
    logging.getLogger("hocket").setLevel(logging.ERROR)  # that a link is lost is part of the show
    print("Hocket: every message accounted for, at every level.\n", flush=True)
    with spark.SparkScenes() as scenes:
        last: list[Scene] = [
            ("4 Spark", "topic to Spark to topic", scenes.topic_to_topic),
            ("4 Spark", "pipeline: sums by minute", scenes.pipeline),
        ]
        for level, scene, play in SCENES + last:
            show_progress(scene, 0.0)
            started = perf_counter()
            outcome = play(lambda part, scene=scene: show_progress(scene, part))  # type: ignore[misc]
            outcome.seconds = perf_counter() - started
            rows.append((level, scene, outcome))
    if sys.stderr.isatty():
        print("\r" + " " * 76 + "\r", end="", file=sys.stderr)
    print(
        f"{'level':<12}{'what':<29}{'connections':>11}{'messages':>10}{'MB':>7}{'seconds':>9}  "
        "result"
    )
    for level, scene, o in rows:
        print(
            f"{level:<12}{scene:<29}{o.connections:>11,}{o.messages:>10,}"
            f"{o.size / 1e6:>7.1f}{o.seconds:>9.2f}  {o.note}"
        )
    left = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    print(f"\nThreads left behind: {len(left)}. Next: README.md, docs/guide/, make help.")


if __name__ == "__main__":
    main()
