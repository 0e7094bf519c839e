"""Descriptors run out, nodes hang, the root is away: names go on, and nothing waits for ever."""

from __future__ import annotations

import errno
import socket

from hocket import frames
from hocket.addresses import Address
from hocket.errors import RootAway
from hocket.local import EventPump, QueueBroker
from hocket.remote import calling, connection, node_link
from hocket.remote.calling import Directory
from hocket.remote.connection import NamesLoop
from tests.support.remote.served import ServedNode
from tests.support.remote.talker import PORT, Meeting
from tests.support.threads import Running, until


def no_descriptors(*_args):
    raise OSError(errno.EMFILE, "Too many open files")


class NoDescriptorsForWhoDials:
    """A listening socket of a process that has no descriptors left."""

    def __init__(self, listener):
        self._listener = listener
        self.accept = no_descriptors

    def __getattr__(self, name):
        return getattr(self._listener, name)


def test_a_manager_that_cannot_accept_is_closed_all_the_same(caplog):
    with ServedNode() as node, EventPump() as pump:
        manager = node.manager()
        QueueBroker("scarce", pump, manager)
        manager._listener = NoDescriptorsForWhoDials(manager._listener)
        with socket.create_connection(("127.0.0.1", int(manager.address.rpartition(":")[2]))):
            until(lambda: manager._rests)
            with Running(manager.close) as closing:
                closing.result(10)
    assert "something failed that must not" not in caplog.text


def test_a_thread_for_which_no_descriptor_is_left_waits_and_leaves_the_reading_to_others(
    monkeypatch,
):
    with (
        ServedNode() as node,
        EventPump() as pump,
        node.manager() as here,
        node.manager() as there,
    ):
        calls, answers = Meeting(), Meeting()
        QueueBroker("there", pump, there).bind(PORT, answers)
        QueueBroker("here", pump, here).connect("there", PORT, calls)
        assert calls.met.wait(10)
        assert answers.met.wait(10)
        sending, receiving = calls.queue, answers.queue
        with monkeypatch.context() as scarce:
            scarce.setattr(connection, "new_waker", no_descriptors)
            sending.send_wait(b"one", timeout=10)
            assert receiving.receive_wait(timeout=10) == b"one"
        sending.send_wait(b"two", timeout=10)
        assert receiving.receive_wait(timeout=10) == b"two"


def test_a_node_that_accepts_and_says_nothing_is_left_for_another_one(monkeypatch):
    monkeypatch.setattr(node_link, "WELCOME_SECONDS", 0.2)
    with ServedNode() as node, EventPump() as pump, socket.create_server(("127.0.0.1", 0)) as mute:
        hanging = Address(*mute.getsockname())
        with node.manager(addresses=(hanging, node.address), timeout=30) as manager:
            QueueBroker("patient", pump, manager)
            assert manager._link.address == node.address


def test_a_connect_through_a_node_that_hangs_is_refused(monkeypatch):
    monkeypatch.setattr(node_link, "WELCOME_SECONDS_MAX", 0.2)
    with (
        ServedNode("node") as node,
        EventPump() as pump,
        node.manager() as here,
        node.manager() as there,
    ):
        QueueBroker("there", pump, there).bind(PORT, Meeting())
        caller = QueueBroker("here", pump, here)
        with socket.create_server(("127.0.0.1", 0)) as mute:
            here._link.address = Address(*mute.getsockname())
            meeting = Meeting()
            caller.connect("there", PORT, meeting)
            assert meeting.met.wait(20)
            assert "did not answer" in str(meeting.reason)


def test_a_name_that_is_given_back_while_the_root_is_away_is_freed_when_it_is_back(monkeypatch):
    with (
        ServedNode() as node,
        EventPump() as pump,
        node.manager() as here,
        node.manager() as there,
    ):
        broker = QueueBroker("passing", pump, here)
        ask = here._link.ask
        away = [RootAway("there is no root at the moment")] * 3

        def ask_a_root_that_is_away(frame, answered):
            if isinstance(frame, frames.ReleaseName) and away:
                answered(away.pop())
            else:
                ask(frame, answered)

        monkeypatch.setattr(here._link, "ask", ask_a_root_that_is_away)
        broker.close()
        QueueBroker("passing", pump, there).close()


class Answers:
    """A node that knows every name."""

    def ask(self, frame, answered):
        answered(frames.NameIs(0, "full-event", b"", "", b"", "", b"", b""))


def test_names_that_were_looked_up_long_ago_are_forgotten(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(calling, "monotonic", lambda: now[0])
    loop = NamesLoop()
    directory = Directory(Answers(), loop)
    for number in range(1000):
        now[0] += 1.0
        directory.look_up(f"name {number}", lambda _answer: None)
    loop.close()
    assert len(directory._found) <= calling.REMEMBERED_SECONDS + 1
