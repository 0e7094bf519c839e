"""What a broker is told when it cannot become a node of a cluster, and that nothing is changed."""

from __future__ import annotations

import itertools
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hocket.adapters.clock import SystemClock
from hocket.adapters.disk import DirectoryDisk
from hocket.adapters.tls import dialling_context, server_context
from hocket.addresses import Address
from hocket.cli.authority import NODE, Authority, Pair
from hocket.cli.cluster_options import certificate_fault, cluster_options
from hocket.errors import BadName, HocketError, NoConnection, OutOfRange
from hocket.frames import Failure
from hocket.log.directory import store_id_of
from hocket.node.broker import Broker
from hocket.node.cluster import membership
from hocket.node.cluster.member import Member
from hocket.node.cluster.starting import Wish, leads_to, place_for, settle
from hocket.node.links.asking import Refused
from hocket.node.messages import CODEC
from hocket.node_frames import HelloAccepted, HelloRefused, NodeHello
from hocket.wire import frame_codec
from hocket.wire.framing import framed
from hocket.wire.node_connection import NodeConnection
from tests.support.certificates import made

CLUSTER, OTHER = "c" * 32, "d" * 32
HERE = Address("127.0.0.1", 4999)
ACCEPTED = HelloAccepted(cluster=CLUSTER, node=CLUSTER, successors=3, positions=(1, 2))

Answer = HelloAccepted | HelloRefused | bytes


class Peer:
    """A port that answers each one that connects, and notes who that was."""

    def __init__(self, *answers: Answer) -> None:
        self.hellos: list[NodeHello] = []
        self._answers = list(answers)  # the last is given again and again
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            with sock:
                wire = NodeConnection("acceptor", CODEC)
                while not wire_has_hello(sock, wire, self.hellos):
                    pass
                if not self._answers:
                    return
                answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
                sock.sendall(answer if isinstance(answer, bytes) else b"".join(wire.send(answer)))

    def close(self) -> None:
        self._answers.clear()
        with socket.create_connection(self._listener.getsockname()):
            pass
        self._thread.join()
        self._listener.close()


def wire_has_hello(sock: socket.socket, wire: NodeConnection, hellos: list[NodeHello]) -> bool:
    data = sock.recv(1 << 16)
    for envelope in wire.received(data) if data else ():
        assert isinstance(envelope.message, NodeHello)
        hellos.append(envelope.message)
        return True
    return not data


@contextmanager
def peer(*answers: Answer) -> Iterator[Peer]:
    made = Peer(*answers)
    try:
        yield made
    finally:
        made.close()


def wish(*join: str, **more: object) -> Wish:
    return replace(Wish(join=join, join_seconds=0.0), **more)  # type: ignore[arg-type]


def is_untouched(path: Path) -> bool:
    return not (path / membership.PATH).exists()


REFUSALS: list[tuple[Answer, type[HocketError], tuple[str, ...]]] = [
    (HelloRefused("wrongVersion", "speak version 2"), Refused, ("refuses this one", "version 2")),
    (HelloRefused("plain", "give --tls-cert"), Refused, ("refuses this one", "--tls-cert")),
    (HelloRefused("twice", "was it copied?"), Refused, ("refuses this one", "copied")),
    (HelloRefused("nameTaken", "another --name"), Refused, ("refuses this one", "--name")),
    (HelloRefused("otherPlugins", "other ones"), Refused, ("refuses this one", "other ones")),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n" * 4, NoConnection, ("not a node of Hocket", "--join")),
    (b"SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13\r\n", NoConnection, ("not a node of Hocket",)),
    (b"", NoConnection, ("hangs up without an answer",)),
]


@pytest.mark.parametrize(("answer", "error", "words"), REFUSALS)
def test_who_cannot_join_is_told_why_and_remembers_nothing(
    tmp_path: Path, answer: Answer, error: type[HocketError], words: tuple[str, ...]
):
    with peer(answer) as other, pytest.raises(error) as raised:
        place_for(tmp_path, wish(other.address), HERE)
    for word in (other.address, *words):
        assert word in str(raised.value)
    assert is_untouched(tmp_path)


