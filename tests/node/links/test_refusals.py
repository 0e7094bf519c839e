"""Who is not let in as a node: refused by the one that accepts and by the one that dials, said on
both sides, and written into the audit log of the one that refuses."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from hocket.adapters import node_certificate
from hocket.adapters.node_certificate import mark_of
from hocket.cli.authority import CLIENT, NODE, SERVER, Authority, Pair
from hocket.core.ring.messages import GetCloser
from hocket.node.identity.refusals import COUNTED_MAX, LINES_MAX, SHOWN_MAX, Refusals
from hocket.node.links import outgoing
from hocket.node.messages import CODEC
from hocket.node_frames import NodeHello
from hocket.wire.node_connection import NodeConnection
from tests.support.certificates import LONG_AGO
from tests.support.node.links import End, Shown, World

A, B = "a" * 32, "b" * 32
MESSAGE = GetCloser(1, 7, 4)
Make = Callable[["Certificates"], Shown | None]


class Certificates:
    """Of one cluster, and some that are none of its nodes'."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = Authority.create("the cluster's")
        self._authority.save(Pair.named(directory, "ca"))
        self._other = Authority.create("another")
        self._made: dict[str, Shown] = {}

    def shown(self, name: str, issue: Callable[[Pair], None]) -> Shown:
        if name not in self._made:
            files = Pair.named(self._directory, name)
            issue(files)
            self._made[name] = Shown(files, Pair.named(self._directory, "ca").certificate)
        return self._made[name]

    def node(self, store: str) -> Shown:
        return self.shown(store, lambda files: self._authority.issue_node(files, store, ()))

    def client(self) -> Shown:
        return self.shown("client", lambda files: self._authority.issue(files, "alice", CLIENT))

    def broker(self) -> Shown:
        return self.shown("broker", lambda files: self._authority.issue(files, "broker", SERVER))

    def unmarked(self) -> Shown:
        """For both directions, so that TLS takes it; and yet it names no node."""
        return self.shown("unmarked", lambda files: self._authority.issue(files, "alice", NODE))

    def of_another(self, store: str) -> Shown:
        return self.shown(f"other-{store}", lambda files: self._other.issue_node(files, store, ()))

    def expired(self, store: str) -> Shown:
        return self.shown(
            f"old-{store}",
            lambda files: self._authority.issue(
                files, "node", NODE, at=LONG_AGO, uris=[mark_of(store)]
            ),
        )

    def nothing(self) -> Shown:
        """To dial with: no certificate at all."""
        shown = self.shown("nothing", lambda files: self._authority.issue(files, "nobody", CLIENT))
        context = type(shown.dialling)(shown.dialling.protocol)
        context.check_hostname = False
        context.load_verify_locations(Pair.named(self._directory, "ca").certificate)
        shown.dialling = context
        return shown


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("cluster"))


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


