"""The rows of `make bench-local`: what is measured, against whom, and what is asked.

The demands are those of the table "Speed and memory" of the project's plan for levels 1 and 2.
Where a row falls short, `why` says what the profile shows; the results page prints it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from benchmarks import runner
from benchmarks.local import connections, ours
from benchmarks.local.peers import (
    culsans,
    event_loop,
    janus,
    pipe,
    queue_queue,
    socketpair,
    zmq_inproc,
)
from benchmarks.runner import Contender, Contest, Row, fixed, percentile

KIB, MIB = 1 << 10, 1 << 20
CHUNK = b"c" * (64 * KIB)  # not zeros: the kernel keeps untouched zeros in one shared page
TINY = b"t" * 16
MESSAGE = b"m" * 100
HUGE_BYTES = 100_000_000
HUGE_GROWTH_MAX = MIB  # "no memory": about 1 % of the message, room for the pump and the queue

SAME = "the same message object and count on every side; every consumer adds 1 to a counter"


# --- samples -------------------------------------------------------------------------------------


def rate(name: str, seconds: Callable[[int], float], per: float = 1.0) -> Contender:
    """A contender measured by how much it moves in a second, in units of `per`."""
    return Contender(name, lambda count: {"rate": count / seconds(count) / per})


def latency(name: str, round_trips: Callable[[int], list[float]]) -> Contender:
    """A contender measured by its single round trips, in microseconds."""

    def measure(count: int) -> dict[str, float]:
        latencies = round_trips(count)
        return {f"p{part}": percentile(latencies, part) * 1e6 for part in (50, 99)}

    return Contender(name, measure)


# --- contests ------------------------------------------------------------------------------------


def channel_stream(buffer_bytes: int) -> Contest:
    def stream(name: str, seconds: Callable[[int], float]) -> Contender:
        return rate(name, seconds, per=1e6 / len(CHUNK))

    buffer = f"{buffer_bytes // MIB} MiB"
    return Contest(
        ours=stream("hocket", lambda count: ours.channel_stream(count, CHUNK, buffer_bytes)),
        peers=[
            stream("socketpair", lambda count: socketpair.stream(count, CHUNK)),
            stream(
                f"socketpair, SO_SNDBUF {buffer}",
                lambda count: socketpair.stream(count, CHUNK, buffer_bytes),
            ),
            stream("os.pipe of 1 MiB", lambda count: pipe.stream(count, CHUNK)),
        ],
        rows=[
            Row(
                f"Channel 64 KiB writes, {buffer} buffer",
                "rate",
                "MB/s",
                at_least=1.0,
                aim=2.0,
                why=ONE_COPY_AT_A_TIME,
            )
        ],
        count=20_000,
        quick_count=200,
        settings=[
            f"the channel's buffer is {buffer} for each direction",
            "one thread writes 64 KiB chunks, another reads into one preallocated 64 KiB bytearray",
            "pipe: F_SETPIPE_SZ 1 MiB, the most without privileges; the socket once as it comes "
            "and once with a send buffer as large as ours",
        ],
    )


ONE_COPY_AT_A_TIME = (
    "Measured: one of the two threads is at work all the time (their CPU times add up to the whole "
    "run), and with both on one core (`taskset -c 0`) the same code moves about twice as much. So "
    "it is not waiting that costs, but work that gets dearer across cores. What that is was not "
    "measured further; our reading is that each byte has to come out of the cache of the writer's "
    "core, and that the GIL lets one thread copy at a time where the kernel lets both."
)


def channel_messages() -> Contest:
    return Contest(
        ours=rate("hocket", lambda count: ours.channel_messages(count, TINY)),
        peers=[rate("queue.Queue(1024)", lambda count: queue_queue.one_way(count, TINY))],
        rows=[Row("Channel 16 B writes and reads", "rate", "messages/s", at_least=1.0, aim=2.0)],
        count=200_000,
        quick_count=2_000,
        settings=["default buffer of 1 MiB; one write and one read call for each 16 B message"],
    )


def pump_posts() -> Contest:
    return Contest(
        ours=rate("hocket", ours.pump_posts),
        peers=[
            rate("uvloop call_soon_threadsafe", event_loop.uvloop_posts),
            rate("asyncio call_soon_threadsafe", event_loop.asyncio_posts),
        ],
        rows=[Row("EventPump posts from another thread", "rate", "posts/s", at_least=2.0, aim=3.0)],
        count=200_000,
        quick_count=2_000,
        settings=["timed from the first post until the last callable, a counter, has run"],
    )


def full_event_one_way() -> Contest:
    return Contest(
        ours=rate("hocket", lambda count: ours.one_way(count, MESSAGE)),
        peers=[
            rate("queue.Queue(1024)", lambda count: queue_queue.one_way(count, MESSAGE)),
            rate("pyzmq inproc", lambda count: zmq_inproc.one_way(count, MESSAGE)),
            rate("pyzmq inproc, HWM 1024", lambda count: zmq_inproc.one_way(count, MESSAGE, 512)),
            rate("culsans, thread to thread", lambda count: culsans.one_way(count, MESSAGE)),
            rate("culsans, to asyncio", lambda count: culsans.one_way_to_asyncio(count, MESSAGE)),
            rate("janus, to asyncio", lambda count: janus.one_way_to_asyncio(count, MESSAGE)),
        ],
        rows=[Row("full-event queue, thread to pump", "rate", "messages/s", at_least=1.0, aim=2.5)],
        count=100_000,
        quick_count=2_000,
        settings=[
            f"100 B messages; {SAME}",
            "bounds: ours, queue.Queue, culsans and janus 1,024 messages; "
            "pyzmq once with its default mark (1,000 + 1,000) and once with 512 + 512",
            "ours sends with send_wait and counts in the listener's `received`",
        ],
    )


def full_event_to_asyncio() -> Contest:
    return Contest(
        ours=rate("hocket", lambda count: ours.one_way_to_asyncio(count, MESSAGE)),
        peers=[
            rate("culsans", lambda count: culsans.one_way_to_asyncio(count, MESSAGE)),
            rate("janus", lambda count: janus.one_way_to_asyncio(count, MESSAGE)),
        ],
        rows=[
            Row("full-event queue, thread to asyncio", "rate", "messages/s", at_least=1.5, aim=3.0)
        ],
        count=100_000,
        quick_count=2_000,
        settings=[
            f"100 B messages; {SAME}; all bounded to 1,024; asyncio's own loop for all",
            "ours: send_wait in the thread, `async for` in the coroutine; peers: put and get",
        ],
    )


def round_trip() -> Contest:
    return Contest(
        ours=latency("hocket", lambda count: ours.round_trips(count, MESSAGE)),
        peers=[latency("two queue.Queue", lambda count: queue_queue.round_trips(count, MESSAGE))],
        rows=[
            Row("round trip p50", "p50", "us", at_least=1.0, aim=2.0, less_is_better=True),
            Row("round trip p99", "p99", "us", at_least=0.7, aim=1.5, less_is_better=True),
        ],
        count=5_000,
        quick_count=100,
        settings=[
            "one 100 B message at a time, no timeouts; ours: send_wait, echo listener on the pump, "
            "receive_wait; the peer: put, echo thread, get"
        ],
    )


def mixed_one_way() -> Contest:
    return Contest(
        ours=rate("hocket", lambda count: ours.mixed_one_way(count, MESSAGE)),
        peers=[rate("queue.Queue(1024)", lambda count: queue_queue.one_way(count, MESSAGE))],
        rows=[Row("mixed queue, thread to pump", "rate", "messages/s", at_least=None, aim=0.5)],
        count=50_000,
        quick_count=1_000,
        settings=[f"100 B messages; {SAME}; ours sends with send_wait"],
    )


def huge_message_time() -> Contest:
    huge = b"h" * HUGE_BYTES
    name = "100 MB message, time"
    return Contest(
        ours=latency("hocket, 100 MB", lambda count: ours.round_trips(count, huge)),
        peers=[latency("hocket, 100 B", lambda count: ours.round_trips(count, MESSAGE))],
        rows=[Row(name, "p50", "us", at_least=1 / 3, less_is_better=True)],
        count=2_000,
        quick_count=50,
        settings=[
            "median round trip through a full-event queue and back, one at a time, of a 100 MB and "
            "of a 100 B message; what comes back is asserted to be the very same object"
        ],
    )


def huge_message_memory() -> Contest:
    huge = b"h" * HUGE_BYTES
    return Contest(
        ours=Contender("hocket, 100 MB", lambda count: ours.memory_in_transit(count, huge)),
        peers=[fixed("ceiling of 1 MiB", growth=HUGE_GROWTH_MAX)],
        rows=[
            Row(
                "100 MB message, memory",
                "growth",
                "B",
                at_least=1.0,
                less_is_better=True,
                also=("resident B", "traced B"),
                note="the higher of the two peaks, above what was held before the first send; at "
                "least one page",
            )
        ],
        count=200,
        quick_count=10,
    )


def connection_memory() -> Contest:
    def measure(count: int) -> dict[str, float]:
        resident = connections.measure(count)
        traced = connections.measure(count, "--traced")
        return {
            "bytes": resident["idle"],
            "resident B after a message each way": resident["used"],
            "traced B": traced["idle"],
            "traced B after a message each way": traced["used"],
        }

    also = (
        "resident B after a message each way",
        "traced B",
        "traced B after a message each way",
    )
    return Contest(
        ours=Contender("hocket", measure),
        peers=[fixed("ceiling of 4 KiB", bytes=4 * KIB)],
        rows=[
            Row(
                "10,000 connections, memory each",
                "bytes",
                "B",
                at_least=1.0,
                aim=4 / 3,
                less_is_better=True,
                also=also,
                note="growth of the resident memory of a fresh process for each connection; the "
                "aim of 1.33x is 3 KiB",
            )
        ],
        count=10_000,
        quick_count=500,
        settings=["both ends, each with a listener object of its own with `__slots__ = ()`"],
    )


def contests() -> list[Contest]:
    return [
        channel_stream(4 * MIB),
        channel_stream(1 * MIB),
        channel_messages(),
        pump_posts(),
        full_event_one_way(),
        full_event_to_asyncio(),
        round_trip(),
        mixed_one_way(),
        huge_message_time(),
        huge_message_memory(),
        connection_memory(),
    ]


if __name__ == "__main__":
    sys.exit(runner.main("local", "Channels, pump and queues against their peers", contests()))