@pytest.mark.parametrize(
    "noise", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"220 mail.example ESMTP hi\r\n"]
)
def test_a_port_that_speaks_something_else_is_not_waited_for(tmp_path: Path, noise: bytes):
    with peer(noise) as other, pytest.raises(NoConnection, match="not a node of Hocket"):
        place_for(tmp_path, wish(other.address, join_seconds=3600.0), HERE)
    assert len(other.hellos) == 1


def test_nobody_there_is_said_with_each_address(tmp_path: Path):
    with pytest.raises(NoConnection, match=r"127\.0\.0\.1:1: .*refused.*leave --join out"):
        place_for(tmp_path, wish("127.0.0.1:1"), HERE)
    assert is_untouched(tmp_path)


def test_a_node_that_is_busy_is_asked_again(tmp_path: Path):
    busy = b"".join(framed(*_failure("busy", "no room")))
    with peer(busy, ACCEPTED) as other:
        place = place_for(tmp_path, wish(other.address, join_seconds=60.0), HERE)
    assert place.membership.cluster == CLUSTER
    assert len(other.hellos) == 2


def _failure(code: str, text: str) -> tuple[bytes, list[bytes]]:
    return frame_codec.encode(Failure(0, code, text)), []


@pytest.mark.parametrize(
    ("address", "bound", "is_own"),
    [
        ("127.0.0.1:4999", HERE, True),
        ("localhost:4999", HERE, True),
        ("localhost:5000", HERE, False),
        ("127.0.0.2:4999", HERE, False),
        ("127.0.0.2:4999", Address("0.0.0.0", 4999), True),
        ("192.0.2.1:4999", Address("0.0.0.0", 4999), False),
    ],
)
def test_a_name_of_this_node_is_known_for_what_it_is(address: str, bound: Address, is_own: bool):
    assert leads_to(address, bound) is is_own


@pytest.mark.parametrize("own", ["127.0.0.1:4999", "localhost:4999", "broker.example:4150"])
def test_joining_oneself_is_refused(tmp_path: Path, own: str):
    with pytest.raises(BadName, match="this node itself"):
        place_for(tmp_path, wish(own, advertise="broker.example:4150"), HERE)
    assert is_untouched(tmp_path)


def test_successors_are_the_clusters(tmp_path: Path):
    with peer(ACCEPTED) as other:
        with pytest.raises(OutOfRange, match=r"founded with --successors 3.*leave --successors 5"):
            place_for(tmp_path, wish(other.address, successors=5), HERE)
        assert is_untouched(tmp_path)
        place = place_for(tmp_path, wish(other.address, successors=3), HERE)
    assert place.membership.successors == 3
    settle(tmp_path, place, 0)
    with pytest.raises(OutOfRange, match="founded with --successors 3"):
        place_for(tmp_path, wish(successors=4), HERE)


def test_a_directory_that_was_in_use_joins_nobody(tmp_path: Path):
    with peer(ACCEPTED) as other:
        place = place_for(tmp_path, wish(other.address), HERE)
    with pytest.raises(BadName, match=r"has been in use.*--data DIR"):
        settle(tmp_path, place, 1)
    assert is_untouched(tmp_path)


@pytest.mark.parametrize("was", ["founder", "joiner"])
def test_a_directory_stays_in_its_cluster(tmp_path: Path, was: str):
    found(tmp_path, was)
    before = (tmp_path / membership.PATH).read_bytes()
    elsewhere = replace(ACCEPTED, cluster=OTHER, node=OTHER)
    with peer(elsewhere) as other, pytest.raises(BadName, match=f"{OTHER}.*stays in its cluster"):
        place_for(tmp_path, wish(other.address), HERE)
    assert (tmp_path / membership.PATH).read_bytes() == before
    (hello,) = other.hellos
    assert hello.cluster == ""  # it asks, and opens no link


