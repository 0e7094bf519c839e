"""A node may ask itself: its own requests have connection numbers that no client has.

An answer to such a number goes to the part of the node that asked. So topics are made and batches
are stored for the node by the very code that does it for clients; and what other nodes hand on is
carried out by that code, too.
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
HANDED_ON = -1  # the requests of other nodes
OF_NODES = -4  # batches that other nodes store here
NAMING = -5  # names that this node frees; nobody waits for the answers
OPERATOR = -2  # whoever has started the broker; no answer goes there


class NetworkWithin:
    """The node's network, and the short way back to the node itself."""

    def __init__(self, outside: Network) -> None:
        self._outside = outside
        self.numbers = count(1)  # of the node's own requests, whoever asks
        self._answered: dict[int, list[Callable[[Frame], None]]] = {OPERATOR: []}

    def answer_to(self, *answered: Callable[[Frame], None], connection: int = NODE) -> None:
        """Hand the answers to the node's own requests to all of these from now on.

        Each knows its own by their numbers, and leaves the others alone.
        """
        self._answered.setdefault(connection, []).extend(answered)

    def send(self, connection: int, frame: Frame, payload: Sequence[Buffer] = ()) -> None:
        if connection > NODE:
            self._outside.send(connection, frame, payload)
        else:
            for answered in self._answered[connection]:
                answered(frame)

    def close(self, connection: int) -> None:
        self._outside.close(connection)

    def pause(self) -> None:
        self._outside.pause()

    def resume(self) -> None:
        self._outside.resume()
