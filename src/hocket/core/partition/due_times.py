"""When messages that wait are due: a million of them in a few arrays, taken out in order of time.

A chunk holds a thousand messages, each with its offset and its time. It is sorted shortly before
the first of them is due (`prepare`), so neither a publish nor the start of a broker sorts anything.
Two heaps say which chunks come next: those that are sorted, by their next message, and those that
are not, by the earliest time in them. Small chunks are merged now and then, so that messages that
are published one by one, and those left over by their neighbours, cost little more than their 8
bytes, or 16: of consecutive offsets the first one will do, in memory and in a snapshot. A snapshot
copies arrays and looks at no message, for the node waits for it, and with it everybody.

What `pop` returns follows from what was added and taken out, and from nothing else: in which chunks
the messages lie, and which of these are sorted, makes no difference.
"""

from __future__ import annotations

import heapq
from array import array

CHUNK = 1024  # messages that are sorted together: half a millisecond
SPARE_CHUNKS = 64  # so many more may come before small ones are merged

_END = (1 << 64, 0)  # behind every message


class _Chunk:
    __slots__ = ("at", "dues", "first_us", "is_merged", "low", "offsets")

    def __init__(self, offsets: array[int] | range, dues: array[int]) -> None:
        self.offsets = offsets  # a range if they are consecutive
        self.dues = dues
        self.low = offsets[0] if isinstance(offsets, range) else min(offsets)  # none is lower
        self.first_us = min(dues)  # of all that it was made with
        self.at = 0  # the next message, if it is sorted
        self.is_merged = False  # its messages are in another chunk now

    @property
    def left(self) -> int:
        return len(self.dues) - self.at

    @property
    def head(self) -> tuple[int, int]:
        """The next message, if it is sorted."""
        return self.dues[self.at], self.offsets[self.at]

    def sort(self) -> None:
        in_order = sorted(zip(self.dues, self.offsets, strict=True))
        self.dues = array("q", [due for due, _ in in_order])
        self.offsets = _as_range(array("Q", [offset for _, offset in in_order]))


def _as_range(offsets: array[int]) -> array[int] | range:
    """The same offsets, without the array if they are consecutive."""
    run = range(offsets[0], offsets[0] + len(offsets))
    is_run = offsets[-1] == run[-1] and offsets == array("Q", run)
    return run if is_run else offsets


class DueTimes:
    """Messages that wait, by offset, each with the time at which it is due."""

    def __init__(self) -> None:
        self._chunks: dict[int, _Chunk] = {}  # by number
        self._unsorted: list[tuple[int, int, _Chunk]] = []  # a heap of (first_us, number, chunk)
        self._sorted: list[tuple[int, int, int, _Chunk]] = []  # a heap of (*head, number, chunk)
        self._last = 0  # number of a chunk
        self._chunks_max = SPARE_CHUNKS
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_us(self) -> int | None:
        """When the next message is due; None if none waits."""
        firsts = [heap[0][0] for heap in (self._unsorted, self._sorted) if heap]
        return min(firsts, default=None)

    @property
    def first_offset(self) -> int | None:
        """No message that waits has a lower offset than this; None if none waits."""
        return min((chunk.low for chunk in self._chunks.values()), default=None)

    def add(self, base_offset: int, dues: array[int]) -> None:
        """Messages with consecutive offsets, due at these times."""
        self._add(range(base_offset, base_offset + len(dues)), dues)
        if len(self._chunks) > self._chunks_max:
            self._merge()

    def _add(self, offsets: array[int] | range, dues: array[int]) -> None:
        for start in range(0, len(dues), CHUNK):
            some = offsets[start : start + CHUNK]
            some = some if isinstance(some, range) else _as_range(some)
            chunk = _Chunk(some, dues[start : start + CHUNK])
            self._last += 1
            self._chunks[self._last] = chunk
            heapq.heappush(self._unsorted, (chunk.first_us, self._last, chunk))
        self._count += len(dues)

    def _merge(self) -> None:
        small = [number for number, each in self._chunks.items() if each.left < CHUNK // 2]
        offsets, dues = array("Q"), array("q")
        for number in small:
            chunk = self._chunks.pop(number)
            chunk.is_merged = True
            offsets.extend(chunk.offsets[chunk.at :])
            dues += chunk.dues[chunk.at :]
        self._count -= len(dues)
        self._add(offsets, dues)
        self._chunks_max = SPARE_CHUNKS + len(self._chunks) * 3 // 2
        self._unsorted = [each for each in self._unsorted if not each[-1].is_merged]
        self._sorted = [each for each in self._sorted if not each[-1].is_merged]
        heapq.heapify(self._unsorted)
        heapq.heapify(self._sorted)

    def prepare(self, through_us: int, chunks: int) -> bool:
        """Sort up to so many chunks in which something is due by then. False: there are more."""
        while self._unsorted and self._unsorted[0][0] <= through_us:
            if not chunks:
                return False
            _, number, chunk = heapq.heappop(self._unsorted)
            chunks -= 1
            chunk.sort()
            heapq.heappush(self._sorted, (*chunk.head, number, chunk))
        return True

    def pop(self, through_us: int, count: int) -> list[int]:
        """Take out up to `count` of those due at `through_us`: the earliest, in order.

        Of those due at the same time, the one with the lower offset comes first.
        """
        self.prepare(through_us, len(self._unsorted))
        found: list[int] = []
        heap = self._sorted
        while len(found) < count and heap and heap[0][0] <= through_us:
            _, _, number, chunk = heapq.heappop(heap)
            until = min((through_us, 1 << 64), heap[0][:2] if heap else _END)
            at, end = chunk.at, min(len(chunk.dues), chunk.at + count - len(found))
            while at < end and (chunk.dues[at], chunk.offsets[at]) <= until:
                found.append(chunk.offsets[at])
                at += 1
            chunk.at = at
            if chunk.left:
                heapq.heappush(heap, (*chunk.head, number, chunk))
            else:
                del self._chunks[number]
        self._count -= len(found)
        return found

    # --- kept ------------------------------------------------------------------------------------

    def snapshot(self) -> list[array[int]]:
        """In pieces that are to be joined, for each chunk: how many messages; the first offset if
        they are consecutive, else -1 and all offsets; then all times. All as 64-bit numbers."""
        pieces: list[array[int]] = []
        for chunk in self._chunks.values():
            offsets, dues = chunk.offsets, chunk.dues
            if chunk.at:
                offsets, dues = offsets[chunk.at :], dues[chunk.at :]
            if isinstance(offsets, range):
                pieces += [array("q", (len(dues), offsets[0])), dues]
            else:
                pieces += [array("q", (len(dues), -1)), offsets, dues]
        return pieces

    def restore(self, taken: bytes | memoryview) -> None:
        numbers = memoryview(taken).cast("q")
        at = 0
        while at < len(numbers):
            count, first = numbers[at : at + 2]
            at += 2
            offsets: array[int] | range = range(first, first + count)
            if first < 0:
                offsets = array("Q", bytes(numbers[at : at + count]))
                at += count
            self._add(offsets, array("q", bytes(numbers[at : at + count])))
            at += count
        self._chunks_max = SPARE_CHUNKS + len(self._chunks) * 3 // 2
