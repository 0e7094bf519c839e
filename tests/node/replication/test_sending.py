"""The entries of one group on their way to one other node: `node.replication.sending`."""

from __future__ import annotations

from typing import Any

from hocket.core.raft.events import SendEntries
from hocket.core.raft.messages import Accepted
from hocket.log.model import RawEntries
from hocket.node.raft_mail import Letter
from hocket.node.replication.sending import FORGET_US, MESSAGE_BYTES, Outbound


class Log:
    """Each entry has as many bytes as a message may have."""

    def read_raw(self, _group: int, first: int, **_: Any) -> RawEntries:
        return RawEntries([memoryview(bytes(MESSAGE_BYTES))], first, first + 1, 1, 0, MESSAGE_BYTES)


class Peer:
    def __init__(self) -> None:
        self.now_us = 0
        self.letters: list[Letter] = []
        self.outbound = Outbound(
            1, "b", Log(), lambda _to, letter: self.letters.append(letter),  # type: ignore[arg-type]
            lost=lambda error: None, now_us=lambda: self.now_us,
            stored_after=lambda _us: None, trace=lambda *_: None,
        )  # fmt: skip

    def want(self, first: int, last: int) -> None:
        self.outbound.send(SendEntries("b", first, last, 1, 1, 0))

    def probes(self) -> int:
        return sum(not letter.data for letter in self.letters)


def test_a_probe_does_not_overtake_what_is_under_way():
    peer = Peer()
    for index in range(1, 13):  # more than may be under way
        peer.want(index, index)
    assert len(peer.letters) == 8
    peer.want(13, 12)
    assert peer.probes() == 0, "the answer would be that entry 12 is not there"
    peer.outbound.heard(Accepted(1, 8, 8))
    assert len(peer.letters) == 12
    peer.want(13, 12)
    assert peer.probes() == 0
    peer.outbound.heard(Accepted(1, 12, 12))
    peer.want(13, 12)
    assert peer.probes() == 1


def test_what_was_lost_is_asked_for():
    peer = Peer()
    peer.want(1, 1)
    peer.now_us = FORGET_US + 1
    peer.want(2, 1)
    assert peer.probes() == 1


def test_a_probe_of_what_came_before_is_sent_at_once():
    peer = Peer()
    for index in range(5, 8):
        peer.want(index, index)
    peer.want(4, 3)  # the link was lost: Raft begins again behind what is durable there
    assert peer.probes() == 1
