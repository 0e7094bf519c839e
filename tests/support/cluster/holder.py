"""A consumer of a shared index, a process of its own, that stands still at one step of its work.

    python -m tests.support.cluster.holder URL TOPIC STEP

It takes messages, does the step with half of them, says what it has as a line of JSON, and waits
for a line on its stdin. Then it acks what it still has, and says which acks are durable: `done` or,
if some were refused and it was not told which, nothing. Of what it has extended it acks that half
alone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import hocket
from hocket.errors import LeaseLost

TAKEN, HALF = 10, 5
LEASE_SECONDS = 5
EXTENDED_SECONDS = 30  # beyond the lease, and what a new leader withholds
PATIENCE = 60.0
STEPS = ("leased", "extended", "acked", "nacked", "dying", "dead-lettered")


def take_step(step: str, half: list[Any], messages: Any) -> None:
    for each in half:
        if step == "acked":
            each.ack()
        elif step == "nacked":
            each.nack(LEASE_SECONDS)
        elif step == "extended":
            each.extend(EXTENDED_SECONDS)
        elif step != "leased":
            each.reject("it is to die")
    if step in ("extended", "acked", "nacked", "dead-lettered"):
        messages.commit(PATIENCE)


def main(url: str, topic: str, step: str) -> None:
    with (
        hocket.connect(url, timeout=PATIENCE) as client,
        client.subscribe(
            topic, index="i", mode="shared", lease=LEASE_SECONDS, prefetch=TAKEN, timeout=PATIENCE
        ) as messages,
    ):
        held = [messages.receive(PATIENCE) for _ in range(TAKEN)]
        take_step(step, held[:HALF], messages)
        say({"held": [each.offset for each in held]})
        sys.stdin.readline()
        rest = {"leased": held, "extended": held[:HALF]}.get(step, held[HALF:])
        done = [each.offset for each in rest]
        try:
            for each in rest:
                each.ack()
            messages.commit(PATIENCE)
        except LeaseLost:
            done = []
        say({"done": done})


def say(fact: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(fact) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