class Said:
    """What both ends have logged so far."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        self._caplog = caplog

    def of(self, logger: str, words: str) -> list[str]:
        return [
            record.getMessage()
            for record in self._caplog.records
            if record.name == logger and re.search(words, record.getMessage())
        ]

    def audited(self, words: str) -> list[str]:
        return self.of("hocket.audit", words)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    return Said(caplog)


def test_nodes_with_the_right_certificates_talk(
    world: World, certificates: Certificates, said: Said
):
    one = End(world, "a", certificates.node(A))
    other = End(world, "b", certificates.node(B))
    one.send(other, MESSAGE)
    other.send(one, MESSAGE)
    world.until(lambda: one.heard_messages and other.heard_messages)
    assert said.audited("") == []


# --- refused by the one that accepts ------------------------------------------------------------


class Caller(NamedTuple):
    """Somebody who dials; the one that accepts is a node as it should be."""

    tls: Make
    audited: str  # by the one that accepts
    told: str  # what the one that dials says
    position: int | None = None


CALLERS = {
    "a client's certificate": Caller(
        lambda made: made.client(),
        "link address=127.0.0.1 node='a+': wrongNode: node a at .*'alice' is not marked as a node",
        "it refuses this node: .*'alice' is not marked as a node's; make one .* hocket certs node",
    ),
    "no certificate": Caller(
        lambda made: made.nothing(),
        "link address=127.0.0.1 node='a+': wrongNode: .*it shows no certificate",
        "it refuses this node: .*it shows no certificate",
    ),
    "another authority's": Caller(
        lambda made: made.of_another(A),
        "TLS handshake address=127.0.0.1: .*(issuer|self.signed) certificate",
        "TLS failed: .*alert unknown ca.*--tls-ca",
    ),
    "an expired one": Caller(
        lambda made: made.expired(A),
        "TLS handshake address=127.0.0.1: certificate has expired",
        "TLS failed: .*alert certificate expired.*--tls-ca",
    ),
    "one for a broker only": Caller(
        lambda made: made.broker(),
        "TLS handshake address=127.0.0.1: .*purpose",
        "TLS failed: .*alert unsupported certificate",
    ),
    "another node's": Caller(
        lambda made: made.node("d" * 32),
        "link address=127.0.0.1 node='a+': wrongNode: .*that of the node with the store d+, and",
        "it refuses this node: .*store d+, and the node says that its store is a+",
    ),
    "a position of its own choice": Caller(
        lambda made: made.node(A),
        "link address=127.0.0.1 node='a+': wrongPosition: .*position 3, which is none of the cand",
        "it refuses this node: .*position 3, which is none of the candidates",
        position=3,
    ),
    "no TLS": Caller(
        lambda _made: None,
        "link address=127.0.0.1 node='': plain: a node came without TLS",
        "it refuses this node: .*talk by TLS only: give every node --tls-cert",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CALLERS)
def test_the_one_that_accepts_refuses(
    world: World, certificates: Certificates, said: Said, kind: str
):
    case = CALLERS[kind]
    hello = {} if case.position is None else {"position": case.position}
    one = End(world, "a", case.tls(certificates), **hello)
    other = End(world, "b", certificates.node(B))
    one.send(other, MESSAGE)
    complaint = f"^no link to the node at {other.address}: {case.told}"
    world.until(
        lambda: said.audited(f"^denied: {case.audited}") and said.of("hocket.links", complaint)
    )
    assert len(said.audited("")) == 1, "the one that is refused has refused nobody"
    assert said.of("hocket.links", "^(refused a link|the TLS handshake) .*127.0.0.1")
    assert other.heard_messages == []
    assert one.lost == [other.me]


def test_plain_from_beyond_loopback_is_refused(world: World, said: Said):
    one, other = End(world, "a"), End(world, "b")
    other.from_address = "10.0.0.7"
    one.send(other, MESSAGE)
    world.until(lambda: said.of("hocket.links", "no link to .*comes from 10.0.0.7 without TLS"))
    assert said.audited("^denied: link address=10.0.0.7 node='a+': plain: .*--tls-cert")
    assert other.heard_messages == []


# --- refused by the one that dials --------------------------------------------------------------


class Callee(NamedTuple):
    """Somebody who accepts; the one that dials is a node as it should be."""

    tls: Make
    told: str  # what the one that dials says, and writes into its audit log
    logged: tuple[str, str]  # by the one that accepts: the logger and the words


HANDSHAKE = "the TLS handshake with 127.0.0.1 failed: .*alert"
CALLEES = {
    "a client's certificate": Callee(
        lambda made: made.client(),
        "TLS failed: .*purpose.*--tls-ca",
        ("hocket.links", f"{HANDSHAKE} unsupported certificate"),
    ),
    "one that is not marked": Callee(
        lambda made: made.unmarked(),
        "the certificate of 'alice' is not marked as a node's; make one .* hocket certs node",
        ("hocket.links", ""),
    ),
    "another authority's": Callee(
        lambda made: made.of_another(B),
        "TLS failed: .*issuer certificate.*--tls-ca",
        ("hocket.links", f"{HANDSHAKE} unknown ca"),
    ),
    "an expired one": Callee(
        lambda made: made.expired(B),
        "TLS failed: certificate has expired.*--tls-ca",
        ("hocket.links", f"{HANDSHAKE} certificate expired"),
    ),
    "another node's": Callee(
        lambda made: made.node("d" * 32),
        "the certificate is that of the node with the store d+, and .* its store is b+",
        ("hocket.links", ""),
    ),
    "no TLS": Callee(
        lambda _made: None,
        "it does not speak TLS, and this node does: give every node --tls-cert",
        ("hocket.node", "speaks TLS, and this port does not"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", CALLEES)
def test_the_one_that_dials_refuses(
    world: World,
    certificates: Certificates,
    said: Said,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(outgoing, "REFUSED_REST_US", outgoing.REST_US_MIN)
    case = CALLEES[kind]
    one = End(world, "a", certificates.node(A))
    other = End(world, "b", case.tls(certificates))
    one.send(other, MESSAGE)
    complaint = f"^no link to the node at {other.address}: {case.told}"
    world.until(lambda: said.of("hocket.links", complaint) and said.of(*case.logged))
    assert len(said.audited(f"^denied: node at {other.address}: {case.told}")) == 1
    assert other.heard_messages == []
    assert one.lost == [other.me]
    link = one.links._out[other.address]
    world.until(lambda: link._may_dial)  # and then it is the same, which is not said again
    one.send(other, MESSAGE)
    world.until(lambda: link.state == "resting")
    assert len(said.audited("^denied: node at")) == 1


def test_a_node_at_a_place_of_somebody_s_choice_is_not_called(world: World, said: Said):
    one, other = End(world, "a"), End(world, "b")
    one.links.send(one.me, other.me._replace(position=3), MESSAGE)
    (entry,) = said.audited(f"^denied: node at {other.address}: ")
    assert "position 3, which is none of the candidates of its store id bb" in entry
    one.send(other, GetCloser(2, 7, 4))
    world.until(lambda: other.heard_messages)
    assert [message for _, _, message in other.heard_messages] == [GetCloser(2, 7, 4)]


@pytest.mark.parametrize("address", ["192.0.2.1:4150", "[2001:db8::1]:4150"])
def test_beyond_loopback_not_a_word_is_said_in_plain(world: World, said: Said, address: str):
    one, other = End(world, "a"), End(world, "b")
    one.links.send(one.me, other.me._replace(address=address), MESSAGE)
    link = one.links._out[address]
    assert link.state == "resting"
    assert link._socket is None
    assert said.of("hocket.links", f"no link to the node at {re.escape(address)}: .*--tls-cert")
    assert said.audited(f"^denied: node at {re.escape(address)}: beyond loopback nodes talk by TLS")


# --- a planted bug ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["a client's certificate", "another node's"])
def test_a_node_that_trusts_any_certificate_is_found(
    world: World, certificates: Certificates, kind: str, monkeypatch: pytest.MonkeyPatch
):
    """The tests above can fail. `tests/attack` plants the same into a real broker."""
    monkeypatch.setattr(node_certificate, "check_node_certificate", lambda *_: None)
    one = End(world, "a", CALLERS[kind].tls(certificates))
    other = End(world, "b", certificates.node(B))
    one.send(other, MESSAGE)
    world.until(lambda: other.heard_messages)


# --- floods --------------------------------------------------------------------------------------


def test_a_flood_does_not_fill_the_disk(world: World, certificates: Certificates, said: Said):
    node = End(world, "b", certificates.node(B))
    hello = b"".join(NodeConnection("dialler", CODEC).send(NodeHello(node=A)))
    count = 3 * LINES_MAX
    for number in range(count):
        with socket.create_connection(("127.0.0.1", node.port)) as stranger:
            begin = (
                b"\x16\x03\x01\x00\x04nope" if number % 2 else hello
            )  # no TLS, and not quite TLS
            stranger.sendall(begin)
            world.until(lambda: len(node.connections) == 1)
            stranger.settimeout(0)
            world.until(lambda stranger=stranger: is_over(stranger))
        world.until(lambda: not len(node.connections))
    assert len(said.audited("^denied: (link|TLS handshake)")) == LINES_MAX
    assert len(said.of("hocket.links", "")) == LINES_MAX


def is_over(sock: socket.socket) -> bool:
    try:
        return sock.recv(1000) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def test_what_is_left_out_is_counted_with_where_it_came_from(said: Said):
    now = 0.0
    refusals = Refusals(lambda: now)
    for _ in range(LINES_MAX):
        refusals.handshake("10.0.0.1", "no")
    for number in range(3):
        refusals.link("10.0.0.2", A, "wrongNode", "no")
        refusals.node(f"10.0.0.{number}:1", "no")
    now = 59.9
    refusals.tick()
    assert len(said.audited("")) == LINES_MAX
    now = 60.0
    refusals.tick()
    assert said.audited("")[LINES_MAX:] == [
        "denied: 6 more links and TLS handshakes within a minute, from 10.0.0.2 (3), "
        "10.0.0.0:1 (1), 10.0.0.1:1 (1), 10.0.0.2:1 (1)"
    ]
    refusals.link("10.0.0.2", A, "wrongNode", "no")
    assert said.audited("")[-1] == f"denied: link address=10.0.0.2 node='{A}': wrongNode: no"


def test_addresses_without_number_are_counted_in_little_memory(said: Said):
    now = 0.0
    refusals = Refusals(lambda: now)
    for number in range(LINES_MAX + 3 * COUNTED_MAX):
        refusals.handshake(f"2001:db8::{number:x}", "no")
    assert len(refusals._left_out) == COUNTED_MAX + 1
    now = 61.0
    refusals.tick()
    (entry,) = said.audited(f"^denied: {3 * COUNTED_MAX} more links and TLS handshakes")
    assert entry.count("2001:db8::") == SHOWN_MAX - 1
    assert f"others ({2 * COUNTED_MAX})" in entry
    assert entry.endswith(f", and {COUNTED_MAX + 1 - SHOWN_MAX} more addresses")


def test_a_long_answer_to_the_hello_is_read_to_its_end(world: World, certificates: Certificates):
    """TLS takes a whole record from the socket: no readiness tells of what is left of it."""
    one = End(world, "a", certificates.node(A))
    other = End(world, "b", certificates.node(B))
    other.links.own = replace(other.links.own, positions=lambda: tuple(range(1_000)))
    one.send(other, MESSAGE)
    link = one.links._out[other.address]
    world.until(lambda: other.heard_messages or link.state == "resting")
    assert other.heard_messages