def found(path: Path, was: str) -> None:
    if was == "founder":
        settle(path, place_for(path, wish(), HERE), 0)
        return
    with peer(ACCEPTED) as other:
        settle(path, place_for(path, wish(other.address), HERE), 0)


@pytest.mark.parametrize("answer", [HelloRefused("busy", "later"), b"HTTP/1.1 400\r\n" * 4, b""])
def test_who_returns_is_not_harmed_by_a_join_that_leads_nowhere(tmp_path: Path, answer: Answer):
    found(tmp_path, "joiner")
    with peer(answer) as other:
        place = place_for(tmp_path, wish(other.address, "127.0.0.1:1"), HERE)
    assert place.returns
    assert place.seeds == (other.address, "127.0.0.1:1")
    assert place.membership.node == store_id_of(DirectoryDisk(tmp_path), str(tmp_path))


def test_who_returns_by_way_of_its_own_cluster_is_welcome(tmp_path: Path):
    found(tmp_path, "joiner")
    with peer(ACCEPTED) as other:
        assert place_for(tmp_path, wish(other.address), HERE).returns


@pytest.mark.parametrize("code", ["twice", "nameTaken", "otherPlugins"])
def test_who_is_refused_while_it_starts_ends_at_once(tmp_path: Path, code: str):
    with peer(ACCEPTED) as other:
        place = place_for(tmp_path, wish(other.address, name="b"), HERE)
    broker = Broker(tmp_path, None, partial(Member, place))
    try:
        failures: list[HocketError] = []
        member = broker.member
        assert isinstance(member, Member)
        assert not member.links.hello().starting
        member.join(lambda: None, failures.append)
        assert member.links.hello().starting
        member.link_refused(other.address, HelloRefused("notReady", "later"))
        assert failures == []
        for _ in range(2):
            member.link_refused(other.address, HelloRefused(code, "no"))
        (failure,) = failures
        assert isinstance(failure, Refused)
        assert (failure.reason, other.address in str(failure)) == (code, True)
        assert not member.links.hello().starting
    finally:
        broker.close()


@pytest.mark.parametrize("kind", ["of another authority", "expired", "of a broker"])
def test_a_peer_that_tls_does_not_trust_is_not_asked_again(tmp_path: Path, kind: str):
    certificates = made(tmp_path)
    names = {"of another authority": "wrong authority", "expired": "expired"}
    files = certificates.bad_server(names[kind]) if kind in names else certificates.server
    own = Pair.named(tmp_path, "own")
    Authority.load(Pair.named(tmp_path, "ca")).issue(own, "node x", NODE)
    dialling = dialling_context(own.certificate, own.key, certificates.authority)
    words = "TLS failed.*--tls-ca" if kind in names else "not marked as a node's"
    with tls_peer(server_context(files.certificate, files.key, None), ACCEPTED) as address:
        wanted = wish(
            address, join_seconds=3600.0, tls=lambda: dialling, certificate_fault=certificate_fault
        )
        with pytest.raises(Refused, match=words):
            place_for(tmp_path / "data", wanted, HERE)
    assert is_untouched(tmp_path / "data")


@contextmanager
def tls_peer(context: ssl.SSLContext, answer: HelloAccepted) -> Iterator[str]:
    """A port that shows its certificate to one that connects, and answers it if it goes on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            plain, _ = listener.accept()
            with plain, suppress(OSError), context.wrap_socket(plain, server_side=True) as sock:
                wire = NodeConnection("acceptor", CODEC)
                if wire_has_hello(sock, wire, []):
                    sock.sendall(b"".join(wire.send(answer)))

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_directory_from_an_older_copy_begins_a_life_that_nobody_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Else those who remember the lives that it has forgotten would not listen to it."""

    def life() -> int:
        monkeypatch.setattr(SystemClock, "now_us", lambda _clock: next(times) * 1_000_000)
        place = place_for(tmp_path / "data", wish(), HERE)
        broker = Broker(tmp_path / "data", None, partial(Member, place))
        try:
            settle(tmp_path / "data", place, broker.node.metadata_index)
            assert isinstance(broker.member, Member)
            terms.append(broker.node.group0.term)
            return broker.member.cluster_node.ring.core.me.incarnation
        finally:
            broker.close()
            monkeypatch.undo()

    terms: list[int] = []
    times = itertools.count(1_800_000_000)
    first = life()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    lost = [life() for _ in range(3)]
    shutil.rmtree(tmp_path / "data")
    shutil.copytree(tmp_path / "copy", tmp_path / "data")
    lives = [first, *lost, life()]
    assert lives == sorted(set(lives))
    assert terms == sorted(set(terms)), "nor has the root a term of entries that it has forgotten"
    times = itertools.repeat(1)
    assert life() == lives[-1] + 1, "a clock that is set back does not matter"
    times = itertools.repeat(1 << 40)
    assert life() < 1 << 32, "and neither does one that is far ahead: numbers of requests fit"


