"""The entries of one group on their way to one other node.

Rule 1: they leave in the order in which Raft wants them, in messages that are not too long.
Rule 2: so many bytes at most are under way and not answered; what comes behind them waits here.
Rule 3: nothing is remembered for good: an answer, a refusal, a lost link or some seconds without
        any of these free what was under way. Raft sends again what has not come.

Memory has the newest entries. Older ones are read from the disk, one message at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace

from hocket.core.raft.events import SendEntries
from hocket.core.raft.messages import Accepted, Entries, GroupMessage, Rejected
from hocket.errors import HocketError
from hocket.log.model import RawEntries
from hocket.log.replicated import ReplicatedLogs
from hocket.node.raft_mail import Letter, entries_in

MESSAGE_BYTES = 1 << 20
UNDER_WAY_BYTES_MAX = 8 << 20
FORGET_US = 3_000_000  # what is not answered by then was lost
CHEAP_BYTES = 256 << 10  # sent twice, they cost less than a loss that is noticed late


class Outbound:
    def __init__(
        self,
        group: int,
        peer: str,
        log: ReplicatedLogs,
        post: Callable[[str, Letter], None],
        *,
        lost: Callable[[HocketError], None],
        now_us: Callable[[], int],
        stored_after: Callable[[int], None],
        trace: Callable[[int, str, bytes | memoryview], Callable[[], None] | None],
    ) -> None:
        """`stored_after` is told how long it took, in us, until entries were durable there.

        `trace` is shown what is sent, and may want to be called when it is durable there.
        """
        self._group = group
        self._peer = peer
        self._log = log
        self._post = post
        self._lost = lost
        self._now_us = now_us
        self._stored_after = stored_after
        self._trace = trace
        self._wanted: deque[SendEntries] = deque()
        self._is_reading = False
        # last index, bytes, since when, and who wants to know that they have come
        self._under_way: deque[tuple[int, int, int, Callable[[], None] | None]] = deque()
        self._under_way_bytes = 0

    def send(self, wanted: SendEntries) -> None:
        if wanted.last < wanted.first:  # a probe: it says nothing that could be too much
            self._go_on()
            if not self._is_under_way(wanted.first - 1):
                self._tell(wanted, b"", wanted.first)
            return
        self._wanted.append(wanted)
        self._go_on()

    def _is_under_way(self, index: int) -> bool:
        """A probe that asks whether this entry has come would overtake it, here or on the link. The
        other one would say that it lacks it, and be sent again all that it is about to get.

        Little is not worth the wait: a probe is how a loss is noticed.
        """
        self._is_full()  # what was lost is under way no more
        first = [each.first for each in self._wanted]
        if self._under_way_bytes > CHEAP_BYTES:
            first += [last for last, *_ in self._under_way]
        return bool(first) and index >= min(first)

    def heard(self, message: GroupMessage) -> None:
        if isinstance(message, Accepted):
            while self._under_way and self._under_way[0][0] <= message.stored:
                _last, size, since_us, traced = self._under_way.popleft()
                self._under_way_bytes -= size
                self._stored_after(self._now_us() - since_us)
                if traced is not None:
                    traced()
            self._go_on()
        elif isinstance(message, Rejected):  # Raft begins again elsewhere
            self._wanted.clear()
            self._under_way.clear()
            self._under_way_bytes = 0

    def close(self) -> None:
        """This node leads no more: what is being read for the other one is not sent."""
        self._wanted.clear()

    def _go_on(self) -> None:
        while self._wanted and not self._is_reading and not self._is_full():
            wanted = self._wanted[0]
            try:
                found = self._log.read_raw(
                    self._group, wanted.first, end_index=wanted.last + 1, bytes_max=MESSAGE_BYTES,
                    done=self._read,
                )  # fmt: skip
            except HocketError as error:
                self._wanted.clear()
                self._lost(error)
                return
            if found is None:
                self._is_reading = True
            else:
                self._send_some(found)

    def _is_full(self) -> bool:
        oldest_us = self._now_us() - FORGET_US
        while self._under_way and self._under_way[0][2] < oldest_us:
            self._under_way_bytes -= self._under_way.popleft()[1]
        return self._under_way_bytes >= UNDER_WAY_BYTES_MAX

    def _read(self, found: RawEntries | HocketError) -> None:
        self._is_reading = False
        if not self._wanted:  # Raft has begun again meanwhile
            return
        if isinstance(found, HocketError):
            self._wanted.clear()
            self._lost(found)
        elif found.first_index == self._wanted[0].first:
            self._send_some(found)
            self._go_on()
        else:
            self._go_on()

    def _send_some(self, found: RawEntries) -> None:
        wanted = self._wanted.popleft()
        # A slice of the log's memory, whose bytes never change, is sent as it is.
        data: bytes | memoryview
        data = found.slices[0] if len(found.slices) == 1 else b"".join(found.slices)
        self._tell(wanted, data, found.end_index)
        traced = self._trace(self._group, self._peer, data)
        self._under_way.append((found.end_index - 1, len(data), self._now_us(), traced))
        self._under_way_bytes += len(data)
        if found.end_index <= wanted.last:
            last = entries_in(data)[-1].header
            rest = replace(wanted, first=found.end_index, previous_term=last.term)
            self._wanted.appendleft(rest)

    def _tell(self, wanted: SendEntries, data: bytes | memoryview, end: int) -> None:
        previous = wanted.first - 1
        message = Entries(wanted.term, previous, wanted.previous_term, (), wanted.commit)
        self._post(self._peer, Letter(self._group, message, data, wanted.first, max(end, 1)))
