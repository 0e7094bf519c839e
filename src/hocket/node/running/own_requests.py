"""A node may ask itself: its own requests have a connection number that no client has.

An answer to that number goes to the part of the node that asked. So topics are made and batches are
stored for the node by the very code that does it for clients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING

from hocket.frames import Frame
from hocket.ports import Network

if TYPE_CHECKING:
    from typing_extensions import Buffer

NODE = 0  # connections of clients are counted from 1


class NetworkWithin:
    """The node's network, and the short way back to the node itself."""

    def __init__(self, outside: Network) -> None:
        self._outside = outside
        self.numbers = count(1)  # of the node's own requests, whoever asks
        self._answered: list[Callable[[Frame], None]] = []

    def answer_to(self, *answered: Callable[[Frame], None]) -> None:
        """Hand the answers to the node's own requests to all of these from now on.

        Each knows its own by their numbers, and leaves the others alone.
        """
        self._answered += answered

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        if connection != NODE:
            self._outside.send(connection, frame, payload)
        else:
            assert self._answered, "the node has asked itself before `answer_to`"
            for answered in self._answered:
                answered(frame)

    def close(self, connection: int) -> None:
        self._outside.close(connection)

    def pause(self) -> None:
        self._outside.pause()

    def resume(self) -> None:
        self._outside.resume()
