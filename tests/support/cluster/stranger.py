"""Somebody who speaks as a node to a real node, of groups that it is no member of.

On loopback without TLS a process of the same user is believed to be the store that it says it is;
so nothing but the group itself stands between what it says and the log.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable

from crc32c import crc32c

from hocket.addresses import parse_port, split_address
from hocket.core.raft import messages as raft
from hocket.core.raft.membership import Configuration
from hocket.core.relay.messages import Piece
from hocket.core.ring.circle import candidates
from hocket.log.model import LogEnd
from hocket.model import EntryKind
from hocket.node import raft_mail as mails
from hocket.node.messages import CODEC
from hocket.node.raft_mail import Letter, RaftMail, ReplicationMessage, State
from hocket.node_frames import HelloAccepted, HelloRefused, NodeHello
from hocket.wire.entry import pack_header
from hocket.wire.node_connection import NodeConnection

STORE = "5" * 32
HIGH = 1_000_000  # a term beyond all that there are
SECONDS = 10.0


def mail(letter: Letter) -> RaftMail:
    pieces = (Piece(letter.first, letter.end, letter.data),) if letter.data else ()
    return RaftMail(mails.row_of(letter), pieces)


def entry(index: int, term: int, body: bytes = b"") -> bytes:
    header = pack_header(
        length=len(body), kind=EntryKind.NOOP, term=term, index=index, body_crc=crc32c(body)
    )
    return header + body + bytes(-len(body) % 8)


def entries(group: int, data: bytes, term: int = HIGH) -> RaftMail:
    return mail(Letter(group, raft.Entries(term, 2, 1, (), 3), data, 3, 4))


def snapshot(group: int) -> RaftMail:
    end = LogEnd(100, 50, 7, HIGH)
    members = Configuration((STORE,))
    data = mails.packed_state(State(end, end, 0, b"no state"), members)
    return mail(Letter(group, raft.Snapshot(HIGH, 99, HIGH, members), data, 0, 1))


def nonsense(group: int) -> list[ReplicationMessage]:
    """Votes, entries, a state and beats of a high term; and what is not whole."""
    letters = [
        raft.AskVote(HIGH, 99, HIGH, False, True),
        raft.VoteIs(HIGH, HIGH, True, False),
        raft.Accepted(HIGH, 99, 99),
        raft.CampaignNow(HIGH),
        raft.Outdated(HIGH),
    ]
    return [
        *(mail(Letter(group, each)) for each in letters),
        entries(group, entry(3, HIGH)),
        snapshot(group),
        mails.packed_beat(raft.Beat(1, 1, [(group, HIGH, 99)], [])),
        mails.packed_beat(raft.Beat(1, 2, [], [(group, HIGH, 99)])),
        entries(group, entry(3, HIGH, b"12345678")[:-1] + b"?"),
        RaftMail(b"\x63" + bytes(55)),
    ]


class Stranger:
    """A link to the node at this address, for a `with` block."""

    def __init__(self, address: str, cluster: str) -> None:
        host, port = split_address(address)
        self._socket = socket.create_connection((host, parse_port(port or "", least=1)), SECONDS)
        self._wire = NodeConnection("dialler", CODEC)
        self._send(
            NodeHello(
                cluster=cluster, node=STORE, name="stranger", address="127.0.0.1:1", boot=1,
                position=candidates(STORE.encode())[0],
            )
        )  # fmt: skip
        found = []
        while not found:
            found = self._wire.received(self._socket.recv(1 << 16))
        self.answer: HelloAccepted | HelloRefused = found[0].message

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def say(self, messages: Iterable[ReplicationMessage]) -> None:
        for each in messages:
            self._send(each)

    def _send(self, message: object) -> None:
        self._socket.sendall(b"".join(bytes(each) for each in self._wire.send(message)))
