"""A worker in a process of its own: takes messages of a shared index, and says what it does.

    python -m tests.support.processes.worker URL TOPIC INDEX NAME HOW

It prints a line per message, `took OFFSET COUNT` and, once that is durable, `done OFFSET`. HOW is
"works", or "hangs": takes messages and never settles one.
"""

from __future__ import annotations

import sys

import hocket


def main(url: str, topic: str, index: str, how: str) -> None:
    with (
        hocket.connect(url, timeout=60) as client,
        client.subscribe(
            topic, index=index, mode="shared", lease=4, prefetch=4, timeout=60
        ) as subscription,
    ):
        print("ready", flush=True)  # noqa: T201
        for message in subscription:
            place = f"{message.partition}/{message.offset}"
            print("took", place, message.delivery_count, flush=True)  # noqa: T201
            if how == "works":
                message.ack()
                subscription.commit(60)
                print("done", place, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
