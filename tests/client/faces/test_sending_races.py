"""Many threads send through one producer without a lock, while the interpreter switches wildly."""

from __future__ import annotations

import sys
import threading
from contextlib import ExitStack

import pytest

import hocket
from hocket.client_core.consuming.progress import Progress
from hocket.errors import Closed
from tests.client.faces.test_reports import Model
from tests.support.client.sockets import ScriptedServer
from tests.support.threads import LONG, Running, until

ROUNDS = 30 if LONG else 3
THREADS = 4


@pytest.fixture(autouse=True)
def wild_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def check(values, taken):
    """Each thread's messages once, in its own order."""
    assert len(values) == len(set(values))
    for thread in range(THREADS):
        own = [n for t, n in (map(int, value.split(b"/")) for value in values) if t == thread]
        assert own == list(range(taken[thread]))


@pytest.mark.parametrize("linger", [0, 0.0001])
@pytest.mark.parametrize("keyed", [False, True])
def test_nothing_is_lost_or_left_lying(linger, keyed):
    for _ in range(ROUNDS):
        model = Model()
        with (
            ScriptedServer(model) as server,
            hocket.connect(server.url) as client,
            client.producer(
                "t", linger=linger, batch_bytes=300, window_bytes=3000, send_timeout=30
            ) as producer,
        ):

            def send(thread, producer=producer):
                for n in range(400):
                    producer.send(b"%d/%d" % (thread, n), b"key" if keyed and n % 3 else None)

            with ExitStack() as stack:
                for thread in range(THREADS):
                    stack.enter_context(Running(send, thread))
            # Without a flush: every record must have somebody who looks after it.
            until(lambda model=model: len(model.logs[0].values) == THREADS * 400)
        check(model.logs[0].values, [400] * THREADS)


def test_what_was_taken_before_closing_is_stored_and_nothing_else():
    for _ in range(ROUNDS):
        model = Model()
        taken = [0] * THREADS
        with ScriptedServer(model) as server, hocket.connect(server.url) as client:
            producer = client.producer("t", linger=0.0001, batch_bytes=300, window_bytes=3000)

            def send(thread, producer=producer, taken=taken):
                try:
                    while True:
                        producer.send(b"%d/%d" % (thread, taken[thread]))
                        taken[thread] += 1
                except Closed:
                    return

            with ExitStack() as stack:
                for thread in range(THREADS):
                    stack.enter_context(Running(send, thread))
                until(lambda taken=taken: min(taken) > 20)
                producer.close(timeout=30)
        check(model.logs[0].values, taken)


def test_acks_of_many_threads_are_all_counted():
    lock = threading.Lock()
    for _ in range(ROUNDS * 5):
        aroused = []

        def arouse(progress, aroused=aroused):
            aroused.append(progress)
            progress.awake = True

        progress = Progress(0, 0, 0, arouse)

        def ack(thread, progress=progress):
            for n in range(500):
                progress.ack(n * THREADS + thread)
                if n % 50 == 0:
                    with lock:  # as the client does; acks themselves take none
                        progress.gather_acks()

        with ExitStack() as stack:
            for thread in range(THREADS):
                stack.enter_context(Running(ack, thread))
        progress.gather_acks()
        assert progress.acked == 500 * THREADS
        assert aroused


def test_a_thread_that_may_not_wait_is_heard_by_whoever_has_the_lock():
    """Even if the client's own thread is busy with a callback, which waits for that very frame."""
    for _ in range(ROUNDS * 5):
        with hocket.embedded() as client:
            client.create_topic("t")
            done = []
            with client.producer(
                "t", linger=0, on_delivery=lambda _, c=client, d=done: d.append(c.publish("t", b""))
            ) as producer:
                for _ in range(20):
                    producer.send(b"a")
                    producer.flush(timeout=20)
            until(lambda done=done: len(done) == 20)