@pytest.mark.parametrize("calls", [0, 1])
def test_who_joins_and_waits_says_for_what(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, calls: int
):
    with peer(ACCEPTED) as other:
        place = place_for(tmp_path, wish(other.address), HERE)
    broker = Broker(tmp_path, None, partial(Member, place))
    try:
        member = broker.member
        assert isinstance(member, Member)
        member.join(lambda: None, lambda _error: None)
        member.links._in = {"c": None} if calls else {}  # type: ignore[dict-item]
        member._patience_is_over()
        member.links._in = {}
    finally:
        broker.close()
    (said,) = [each.getMessage() for each in caplog.records if each.name == "hocket.cluster"]
    assert ("--advertise" in said, str(HERE) in said, "waits" in said) == (
        not calls,
        not calls,
        True,
    )


def test_only_the_founder_has_to_reach_those_whom_it_enters(tmp_path: Path):
    place = place_for(tmp_path, wish(), HERE)
    broker = Broker(tmp_path, None, partial(Member, place))
    try:
        member = broker.member
        assert isinstance(member, Member)
        assert member.node.registering.reach == member.links.reach
    finally:
        broker.close()


@pytest.mark.parametrize(
    ("option", "text", "why"),
    [
        ("--advertise", "0.0.0.0:5", "others reach"),
        ("--advertise", "[::]:5", "others reach"),
        ("--advertise", "a b:4", "HOST:PORT"),
        ("--advertise", ":4150", "HOST:PORT"),
        ("--join", "http://127.0.0.1:1", "without a scheme"),
        ("--join", "one:1,t wo:1", "HOST:PORT"),
    ],
)
def test_addresses_that_cannot_be_meant_are_refused(option: str, text: str, why: str):
    @click.command()
    @cluster_options
    def command(**_options: object) -> None:
        pytest.fail("nothing is wrong")

    result = CliRunner().invoke(command, [option, text])
    assert (result.exit_code, why in result.output.replace("\n", " ")) == (2, True), result.output


def test_a_replication_is_said_at_the_founding_and_repeated_later(tmp_path: Path):
    assert founded(tmp_path / "plain", replication=None) == 0
    assert founded(tmp_path / "three", replication=3) == 3
    tmp_path /= "joins"
    tmp_path.mkdir()
    told = replace(ACCEPTED, replication=2, founded_replication=3)
    with peer(told) as other:
        with pytest.raises(OutOfRange, match=r"has replication 2 by default.*cluster set replic"):
            place_for(tmp_path, wish(other.address, replication=5), HERE)
        assert is_untouched(tmp_path)
        for right in (2, 3, None):
            place = place_for(tmp_path, wish(other.address, replication=right), HERE)
            assert (place.replication, place.membership.replication) == (right, 0)
    with peer(ACCEPTED) as older:  # which does not say: it is looked at when all is known
        assert place_for(tmp_path, wish(older.address, replication=5), HERE).replication == 5


def founded(path: Path, *, replication: int | None) -> int:
    """What a founder remembers of what it was founded with."""
    path.mkdir()
    place = place_for(path, wish(replication=replication), HERE)
    settle(path, place, 0)
    return place_for(path, wish(), HERE).membership.replication
