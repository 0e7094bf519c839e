"""An interrupt in the middle of a client's turn ends the client: every later call says so."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket.client_core.session.session import Session
from hocket.errors import Closed, HocketError
from tests.support.processes.server import ServerProcess
from tests.support.threads import Running, wait_parked

ROUNDS, MOST = 20, 400
ENDED = "KeyboardInterrupt came while this client was at work"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[hocket.Client]:
    with hocket.embedded(tmp_path / "data") as client:
        client.create_topic("t")
        yield client


def interrupt_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request is interrupted when it is numbered, and not sent yet."""
    send = Session._send

    def interrupted(self: Session, request: object) -> None:
        monkeypatch.setattr(Session, "_send", send)
        raise KeyboardInterrupt

    monkeypatch.setattr(Session, "_send", interrupted)


def test_every_later_call_says_what_has_happened(client, monkeypatch):
    producer = client.producer("t", linger=60)
    sent = producer.send_future(b"one")
    messages = client.subscribe("t")
    transaction = client.transaction("x")
    transaction.send("t", b"staged")
    interrupt_once(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        client.topics()
    for call in (
        client.topics,
        lambda: client.publish("t", b"?"),
        lambda: client.producer("t"),
        lambda: client.subscribe("t"),
        lambda: producer.send(b"?"),
        lambda: producer.flush(5),
        lambda: messages.receive(5),
        lambda: transaction.send("t", b"?"),
        lambda: transaction.commit(5),
        lambda: sent.result(5),
    ):
        with pytest.raises(Closed, match=ENDED) as caught:
            call()
        assert caught.value.may_have_happened
    for each in (messages, producer, transaction, client, client):
        each.close()  # there is nothing to say any more


def test_the_interrupt_itself_leaves_the_with_blocks(tmp_path, monkeypatch):
    def work() -> None:
        with hocket.embedded(tmp_path / "data") as client:
            client.create_topic("t")
            with client.producer("t") as producer, client.subscribe("t"), client.transaction("x"):
                producer.send(b"one")
                interrupt_once(monkeypatch)
                client.topics()

    with pytest.raises(KeyboardInterrupt):
        work()
    with hocket.embedded(tmp_path / "data") as client:  # which nobody holds any more
        assert client.topics() == ["t"]


def test_other_threads_that_wait_are_told(client, monkeypatch):
    messages = client.subscribe("t")
    told: list[HocketError] = []

    def wait() -> None:
        with pytest.raises(Closed, match=ENDED) as caught:
            messages.receive(None)
        told.append(caught.value)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_parked(thread)
    interrupt_once(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        client.topics()
    thread.join(20)
    assert told


def outcome_of_an_interrupt(url: str, delay: float) -> str:
    """Of one that comes so many seconds after the main thread has begun to be busy."""
    main = threading.main_thread()
    busy = threading.Event()

    def interrupt() -> None:
        busy.wait(20)
        time.sleep(delay)
        assert main.ident is not None
        signal.pthread_kill(main.ident, signal.SIGINT)

    def work() -> None:
        began = time.monotonic()
        busy.set()  # and not before: an interrupt while the thread starts would end the tests
        while time.monotonic() < began + 20:
            # Nothing is sent, and nothing waited for: else most interrupts would come in a call of
            # the system, and not within a turn.
            producer.flush()

    client = hocket.connect(url)
    producer = client.producer("t")
    try:
        with pytest.raises(KeyboardInterrupt), Running(interrupt):
            work()
        if client._engine.interrupted is None:
            assert client.topics(timeout=10) == ["t"]
            return "goes on"
        with pytest.raises(Closed, match=ENDED):
            client.topics(timeout=10)
        return "has ended"
    finally:
        client.close()


def test_wherever_an_interrupt_comes_the_client_goes_on_or_says_that_it_has_ended(tmp_path):
    with ServerProcess(tmp_path) as server:
        with hocket.connect(server.address) as client:
            client.create_topic("t")
        outcomes: list[str] = []
        while len(outcomes) < ROUNDS or ("has ended" not in outcomes and len(outcomes) < MOST):
            delay = 0.0005 + len(outcomes) % ROUNDS * 0.0005
            outcomes.append(outcome_of_an_interrupt(server.address, delay))
    assert "has ended" in outcomes
