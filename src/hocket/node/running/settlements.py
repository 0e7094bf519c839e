"""Settlements on their way to the disk.

A settlement is answered when every partition that it concerns has it durably.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from hocket import frames
from hocket.core.session.failures import failure
from hocket.core.sharing import events as core
from hocket.errors import HocketError
from hocket.frames import packed
from hocket.node.running.sessions import Address
from hocket.node.running.shared_index import SharedIndex
from hocket.ports import Network

Range = tuple[int, int, int]  # partition, start, end


@dataclass(slots=True)
class Settlement:
    shared: SharedIndex
    address: Address
    request: int
    refused: list[Range]
    entries_left: int = 0  # how many entries of the log are not durable yet


class Settlements:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._waiting: dict[int, Settlement] = {}  # by token
        self._last_token = 0

    def next_token(self) -> int:
        self._last_token += 1
        return self._last_token

    def begin(
        self, shared: SharedIndex, address: Address, request: int, refused: list[Range]
    ) -> int:
        """The token of a new settlement, of which these ranges are refused already."""
        token = self.next_token()
        self._waiting[token] = Settlement(shared, address, request, refused)
        return token

    def decided(self, effect: core.Answer) -> None:
        """The core says what it refuses, and how many entries the answer has to wait for."""
        waiting = self._waiting[effect.token]
        waiting.refused += effect.refused
        waiting.entries_left += effect.waits_for
        self._answer_if_done(effect.token, waiting)

    def durable(self, token: int) -> None:
        """One more entry of this settlement is durable; nothing if the token is of none."""
        waiting = self._waiting.get(token)
        if waiting is not None:
            waiting.entries_left -= 1
            self._answer_if_done(token, waiting)

    def refuse_all(self, shared: SharedIndex, code: str, message: str) -> None:
        """The index is gone: what its settlements wait for will not become durable."""
        for token, waiting in list(self._waiting.items()):
            if waiting.shared is shared:
                del self._waiting[token]
                failure = frames.Failure(waiting.request, code, message)
                self._network.send(waiting.address[0], failure)

    def refuse(self, address: Address, error: HocketError) -> None:
        """The consumer's handle has ended: what its settlements wait for, nobody knows here."""
        for token, waiting in list(self._waiting.items()):
            if waiting.address == address:
                del self._waiting[token]
                self._network.send(address[0], failure(waiting.request, error))

    def forget(self, shared: SharedIndex, alive: Container[Address]) -> None:
        """Another node leads a partition of the index: consumers that have gone are not answered.

        What their settlements wait for may never become durable here.
        """
        for token, waiting in list(self._waiting.items()):
            if waiting.shared is shared and waiting.address not in alive:
                del self._waiting[token]

    def _answer_if_done(self, token: int, waiting: Settlement) -> None:
        if not waiting.entries_left:
            del self._waiting[token]
            refused = packed(n for each in waiting.refused for n in each)
            self._network.send(waiting.address[0], frames.Settled(waiting.request, refused))
