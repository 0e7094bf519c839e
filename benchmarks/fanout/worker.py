"""A process of the benchmark: it produces, or is some of the consumers, and prints what it saw.

python -m benchmarks.fanout.worker '{"role": "produce", "side": "hocket", ...}'
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from time import monotonic, process_time
from typing import Any

from benchmarks.fanout.side import STAMP, Consumers, publish_at
from benchmarks.fanout.sides import SIDES

TAKE_SECONDS = 0.05  # how often a crowd takes what has come
LATE_SECONDS = 15.0  # after the last message, for all to have it


def ready() -> None:
    # A worker has loaded the clients of all sides. Looking through them takes the collector 20 ms,
    # once or twice a run, and is nothing that any of the sides does.
    gc.collect()
    gc.freeze()
    print("ready", flush=True)


def say(**result: float) -> None:
    print(json.dumps(result), flush=True)


async def is_told() -> None:
    """Wait for a line, without keeping connections waiting."""
    await asyncio.to_thread(sys.stdin.readline)


async def produce(task: dict[str, Any]) -> None:
    side = SIDES[task["side"]]
    async with side.publishing(task["address"], task["topic"]) as publish:
        ready()
        await is_told()
        cpu = process_time()
        await publish_at(task["rate"], task["seconds"], task["value_bytes"], publish)
    say(cpu=process_time() - cpu)


async def consume(task: dict[str, Any]) -> None:
    delays = array("d")
    cpu = 0.0

    def begin() -> None:
        nonlocal cpu
        ready()
        cpu = process_time()

    async def stay() -> None:
        took = process_time() - cpu
        Path(task["delays"]).write_bytes(delays.tobytes())
        say(cpu=took)
        await is_told()

    seen = counting(delays, int(task["rate"] * task["seconds"]))
    consumers = Consumers(task["consumers"], task["apart"], seen, begin, stay)
    await SIDES[task["side"]].consume(task["address"], task["topic"], consumers)


async def count(task: dict[str, Any]) -> None:
    """Be the crowd, until each of it has got the bytes of all values, or that takes too long."""
    expected = int(task["rate"] * task["seconds"]) * task["value_bytes"]
    side = SIDES[task["side"]]
    crowd = await side.crowd(task["address"], task["topic"], task["consumers"])
    ready()
    await is_told()  # clients may have to go elsewhere meanwhile
    crowd.begin()
    ready()
    begun, cpu = monotonic(), process_time()
    while min(crowd.bytes) < expected and monotonic() - begun < task["seconds"] + LATE_SECONDS:
        await asyncio.sleep(TAKE_SECONDS)
        crowd.take()
    say(cpu=process_time() - cpu, least=min(crowd.bytes) / expected)
    await is_told()
    os._exit(0)  # nobody here closes a connection in order


def counting(delays: array[float], total: int) -> Callable[[bytes], bool]:
    """Notes how late each value is; says of the last one of a consumer that it is the last."""
    note, stamp_of, last = delays.append, STAMP.unpack_from, total - 1

    def seen(value: bytes) -> bool:
        due, number = stamp_of(value)
        note(monotonic() - due)
        return bool(number == last)

    return seen


def main() -> None:
    task = json.loads(sys.argv[1])
    asyncio.run({"produce": produce, "consume": consume, "count": count}[task["role"]](task))


if __name__ == "__main__":
    main()
