"""A consumer of a shared index, in a process of its own, that dies at one kind of message.

    python -m tests.support.processes.doomed URL TOPIC INDEX [MODE]

It acks each message, until none is left. At the value `poison` it dies at once, by `os._exit`: it
closes nothing, and tells nobody what it has acked a moment ago.
"""

from __future__ import annotations

import os
import sys

import hocket
from hocket.errors import Timeout

DIED = 70  # its exit code


def main(url: str, topic: str, index: str, mode: str = "shared") -> None:
    with (
        hocket.connect(url, timeout=60) as client,
        client.subscribe(
            topic, index=index, mode=mode, max_deliveries=3, timeout=60
        ) as subscription,
    ):
        while client.lag(topic, index):
            try:
                message = subscription.receive(timeout=0.2)
                while True:
                    if message.value == b"poison":
                        os._exit(DIED)
                    message.ack()
                    message = subscription.receive(timeout=0.2)
            except Timeout:
                pass


if __name__ == "__main__":
    main(*sys.argv[1:])
