"""Links between nodes over real sockets; `test_refusals.py` has who is let in by TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from hocket.adapters.loop import READ
from hocket.core.relay.messages import Fetched, Piece
from hocket.core.ring.contact import seed
from hocket.core.ring.messages import Busy, GetCloser
from hocket.model import PartitionId
from hocket.node.links import links, outgoing
from hocket.node.raft_mail import RaftMail
from hocket.wire.framing import NODE_MARK, PREFIX, framed
from hocket.wire.node_codec import ITEMS_MAX
from tests.support.node.links import End, World


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.close()


def closer(number: int) -> GetCloser:
    return GetCloser(number, 7, 4)


def test_messages_arrive_in_order_with_their_sender(world: World):
    one, other = End(world, "a"), End(world, "b")
    for number in range(200):
        one.send(other, closer(number))
    world.until(lambda: len(other.heard_messages) == 200)
    assert [message for _, _, message in other.heard_messages] == [closer(n) for n in range(200)]
    assert {(sender, to) for sender, to, _ in other.heard_messages} == {(one.me, 5)}
    assert one.links.open_links == (1, 0)
    assert other.links.open_links == (0, 1)


def test_answers_come_on_the_others_own_link(world: World):
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    other.send(one, Busy(1))
    world.until(lambda: one.heard_messages)
    assert one.heard_messages == [(other.me, 5, Busy(1))]
    assert one.links.open_links == other.links.open_links == (1, 1)


def test_a_batch_travels_as_it_is(world: World):
    one, other = End(world, "a"), End(world, "b")
    data = bytes(range(256)) * 20_000
    fetched = Fetched(
        3, PartitionId("t", 0), pieces=(Piece(0, 10, data), Piece(10, 11, b"x")), end=11,
        ancestors=(one.me,), room=1, total=2,
    )  # fmt: skip
    one.send(other, fetched)
    world.until(lambda: other.heard_messages)
    assert other.heard_messages[0][2] == fetched


def test_what_is_urgent_overtakes_bulk(world: World):
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(0))
    world.until(lambda: other.heard_messages)
    for number in range(6):
        piece = Piece(number, number + 1, bytes(1 << 20))
        one.send(other, Fetched(1, PartitionId("t", 0), (piece,), 9, (), 0, 0))
    one.send(other, closer(1))
    world.until(lambda: len(other.heard_messages) == 8)
    kinds = [type(message).__name__ for _, _, message in other.heard_messages[1:]]
    assert kinds.index("GetCloser") <= 1, "it may wait for the frame that is being written, no more"


def test_a_full_queue_loses_and_says_so_by_its_count(world: World):
    one, other = End(world, "a"), End(world, "b")
    piece = Piece(0, 1, bytes(3 << 20))
    for _ in range(25):
        one.send(other, Fetched(1, PartitionId("t", 0), (piece,), 9, (), 0, 0))
    link = one.links._out[other.address]
    assert link.dropped == 25 - outgoing.BULK_BYTES_MAX // (3 << 20)
    world.until(lambda: len(other.heard_messages) == 25 - link.dropped)


def test_answers_of_raft_overtake_its_entries_and_what_four_groups_send_at_once_is_not_lost(
    world: World,
):
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(0))
    world.until(lambda: other.heard_messages)
    for number in range(8):  # four groups, each with all that it may have under way
        piece = Piece(number, number + 1, bytes(4 << 20))
        one.send(other, RaftMail(b"", (piece,)))
    one.send(other, RaftMail(b"", ()))
    assert one.links._out[other.address].dropped == 0
    world.until(lambda: len(other.heard_messages) == 10)
    sizes = [len(message.pieces) for _, _, message in other.heard_messages[1:]]
    assert sizes.index(0) <= 1, "it may wait for the frame that is being written, no more"


def test_nobody_there_is_told_once_and_tried_again(world: World):
    one, other = End(world, "a"), End(world, "b")
    other.stop_listening()
    one.send(other, closer(1))
    world.until(lambda: one.lost)
    link = one.links._out[other.address]
    for _ in range(3):
        world.until(lambda: link._may_dial)
        one.send(other, closer(2))
        world.until(lambda: link.state == "resting")
    assert one.lost == [other.me]
    assert link._rest_us > outgoing.REST_US_MIN


def test_who_dials_us_is_dialled_at_once_however_long_it_was_away(world: World):
    one, other = End(world, "a"), End(world, "b")
    other.stop_listening()
    link = one.links._out[other.address] = outgoing.Outgoing(other.address, one.links)
    link._rest_us = 3600 * 1_000_000
    one.send(other, closer(1))
    world.until(lambda: one.lost)
    one.send(other, closer(2))
    assert link.dropped == 2
    other.listener = socket.create_server(("127.0.0.1", other.port))
    other.listener.setblocking(False)
    world.loop.register(other.listener, READ, lambda _events: other._accept())
    other.send(one, closer(3))
    world.until(lambda: one.heard_messages)
    one.send(other, closer(4))
    world.until(lambda: other.heard_messages)
    assert link._rest_us == outgoing.REST_US_MIN
    link.is_there()  # it is open, and stays so
    assert link.state == "open"


def test_a_link_that_broke_is_made_anew(world: World):
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    (incoming,) = other.links._in.values()
    incoming.transport._socket.shutdown(socket.SHUT_RDWR)
    world.until(lambda: one.lost and other.lost)
    assert one.lost == [other.me]
    assert other.lost == [one.me]
    world.until(lambda: one.links._out[other.address]._may_dial)
    one.send(other, closer(2))
    world.until(lambda: len(other.heard_messages) == 2)


def test_a_node_of_another_cluster_is_refused_on_both_sides(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, other = End(world, "a", cluster="d" * 32), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: one.links.refusals)
    assert one.links.refusals[other.address].code == "wrongCluster"
    said = [(record.name, record.getMessage()) for record in caplog.records]
    assert any(name == "hocket.audit" and "wrongCluster" in text for name, text in said)
    assert sum("belongs to cluster" in text for _, text in said) >= 2
    assert other.heard_messages == []


def test_without_tls_a_node_of_another_user_is_refused_by_either_side(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, other, third = End(world, "a"), End(world, "b"), End(world, "c")
    other.sees_another_user = lambda _descriptor: True
    one.send(other, closer(1))
    world.until(lambda: one.links.refusals)
    assert one.links.refusals[other.address].code == "plain"
    assert other.heard_messages == []
    other.send(third, closer(2))
    world.until(lambda: other.lost)
    assert third.heard_messages == []
    audited = [each.getMessage() for each in caplog.records if each.name == "hocket.audit"]
    assert sum("start both as one user" in text for text in audited) == 2


def test_what_a_stranger_says_behind_its_hello_is_not_heard(world: World):
    one, other = End(world, "a", position=3), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: one.links.refusals)
    assert one.links.refusals[other.address].code == "wrongPosition"
    assert other.heard_messages == []


def test_a_copy_of_a_running_nodes_directory_is_refused(world: World):
    one, other, third = End(world, "a"), End(world, "b"), End(world, "c", node="a" * 32)
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    third.send(other, closer(2))
    world.until(lambda: third.links.refusals)
    assert third.links.refusals[other.address].code == "twice"
    assert len(other.heard_messages) == 1


def test_who_starts_with_the_name_of_a_living_node_is_refused(world: World):
    one, other, third = End(world, "a"), End(world, "b"), End(world, "c", name="a")
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    third.is_starting = True
    third.send(other, closer(2))
    world.until(lambda: third.links.refusals)
    refused = third.links.refusals[other.address]
    assert refused.code == "nameTaken"
    assert f"the node {'a' * 32} at {one.address} has the name 'a', too" in refused.text
    fourth = End(world, "d", name="b")  # that of the one who is asked
    fourth.is_starting = True
    fourth.send(other, closer(2))
    world.until(lambda: fourth.links.refusals)
    assert f"at {other.address} has the name 'b', too" in fourth.links.refusals[other.address].text
    assert len(other.heard_messages) == 1


def test_the_name_of_a_node_that_is_gone_is_free_and_its_own_is_its_own(world: World):
    one, other = End(world, "a"), End(world, "b")
    one.is_starting = True
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    again = End(world, "a", address=one.address)  # started anew, before the old link is given up
    again.is_starting = True
    again.send(other, closer(2))
    world.until(lambda: len(other.heard_messages) == 2)
    again.links.close()
    world.until(lambda: other.links.open_links == (0, 0))
    heir = End(world, "c", name="a")
    heir.is_starting = True
    heir.send(other, closer(3))
    world.until(lambda: len(other.heard_messages) == 3)


def test_two_of_one_name_that_serve_already_are_told_and_not_parted(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, other = End(world, "a"), End(world, "b", name="a")
    one.send(other, closer(1))
    other.send(one, closer(2))
    world.until(lambda: one.heard_messages and other.heard_messages)
    warnings = [each for each in caplog.messages if "has the name 'a', as this node does" in each]
    assert len(warnings) == 2  # one of each


@pytest.mark.parametrize(
    "noise",
    [
        PREFIX.pack(NODE_MARK | 64, 0, 0) + bytes(64),
        b"".join(framed(b"not capnp", [], NODE_MARK)),
        PREFIX.pack(NODE_MARK | 8, 0, 1 << 40),
    ],
)
def test_noise_behind_the_magic_word_ends_that_link_alone(world: World, noise: bytes):
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    with socket.create_connection(("127.0.0.1", other.port)) as stranger:
        stranger.sendall(noise)
        stranger.setblocking(False)
        world.until(lambda: _is_over(stranger))
    one.send(other, closer(2))
    world.until(lambda: len(other.heard_messages) == 2)


def test_a_port_that_speaks_something_else_is_complained_about_once(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, other = End(world, "a"), End(world, "b")
    with socket.create_server(("127.0.0.1", 0)) as server:
        stranger = other.me._replace(address=f"127.0.0.1:{server.getsockname()[1]}")
        one.links.send(one.me, stranger, closer(1))
        link = one.links._out[stranger.address]
        for _ in range(2):
            one.links.send(one.me, stranger, closer(1))
            taken, _ = server.accept()
            with taken:
                taken.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                world.until(lambda: link.state == "resting")
            world.until(lambda: link._may_dial)
    complaints = [each for each in caplog.records if "no link to the node" in each.getMessage()]
    assert len(complaints) == 1


def test_a_name_is_resolved_beside_the_loop(world: World):
    one, other = End(world, "a"), End(world, "b")
    by_name = other.me._replace(address=f"localhost:{other.port}")
    one.links.send(one.me, by_name, closer(1))
    assert one.links._out[by_name.address].state == "dialling"
    world.until(lambda: other.heard_messages)


def test_a_name_that_nobody_resolves_keeps_no_other_from_being_resolved(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """A name server that does not answer takes tens of seconds, and a dial three."""
    answered, asked, resolve = threading.Event(), [], outgoing._resolve

    def stuck(host: str, port: int) -> list[tuple[Any, ...]]:
        if host.endswith("localhost"):
            return resolve("localhost", port)
        asked.append(host)
        answered.wait()
        raise OSError("no answer")

    monkeypatch.setattr(outgoing, "_resolve", stuck)
    monkeypatch.setattr(outgoing, "OPENING_US", 30_000)
    one, other = End(world, "a"), End(world, "b")
    slow = seed("slow.invalid:1")
    try:
        one.links.send(one.me, slow, closer(1))
        link = one.links._out[slow.address]
        for _ in range(3):
            world.until(lambda: link.state == "resting" and link._may_dial)
            one.links.send(one.me, slow, closer(1))
        monkeypatch.setattr(outgoing, "OPENING_US", 3_000_000)
        for each in range(8):  # some have the same worker
            one.links.send(one.me, seed(f"{each}.localhost:{other.port}"), closer(2))
        world.until(lambda: other.heard_messages)
        assert asked == ["slow.invalid"]
    finally:
        answered.set()
    world.until(lambda: not link._is_resolving)


@pytest.mark.parametrize(
    "address",
    [
        "nowhere.invalid:1", "no port", "127.0.0.1:0", "[::1", "[fe80::1%nosuch]:1", "a..b:1",
        f"[::1%{'a' * 70}]:1", "127.0.0.1%..:1",
    ],
)  # fmt: skip
def test_an_address_that_leads_nowhere_is_a_lost_link(world: World, address: str):
    one, other = End(world, "a"), End(world, "b")
    one.links.send(one.me, other.me._replace(address=address), closer(1))
    world.until(lambda: one.lost)


# --- bounds --------------------------------------------------------------------------------------


def test_addresses_that_others_have_named_keep_nobody_from_being_dialled(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(links, "LINKS_MAX", 8)
    one, other = End(world, "a"), End(world, "b")
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    for number in range(30):  # somebody names them, and nobody is there
        one.links.send(one.me, seed(f"127.0.0.1:{number + 1}"), closer(2))
        assert len(one.links._out) <= 8
        world.loop.turn(0.01)
    third = End(world, "c")

    def heard() -> bool:
        one.send(third, closer(3))
        return bool(third.heard_messages)

    world.until(heard)
    one.send(other, closer(4))
    world.until(lambda: len(other.heard_messages) == 2)
    assert one.lost == [], "the links that are open stay"


def test_names_of_those_who_came_and_went_are_forgotten(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(links, "LINKS_MAX", 8)
    one = End(world, "a")
    for number in range(20):
        one.links._met(f"node {number}", f"name {number}", "127.0.0.1:1")
    assert list(one.links.names) == [f"node {number}" for number in range(12, 20)]


def test_a_node_that_knows_thousands_greets_with_some_of_them(world: World):
    one, other = End(world, "a"), End(world, "b")
    known = tuple(range(5_000))
    other.links.own = replace(other.links.own, positions=lambda: known)
    one.send(other, closer(1))
    world.until(lambda: other.heard_messages)
    told = links.some_of(known)
    assert len(told) <= ITEMS_MAX
    assert (told[0], told[-1] > 4_900) == (0, True), "spread over all of them"


def test_who_is_to_be_reached_is_called_and_has_to_answer_itself(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, other, third = End(world, "a"), End(world, "b"), End(world, "d")
    reached: list[str] = []
    one.links.reach(one.me, lambda: reached.append("itself"))
    assert reached == ["itself"]
    one.links.reach(other.me, lambda: reached.append("by a call"))
    world.until(lambda: len(reached) == 2)
    one.links.reach(other.me, lambda: reached.append("at once"))
    assert reached == ["itself", "by a call", "at once"]

    for at in (other, third):  # the link is open, or not yet
        one.links.reach(at.me._replace(node="e" * 32), lambda: reached.append("another"))
    world.until(lambda: one.links.open_links[0] == 2)
    third.stop_listening()
    gone = third.me._replace(address="127.0.0.1:1")
    for _ in range(2):
        one.links.reach(gone, lambda: reached.append("nobody"))
        link = one.links._out[gone.address]
        world.until(lambda link=link: link.state == "resting" and link._may_dial)
    assert len(reached) == 3
    said = [each.getMessage() for each in caplog.records if "--advertise" in each.getMessage()]
    assert len(said) == 3
    assert f"node {other.hello.node} answers there" in said[0]
    assert "cannot be reached there" in said[2]


def _is_over(sock: socket.socket) -> bool:
    try:
        return sock.recv(1000) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
