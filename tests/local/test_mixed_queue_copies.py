"""How often a mixed queue copies a message: into the channel's ring and out of it, and no more."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hocket.local.channel import Stream
from hocket.local.mixed_queue_broker import GATHERED_BELOW_BYTES, LENGTH
from tests.support.queues.worlds import World
from tests.support.threads import noise

SLACK_BYTES = 16 << 10  # for all that is not the message: views, headers, a sleeping thread


@pytest.fixture
def world() -> Iterator[World]:
    with World("mixed", 1) as made:
        yield made


@pytest.fixture
def puts(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, int]]:
    """What is copied into rings: the object whose memory it is, and how many bytes."""
    seen: list[tuple[object, int]] = []
    put: Callable[..., int] = Stream.put
    put_together: Callable[..., bool] = Stream.put_together

    def note(stream: Stream, data: Any, size: int) -> int:
        count = put(stream, data, size)
        seen.append((memoryview(data).obj, count))
        return count

    def note_all(stream: Stream, parts: Any, size: int) -> bool:
        written = put_together(stream, parts, size)
        if written:
            seen.extend((memoryview(part).obj, len(part)) for part in parts)
        return written

    monkeypatch.setattr(Stream, "put", note)
    monkeypatch.setattr(Stream, "put_together", note_all)
    return seen


@pytest.mark.parametrize("size", [GATHERED_BELOW_BYTES, 60_000, 1 << 16, 1 << 20, 5 << 20])
def test_the_senders_own_memory_is_what_is_copied_into_the_ring(
    world: World, puts: list[tuple[object, int]], size: int
):
    mine, theirs = world.pair()
    puts.clear()
    message = bytearray(noise(size, "own memory"))
    mine.send(message)
    assert theirs.receive_wait(timeout=10) == message
    assert sum(count for source, count in puts if source is message) == size
    assert sum(count for source, count in puts if source is not message) == LENGTH.size


@pytest.mark.parametrize("size", [60_000, 1 << 16, 1 << 20, 8 << 20])
def test_no_memory_is_taken_but_for_the_message_that_arrives(world: World, size: int):
    mine, theirs = world.pair()
    messages = [noise(size, number) for number in range(4)]
    mine.send(messages[0])
    theirs.receive_wait(timeout=10)  # what is made once is there now
    tracemalloc.start()
    try:
        for message in messages:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            mine.send(message)
            arrived = theirs.receive_wait(timeout=10)
            _, peak = tracemalloc.get_traced_memory()
            assert type(arrived) is bytes
            assert arrived == message
            assert arrived is not message
            del arrived
            assert peak - before < size + SLACK_BYTES
    finally:
        tracemalloc.stop()


def test_messages_across_the_seam_of_the_ring_arrive_whole(world: World):
    """Sizes that put the seam of the ring (1 MiB) into headers and messages, at every place."""
    mine, theirs = world.pair()
    sizes = [0, 1, 7, 8, 9, 100, GATHERED_BELOW_BYTES - 1, GATHERED_BELOW_BYTES, 65_536, 65_537]
    messages = [noise(sizes[n % len(sizes)] + n // 50, n) for n in range(400)]

    def send() -> None:
        for message in messages:
            mine.send_wait(message, timeout=10)

    sender = world.thread(send)
    for message in messages:
        assert theirs.receive_wait(timeout=10) == message
    sender.result()
