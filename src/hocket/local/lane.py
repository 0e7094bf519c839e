"""One direction of a message queue: a bounded FIFO of messages, whatever is at its two ends.

Rule 1: a message whose `offer` returned True is taken by the other side or listed by `seize`.
Rule 2: a message whose `offer` returned False or None is neither.
Rule 3: small messages flow without a lock. Only large ones (more than an equal share of the byte
        limit), messages in a lane that holds a large one, and endings take it. Small messages
        alone cannot exceed the byte limit, because the count limit is reached first, so their
        bytes need not be counted one by one.

The put side offers messages and waits in `room`; the take side pops from `messages` and waits in
`takers`. A taker looks at `drained` right before it pops: no call lies between the two, so the GIL
cannot change hands there, and nothing is taken from a lane that was finished or seized. A closed
lane is `drained` once its last message was taken; only then does the taker learn of the close.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from itertools import repeat
from operator import methodcaller
from threading import RLock
from typing import Any

from hocket.errors import WrongType
from hocket.local.checks import as_bytes_view
from hocket.local.event_queue import remove_identical
from hocket.local.waiting import Waiters, Wake

Message = Any  # bytes-like; any object that gives its memory as a buffer

MESSAGES_MAX = 1024
BYTES_MAX = 64 << 20

_pop_oldest = methodcaller("popleft")

# Reentrant: a finalizer or a signal handler may end another one while we hold it.
_rare = RLock()  # one for all lanes: endings, and messages so large that a lock does not show


class Lane:
    """Messages from one end of a connection to the other, bounded by their count and bytes."""

    __slots__ = (
        "bytes_max",
        "closing",
        "drained",
        "large_bytes",
        "large_count",
        "large_from",
        "large_sizes",
        "messages",
        "messages_max",
        "refused",
        "room",
        "takers",
    )

    def __init__(self, messages_max: int = MESSAGES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.messages: deque[Message] = deque()
        self.messages_max = messages_max
        self.bytes_max = bytes_max
        self.large_from = bytes_max // messages_max + 1
        self.large_bytes = 0  # the size of all large messages in the lane
        self.large_count = 0
        # Sizes by the identity of the message, as offered: a memoryview may be released meanwhile.
        self.large_sizes: dict[int, list[int]] | None = None
        self.closing = False  # nothing more will be offered
        self.drained = False  # closing, and everything offered has been taken or seized
        self.takers = Waiters()
        self.room = Waiters()  # threads and coroutines that wait to offer; one is woken per take
        self.refused: Waiters | None = (
            None  # to be told of room by an event; made for the first refusal
        )

    def offer(self, message: Message) -> bool | None:
        """True: taken. None: no room now. False: the lane is closed. Never waits."""
        size = len(message) if type(message) is bytes else size_of(message)
        messages = self.messages
        full = len(messages) >= self.messages_max
        if self.closing:  # no call lies between this look and the append
            return False
        if full:
            return None
        if size < self.large_from and not self.large_count:
            messages.append(message)
        elif not self._append_if_bytes_allow(message, size):
            return False if self.closing else None
        if self.closing and not self._settle(message):
            return False
        if self.takers:
            self.takers.wake_one()
        return True

    def fits(self, message: Message) -> bool:
        """Whether `offer` would find room now."""
        size = size_of(message)
        if len(self.messages) >= self.messages_max:
            return False
        if size < self.large_from and not self.large_count:
            return True
        with _rare:
            return self._bytes_allow(size)

    def take_if_first(self, message: Message) -> bool:
        """Take `message` if it is still the next one; False if others were quicker, or it ended."""
        messages = self.messages
        popleft = messages.popleft
        if self.drained or not messages or messages[0] is not message:
            return False
        popleft()  # no call lies between the looks and this one
        return True

    def taken(self, message: Message) -> None:
        """Tell those who wait for room; to be called after each message that was taken."""
        if self.large_count:
            self._discount(message)
        self.room.wake_one()
        if self.refused and self.has_room():
            self.refused.wake_all()

    def leave_word(self, message: Message, wake: Wake) -> None:
        """`message` was refused: have `wake` called once there is room to speak of."""
        if self.refused is None:
            self.refused = Waiters()
        if wake not in self.refused:
            self.refused.append(wake)
        if self.fits(message):  # there is by now
            self.refused.wake_all()

    def has_room(self) -> bool:
        """Whether half of the lane is free: room enough to be worth an event."""
        return len(self.messages) <= self.messages_max // 2 and (
            self.large_bytes <= self.bytes_max // 2
        )

    def close(self) -> None:
        """The put side has finished; what is in the lane can still be taken."""
        self.closing = True
        self.takers.wake_all()
        self.room.wake_all()

    def finish(self) -> bool:
        """Declare a closing lane drained, if it is empty."""
        with _rare:
            finished_now = self.closing and not self.messages and not self.drained
            self.drained = self.drained or finished_now
        if finished_now:
            self.takers.wake_all()
        return self.drained

    def seize(self) -> list[Message]:
        """End the lane by force and return what nobody had taken."""
        seized: list[Message] = []
        with _rare:
            self.closing = self.drained = True
            with suppress(IndexError):
                # All of them in one call that never lets the GIL go, so that a taker at the same
                # time has the older ones and we have the rest; a loop would interleave with it.
                seized.extend(map(_pop_oldest, repeat(self.messages)))
            self.large_bytes = self.large_count = 0
            self.large_sizes = None
        self.takers.wake_all()
        self.room.wake_all()
        return seized

    def _settle(self, message: Message) -> bool:
        """The lane was closed during an `offer`: whether the message counts as offered."""
        with _rare:
            # A message that is not there any more was taken or seized, so it counts.
            return not self.drained or not remove_identical(self.messages, message)

    def _append_if_bytes_allow(self, message: Message, size: int) -> bool:
        with _rare:
            if self.closing or not self._bytes_allow(size):
                return False
            if size >= self.large_from:
                if self.large_sizes is None:
                    self.large_sizes = {}
                self.large_sizes.setdefault(id(message), []).append(size)
                self.large_count += 1
                self.large_bytes += size
            self.messages.append(message)
            return True

    def _bytes_allow(self, size: int) -> bool:
        """Whether `size` more bytes fit: exact, but counted only where a bound will not do.

        `_rare` is held.
        """
        small_count = len(self.messages) - self.large_count
        at_most = self.large_bytes + small_count * self.large_from + size
        if at_most <= self.bytes_max or not self.messages:
            return True
        small = (message for message in list(self.messages) if not self._is_large(message))
        return self.large_bytes + sum(map(size_if_known, small)) + size <= self.bytes_max

    def _is_large(self, message: Message) -> bool:
        return self.large_sizes is not None and id(message) in self.large_sizes

    def _discount(self, message: Message) -> None:
        with _rare:
            if self.large_sizes is not None and id(message) in self.large_sizes:
                sizes = self.large_sizes[id(message)]  # several, if it was sent several times
                self.large_bytes -= sizes.pop()
                self.large_count -= 1
                if not sizes:
                    del self.large_sizes[id(message)]


def size_of(message: Message) -> int:
    return as_bytes_view(message).nbytes


def size_if_known(message: Message) -> int:
    """0 for a message whose sender released its memory after sending it."""
    try:
        return size_of(message)
    except WrongType:
        return 0
