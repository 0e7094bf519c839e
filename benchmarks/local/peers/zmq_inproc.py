"""pyzmq over `inproc://`: PUSH in a thread, PULL in this one, no socket of the kernel."""

from __future__ import annotations

import zmq

from benchmarks.workers import time_one_way

ADDRESS = "inproc://benchmark"


def one_way(count: int, message: bytes, high_water_mark: int | None = None) -> float:
    """Seconds for `count` messages. The mark is for each end; ZeroMQ's own is 1,000."""
    with (
        zmq.Context() as context,
        context.socket(zmq.PULL) as pull,
        context.socket(zmq.PUSH) as push,
    ):
        if high_water_mark is not None:
            pull.set_hwm(high_water_mark)
            push.set_hwm(high_water_mark)
        pull.bind(ADDRESS)
        push.connect(ADDRESS)

        def send() -> None:
            push_one = push.send
            for _ in range(count):
                push_one(message)

        def receive() -> None:
            pull_one, received = pull.recv, 0
            while received < count:
                pull_one()
                received += 1

        return time_one_way(send, receive)
