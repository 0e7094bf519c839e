"""The messages of one end of a queue on their way to another process, until they are taken there.

A message is among `messages` until it is written, and then `in_flight`; whoever writes moves it
(`queue_carrier`). The limits are those that the other process has told.
"""

from __future__ import annotations

from collections import deque

from hocket.errors import MessageTooLarge
from hocket.local.lane import Lane, Message, _rare, size_if_known, size_of
from hocket.remote.connection import CORKED_MESSAGES_MAX, Connection
from hocket.remote.peer_frames import MESSAGE_BYTES_MAX


class OutboundLane(Lane):
    """Messages on their way to another process, until they are taken there."""

    __slots__ = ("connection", "in_flight")
    connection: Connection

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        super().__init__(messages_max, bytes_max)
        self.in_flight: deque[Message] = deque()

    def offer(self, message: Message) -> bool | None:
        size = len(message) if type(message) is bytes else size_of(message)
        messages = self.messages
        full = (
            len(messages) + len(self.in_flight) >= self.messages_max
            and self._held() >= self.messages_max
        )
        if self.closing:  # no call lies between this look and the append
            return False
        if full:
            return None
        if size < self.large_from and not self.large_count:
            messages.append(message)
        else:
            if size > MESSAGE_BYTES_MAX:
                raise MessageTooLarge(
                    f"a message to another process has at most {MESSAGE_BYTES_MAX} bytes, "
                    f"not {size}"
                )
            if not self._append_if_bytes_allow(message, size):
                return False if self.closing else None
        if self.closing and not self._settle(message):
            return False
        connection = self.connection
        if not connection.corked:
            connection.push()
        elif len(messages) >= CORKED_MESSAGES_MAX:
            connection.flush()
        return True

    def fits(self, message: Message) -> bool:
        size = size_of(message)
        if self._held() >= self.messages_max:
            return False
        if size < self.large_from and not self.large_count:
            return True
        with _rare:
            return self._bytes_allow(size)

    def has_room(self) -> bool:
        return self._held() <= self.messages_max // 2 and self.large_bytes <= self.bytes_max // 2

    def _held(self) -> int:
        """How many are on their way. Another thread may move some between our two looks: those
        would count twice, or not at all."""
        in_flight, messages = self.in_flight, self.messages
        while True:
            flying = len(in_flight)
            held = flying + len(messages)
            if len(in_flight) == flying:
                return held

    def _bytes_allow(self, size: int) -> bool:
        count = self._held()
        at_most = self.large_bytes + (count - self.large_count) * self.large_from + size
        if at_most <= self.bytes_max or not count:
            return True
        held = [*self.in_flight, *self.messages]
        small = (message for message in held if not self._is_large(message))
        return self.large_bytes + sum(map(size_if_known, small)) + size <= self.bytes_max
