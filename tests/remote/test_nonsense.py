"""A peer that speaks nonsense: it is hung up on with a clear error, and nobody else feels it.

An owner is spoken to by anybody who can reach its address; a caller by whoever listens where the
owner said; and either by the other in a connection that is open.
"""

from __future__ import annotations

import json
import logging
import random
import socket
import threading

import pytest

from hocket import tickets
from hocket.errors import Aborted, Disconnected, HocketError, PortNotBound
from hocket.local import Broker, EventPump, QueueBroker
from hocket.local.channel import inbound_of
from hocket.remote import peer_frames
from hocket.remote.channel_end import PIECE_BYTES
from hocket.remote.dialling import pinned_context
from hocket.remote.peer_frames import DATA, HEADER, MESSAGE_BYTES_MAX, Kind, opening
from tests.remote.test_cuts import Cut, account
from tests.support.remote.proxy import Proxy
from tests.support.remote.served import ServedNode
from tests.support.remote.talker import PORT, Meeting
from tests.support.threads import LONG, Running, until

SEEDS = 200 if LONG else 20
DEEP = b'{"a":' * 1600  # nested deeper than Python reads, and within the limit of a frame
NONCE = bytes(tickets.NONCE_BYTES).hex()


def frame(kind, body):
    return HEADER.pack(kind, len(body)) + body


def call(**fields):
    known = {"to": "owner", "from": "me", "kind": "full-event", "calls": PORT, "port": 1}
    known |= {"messages_max": 1, "bytes_max": 1, "ticket": "", "nonce": NONCE, "proof": ""}
    return opening(Kind.CALL, **(known | fields))


TICKET = json.dumps({"name": "owner", "user": "me", "until": 1 << 60}).encode()
TO_AN_OWNER = {
    "an unknown kind": frame(77, b"{}"),
    "a frame that is too long": HEADER.pack(Kind.CALL, 1 << 31),
    "data before the opening": frame(DATA, b"x"),
    "the other side's word": opening(Kind.ACCEPT, proof=""),
    "no JSON": frame(Kind.CALL, b"\xff{"),
    "no object": frame(Kind.CALL, b"[1, 2]"),
    "nested deeply": frame(Kind.CALL, DEEP),
    "nothing": call(to=None),
    "another type": call(nonce=5),
    "no hexadecimal": call(nonce="xyz"),
    "a name of nobody": call(to="nobody"),
    "a name that is no text": call(to="\ud800"),
    "no ticket": call(),
    "a ticket nested deeply": call(ticket=(b"[" * 3900).hex()),
    "a ticket that it made itself": call(ticket=TICKET.hex(), proof="00" * 32),
}


class Owned:
    """An owner and a caller that talk, while somebody else speaks nonsense to the owner."""

    def __init__(self, node, pump):
        self.owning, self.calling = node.manager(), node.manager()
        self.owner = QueueBroker("owner", pump, self.owning)
        self.caller = QueueBroker("caller", pump, self.calling)
        self.accepts = Meeting()
        self.owner.bind(PORT, self.accepts)
        self.queue = self.connect().queue

    def connect(self):
        meeting = Meeting()
        self.caller.connect("owner", PORT, meeting)
        assert meeting.met.wait(30)
        return meeting

    def talk(self):
        self.queue.send_wait(b"there", timeout=30)
        assert self.accepts.queue.receive_wait(timeout=30) == b"there"

    def close(self):
        for each in (self.calling, self.owning):
            each.close()


def said_to(address, data, *, tls):
    """Connects to `address`, says this, and returns what is answered until it is hung up on."""
    host, _, port = address.rpartition(":")
    plain = socket.create_connection((host, int(port)), timeout=20)
    with pinned_context().wrap_socket(plain) if tls else plain as sock:
        heard = b""
        try:
            sock.sendall(data)
            if not tls:
                sock.shutdown(socket.SHUT_WR)
            while piece := sock.recv(4096):
                heard += piece
        except OSError:
            pass  # hung up on with bytes that nobody read
        return heard


def nothing_failed_that_must_not(caplog):
    assert [each for each in caplog.records if each.levelno >= logging.ERROR] == []


