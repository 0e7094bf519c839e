"""kill -9 of either side at random moments: every message is accounted for, and names move on."""

import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest

from hocket.errors import Aborted, NameInUse, NoConnection, UnknownBroker
from hocket.local import EventPump, QueueBroker
from tests.support.remote.served import GRACE_US, ServedNode
from tests.support.remote.talker import PORT, Meeting
from tests.support.threads import LONG, until

ROUNDS = 200 if LONG else 6
WAYS = ["direct", "node"]


class Recorder:
    """The side that survives: it sends, takes, and hears how it ended."""

    def __init__(self, queue):
        self.queue = queue
        self.accepted = []  # what `send` took
        self.taken = []
        self.reason = None
        self.ended = threading.Event()

    def received(self, message):
        self.taken.append(int(message))

    def closed(self, reason):
        self.reason = reason
        self.ended.set()

    def talk(self):
        self.queue.set_listener(self)
        number = 0
        while not self.queue.closed:
            if self.queue.send(b"%d" % number):
                self.accepted.append(number)
                number += 1
            else:
                time.sleep(0.001)


def noted(path, what):
    """What a process that died has written down."""
    lines = path.read_text().splitlines() if path.exists() else []
    return [int(line.split()[1]) for line in lines if line.startswith(what)]


def start(node, name, calls, path):
    command = [sys.executable, "-m", "tests.support.remote.talker", f"hocket://{node.address}"]
    process = subprocess.Popen([*command, name, calls, str(path)], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    return process


@pytest.mark.timeout(1200 if LONG else 120)  # fifty processes, one after the other, in the long run
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("victim", ["accepts", "calls"])
def test_whoever_is_killed_every_message_is_accounted_for(tmp_path, way, victim):
    with ServedNode(way) as node, node.manager() as manager, EventPump() as pump:
        for seed in range(ROUNDS // 4 if LONG else 2):
            rng = random.Random(f"{way}/{victim}/{seed}")
            one_round(node, manager, pump, tmp_path / f"{seed}.log", victim, seed, rng)


def one_round(node, manager, pump, path, victim, seed, rng):
    meeting = Meeting()
    with QueueBroker(f"survivor-{seed}", pump, manager, messages_max=64) as broker:
        if victim == "accepts":
            process = start(node, f"victim-{seed}", "-", path)
            broker.connect(f"victim-{seed}", PORT, meeting)
        else:
            broker.bind(PORT, meeting)
            process = start(node, f"victim-{seed}", broker.name, path)
        try:
            assert meeting.met.wait(30)
            assert meeting.reason is None
            recorder = Recorder(meeting.queue)
            talking = threading.Thread(target=recorder.talk)
            talking.start()
            enough = rng.choice([0, 1, 10, 200, 1000])
            until(lambda: len(recorder.taken) >= enough)
            time.sleep(rng.random() * 0.02)  # a random moment is what is tested here
        finally:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            process.stdout.close()
        assert recorder.ended.wait(30)
        talking.join(30)
    account(recorder, path)


def account(recorder, path):
    reason = recorder.reason
    assert isinstance(reason, Aborted)
    undelivered = [int(message) for message in reason.undelivered]
    in_doubt = [int(message) for message in reason.in_doubt]
    theirs_taken, theirs_sent = noted(path, "took"), noted(path, "sent")
    # Of ours: what is not listed was taken over there, in order, each once.
    assert theirs_taken == list(range(len(theirs_taken)))
    count = len(recorder.accepted)
    assert undelivered == list(range(count - len(undelivered), count))
    known_taken = count - len(undelivered)
    assert undelivered[: len(in_doubt)] == in_doubt
    # One more may have been taken than the victim came to write down.
    assert known_taken <= len(theirs_taken) + 1
    assert len(theirs_taken) <= known_taken + len(in_doubt)
    # Of theirs: what came is in order, each once, and was sent; the rest is unread here.
    unread = [int(message) for message in reason.unread]
    assert recorder.taken + unread == list(range(len(recorder.taken) + len(unread)))
    assert len(recorder.taken) + len(unread) <= len(theirs_sent)


def test_a_name_moves_on_when_its_process_has_died_and_not_before(tmp_path):
    with ServedNode() as node, node.manager() as manager, EventPump() as pump:
        process = start(node, "moves", "-", tmp_path / "log")
        with pytest.raises(NameInUse):
            QueueBroker("moves", pump, manager)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with QueueBroker("caller", pump, manager) as caller:
            meeting = Meeting()  # it is known still, and nobody is there
            caller.connect("moves", PORT, meeting)
            assert meeting.met.wait(30)
            assert isinstance(meeting.reason, UnknownBroker)
        began = time.monotonic()
        broker = until(lambda: _made("moves", pump, manager))
        assert time.monotonic() - began < 10 * GRACE_US / 1e6
        broker.close()


def _made(name, pump, manager):
    try:
        return QueueBroker(name, pump, manager)
    except NameInUse:
        return None


def test_a_name_follows_its_process_to_a_connection_that_comes_back():
    with (
        ServedNode() as node,
        node.manager() as manager,
        EventPump() as pump,
        QueueBroker("stays", pump, manager),
        node.manager() as other,
    ):
        link = manager._link
        before = link._talk
        manager._loop.post(lambda: before._fail(NoConnection("cut by the test")))
        until(lambda: link.welcome and link._talk is not before)
        naming = node.node.node.naming
        until(lambda: "stays" in naming._claims and not naming._unheld)
        with pytest.raises(NameInUse):
            QueueBroker("stays", pump, other)