@pytest.mark.parametrize("way", ["direct", "tls"])
def test_whoever_speaks_nonsense_to_an_owner_is_hung_up_on_and_nobody_else_feels_it(
    way, certificates, caplog
):
    known = certificates if way == "tls" else None
    with ServedNode(way, known) as node, EventPump() as pump:
        world = Owned(node, pump)
        try:
            address = world.owning.address
            for said, data in TO_AN_OWNER.items():
                heard = said_to(address, data, tls=known is not None)
                assert heard[0] == Kind.GREETING, said
                world.talk()
            for seed in range(SEEDS):
                rng = random.Random(seed)
                noise = rng.randbytes(rng.randrange(1, 300))
                # To TLS, too, it is nonsense when it is not even TLS.
                said_to(address, noise, tls=known is not None and bool(seed % 2))
            world.talk()
            assert world.connect().queue is not None
            until(lambda: len(world.owning._connections) == 2)
        finally:
            world.close()
    nothing_failed_that_must_not(caplog)


class FalseOwner:
    """Listens where an owner said, and says something else."""

    def __init__(self, answers):
        """`answers(proof, nonce)`: what is said to a CALL."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._answers = answers
        self.called = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                self.called += 1
                sock.settimeout(20)
                sock.sendall(opening(Kind.GREETING, version=1, nonce=NONCE))
                with sock.makefile("rb") as stream:
                    _, length = HEADER.unpack(stream.read(HEADER.size))
                    fields = json.loads(stream.read(length))
                    sock.sendall(self._answers(fields))
                    stream.read()  # until the caller hangs up

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._listener.close()


def proven(fields, key, **said):
    ticket = bytes.fromhex(fields["ticket"])
    _, secret = tickets.read(key(), "owner", ticket, 0)
    proof = tickets.proof(secret, "owner", bytes.fromhex(NONCE), bytes.fromhex(fields["nonce"]))
    known = {"from": "owner", "port": 1, "messages_max": 1, "bytes_max": 1}
    return opening(Kind.ACCEPT, **(known | {"proof": proof.hex()} | said))


FROM_AN_OWNER = {
    "noise": lambda _fields, _key: b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "nested deeply": lambda _fields, _key: frame(Kind.ACCEPT, DEEP),
    "a call": lambda _fields, _key: call(),
    "another greeting": lambda _fields, _key: opening(Kind.GREETING, version=1, nonce=NONCE),
    "a false proof": lambda fields, _key: proven(fields, lambda: b"another key"),
    "no port": lambda fields, key: proven(fields, key, port=None),
    "no room": lambda fields, key: proven(fields, key, messages_max=0),
    "no name": lambda fields, key: proven(fields, key, **{"from": 7}),
}


@pytest.mark.parametrize("said", FROM_AN_OWNER)
def test_who_is_answered_with_nonsense_goes_through_the_node_to_the_owner_itself(said, caplog):
    leases = {}
    answers = FROM_AN_OWNER[said]
    false = FalseOwner(lambda fields: answers(fields, lambda: leases["owner"].key))
    with ServedNode() as node, EventPump() as pump:
        owning = node.manager(listen="127.0.0.1:0", advertise=f"127.0.0.1:{false.port}")
        calling = node.manager()
        leases = owning._leases
        try:
            owner, accepts = QueueBroker("owner", pump, owning), Meeting()
            owner.bind(PORT, accepts)
            caller, connects = QueueBroker("caller", pump, calling), Meeting()
            caller.connect("owner", PORT, connects)
            assert connects.met.wait(30)
            assert connects.reason is None
            assert connects.queue.way == "node"
            assert false.called
        finally:
            calling.close()
            owning.close()
            false.close()
    nothing_failed_that_must_not(caplog)


@pytest.mark.parametrize("error", ["PortNotBound", "Undecodable", "SystemExit", "", "no such"])
def test_a_refusal_is_an_answer_whatever_error_it_names(error, caplog):
    false = FalseOwner(lambda _fields: opening(Kind.REFUSE, error=error, text="not for you"))
    with ServedNode() as node, EventPump() as pump:
        owning = node.manager(listen="127.0.0.1:0", advertise=f"127.0.0.1:{false.port}")
        calling = node.manager()
        try:
            QueueBroker("owner", pump, owning)
            caller, connects = QueueBroker("caller", pump, calling), Meeting()
            caller.connect("owner", PORT, connects)
            assert connects.met.wait(30)
            assert type(connects.reason) is (
                PortNotBound if error == "PortNotBound" else HocketError
            )
            assert str(connects.reason) == "not for you"
        finally:
            calling.close()
            owning.close()
            false.close()
    nothing_failed_that_must_not(caplog)


IN_THE_MIDDLE = {
    "an unknown kind": frame(77, b""),
    "an opening": opening(Kind.GREETING, version=1, nonce=NONCE),
    "a message beyond the limit": HEADER.pack(DATA, MESSAGE_BYTES_MAX + 1),
    "more is taken than was sent": peer_frames.taken(1 << 40),
    "a count without its bytes": frame(Kind.TAKEN, b"\1\2"),
    "drained before a close": peer_frames.bare(Kind.DRAINED),
    "an answer to no abort": peer_frames.aborted(0),
    "a close, and another one": 2 * peer_frames.bare(Kind.CLOSE),
    "data behind a close": peer_frames.bare(Kind.CLOSE) + frame(DATA, b"x"),
    "a long word": HEADER.pack(Kind.ABORT, 1 << 20),
    "more messages than fit": 4000 * frame(DATA, b""),
}


@pytest.mark.parametrize("waits", [True, False], ids=["a thread reads", "the loop reads"])
@pytest.mark.parametrize("said", IN_THE_MIDDLE)
def test_nonsense_in_an_open_queue_aborts_it_and_each_side_lists_what_was_not_taken(
    said, waits, caplog
):
    with ServedNode() as node, Proxy() as proxy, EventPump() as pump:
        world = Cut(node, proxy, pump)
        try:
            caller, owner = sides = world.meet()
            for each in sides:
                for number in range(3):
                    assert each.queue.send(b"%d" % number)
                    each.accepted.append(number)
            until(lambda: all(len(each.queue._inbound.messages) == 3 for each in sides))
            if waits:  # and so reads itself; it takes all, and waits for another one
                for each in sides:
                    each.taken = [int(each.queue.receive_wait(timeout=30)) for _ in range(3)]
                reading = threading.Thread(target=_until_it_ends, args=(owner.queue,))
                reading.start()
            proxy.inject(IN_THE_MIDDLE[said], to_caller=False)
            if waits:
                reading.join(30)
                assert not reading.is_alive()
            for each in sides:
                until(lambda each=each: each.queue.closed)
            owner.reason = until(lambda: owner.queue._reason)
            assert isinstance(owner.reason, Aborted)
            assert "nonsense" in str(owner.reason)
            # What looks right up to its last byte brings messages of nobody, or a close that the
            # owner may have answered as one, so that the caller has seen a graceful end.
            if "close" not in said and "fit" not in said:
                caller.reason = until(lambda: caller.queue._reason)
                account(owner, caller)
                account(caller, owner)
        finally:
            world.close()
    nothing_failed_that_must_not(caplog)


@pytest.mark.parametrize("size", [6_000, 20_000], ids=["whole", "in pieces"])
def test_more_bytes_than_a_queue_has_room_for_end_it(size, caplog):
    with ServedNode() as node, Proxy() as proxy, EventPump() as pump:
        world = Cut(node, proxy, pump, bytes_max=30_000)
        try:
            _caller, owner = world.meet()
            proxy.inject(30 * frame(DATA, bytes(size)), to_caller=False)
            until(lambda: owner.queue.closed)
            assert "were allowed" in str(owner.queue._reason)
            assert sum(map(len, owner.queue._reason.unread)) <= 60_000 + size
        finally:
            world.close()
    nothing_failed_that_must_not(caplog)


def _until_it_ends(queue):
    try:
        while True:
            queue.receive_wait(timeout=30)
    except HocketError:
        pass


CHANNEL_NONSENSE = {
    "an unknown kind": frame(77, b""),
    "a piece beyond the limit": HEADER.pack(DATA, PIECE_BYTES + 1),
    "more than there is room for": 3 * frame(DATA, bytes(5000)),
    "more is taken than was sent": peer_frames.taken(1 << 40),
    "a word of queues": peer_frames.bare(Kind.DRAINED),
}


@pytest.mark.parametrize("said", CHANNEL_NONSENSE)
def test_nonsense_in_an_open_channel_disconnects_it_and_what_came_before_can_be_read(said, caplog):
    with (
        ServedNode() as node,
        Proxy() as proxy,
        node.manager(listen="127.0.0.1:0", advertise=f"127.0.0.1:{proxy.port}") as owning,
        node.manager() as calling,
        Broker("owner", owning, buffer_bytes=10_000) as owner,
        Broker("caller", calling) as caller,
    ):
        proxy.towards(owning._listener.getsockname()[1])
        with Running(owner.accept, PORT, 30) as accepting:
            mine = caller.connect("owner", PORT, timeout=30)
            theirs = accepting.result()
        with mine, theirs:
            mine.write_all(b"before", timeout=30)
            until(lambda: len(inbound_of(theirs)) == 6)
            proxy.inject(CHANNEL_NONSENSE[said], to_caller=False)
            assert theirs.read_exactly(6, timeout=30) == b"before"
            with pytest.raises(Disconnected, match="nonsense"):
                theirs.read_exactly(20_000, timeout=30)
            with pytest.raises(Disconnected):
                mine.read_exactly(1, timeout=30)
    nothing_failed_that_must_not(caplog)
