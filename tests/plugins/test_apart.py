"""A plug-in in a process of its own: it judges as within the node, and harms nobody else."""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import hocket
from hocket import frames
from hocket.core.session.numbers import numbers_of
from hocket.errors import Busy, HocketError, NotAllowed, Rejected
from hocket.node.requests import dockets
from hocket.plugins import apart, apart_main, warden
from hocket.plugins.enabling import enable
from hocket.plugins.found import Unusable
from hocket.plugins.letters import Inbox, Kind
from hocket.plugins.testing import BrokerWith, broker_with
from hocket.wire.batch import encode
from tests.plugins.test_hooks import Raw
from tests.plugins.wild import (
    Dead,
    Doorman,
    Ears,
    Failing,
    Gate,
    Hungry,
    Lenient,
    Stamp,
    Veto,
    Wild,
)
from tests.support.cli import serving
from tests.support.plugins import package

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory is watched on Linux only")
DEADLINE_MS = 400.0
BY_THE_DEADLINE = ("sleep", "spin")  # what ends a process that never ends by itself
LONG = os.environ.get("HOCKET_STRESS") == "long"
WILD = ["sleep", "spin", "eat", "crash", "leave", "scribble"] if LONG else ["spin", "eat"]


def until(true: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not become true in time"
        time.sleep(0.005)


def messages(client: hocket.Client, topic: str, count: int) -> list[hocket.Message]:
    with client.subscribe(topic, start="earliest") as subscription:
        return [subscription.receive(10) for _ in range(count)]


def process_of(broker: BrokerWith, name: str) -> apart.Apart:
    process = broker.plugin(name).apart
    assert process is not None
    return process


def test_it_changes_and_rejects_and_those_behind_it_see_what_it_made():
    with broker_with(Wild, Stamp, apart=[Wild]) as broker:
        client = broker.client
        client.create_topic("t")
        client.publish("t", b"one")
        with pytest.raises(Rejected, match="not this one"):
            client.publish("t", b"refuse")
        with pytest.raises(Rejected, match="'wild', which has to look at these messages, failed"):
            client.publish("t", b"raise")
        with (
            pytest.raises(Rejected, match="without a transaction"),
            client.transaction("job") as transaction,
        ):
            transaction.send("t", b"changed")
        (message,) = messages(client, "t", 1)
        assert message.headers["judged"] != b"by %d" % os.getpid()
        assert message.headers["stamp"] == b"judged"
        assert broker.plugin("wild").problem == "on_publish: KeyError: 'of the plug-in'"
        timing = broker.plugin("wild").timings["on_publish"]
        assert (timing.calls, timing.rejections, timing.failures) == (4, 1, 1)


@pytest.mark.parametrize("order", [(Stamp, Wild), (Wild, Stamp)] if LONG else [(Wild, Stamp)])
def test_several_apart_are_asked_in_their_order(order: tuple[type, ...]):
    with broker_with(*order, apart=order) as broker:
        broker.client.create_topic("t")
        broker.client.publish("t", b"one")
        (message,) = messages(broker.client, "t", 1)
        assert message.headers["stamp"] == (b"" if order[0] is Stamp else b"judged")


@pytest.mark.parametrize("word", WILD)
def test_one_that_runs_wild_is_ended_and_comes_back(word: str, caplog: pytest.LogCaptureFixture):
    # On a busy machine the others take a while until they end: the deadline is not to come first.
    deadline_ms = 1_000.0 if word in BY_THE_DEADLINE else 20_000.0
    with broker_with(
        Wild, apart=[Wild], topics={"wild": ["t"]}, deadline_ms=deadline_ms, memory_max="96MiB"
    ) as broker:
        client, process = broker.client, process_of(broker, "wild")
        client.create_topic("t")
        client.create_topic("other")
        client.publish("t", b"before")
        with client.producer("t") as producer:
            spoilt = producer.send_future(word.encode())
            until(lambda: process.waiting or spoilt.done())
            for number in range(20):  # the node goes on, and so does whoever does not need it
                client.publish("other", b"%d" % number)
            with pytest.raises(Rejected, match="'wild', which has to look at these messages: "):
                spoilt.result(30)
            behind = producer.send_future(b"behind")
            assert behind.result(20).offset == 1  # it was refused, and sent again by the client
            with pytest.raises(Rejected):
                producer.close()
        assert process.ends == 1
        assert process.kills == (word in (*BY_THE_DEADLINE, "scribble"))
        assert process.state == "running"
        assert [each.value for each in messages(client, "t", 2)] == [b"before", b"behind"]
        (state,) = client.plugins().hooks
        assert (state.process, state.ends, state.waiting) == ("running", 1, 0)
        assert state.failures == 1
    reasons = {
        "sleep": "did not answer within 1 s", "spin": "did not answer within 1 s",
        "eat": "wants more than 96 MiB of memory", "crash": "ended by SIGABRT",
        "leave": "ended by itself, with exit code 3", "scribble": "has sent a letter of 0 bytes",
    }  # fmt: skip
    assert "plug-in 'wild' has lost its process: on_publish: " in caplog.text
    assert reasons[word] in caplog.text


def test_while_an_open_one_has_no_process_messages_pass():
    with broker_with(Lenient, apart=[Lenient], deadline_ms=DEADLINE_MS) as broker:
        client, process = broker.client, process_of(broker, "lenient")
        client.create_topic("t")
        client.publish("t", b"crash")  # which passes, since nobody has said no
        client.publish("t", b"raise")
        until(lambda: process.state == "running")
        client.publish("t", b"judged")
        crashed, raised, judged = messages(client, "t", 3)
        assert crashed.headers == {}
        assert raised.headers == {}
        assert set(judged.headers) == {"judged"}
        assert broker.plugin("lenient").is_on


def test_an_open_one_that_always_raises_is_switched_off_and_its_process_ends():
    with broker_with(Lenient, apart=[Lenient], failures_max=2) as broker:
        client, process = broker.client, process_of(broker, "lenient")
        client.create_topic("t")
        for _ in range(3):
            client.publish("t", b"raise")
        assert not broker.plugin("lenient").is_on
        assert process.state == "stopped"
        assert broker._broker.node.wiring.hooks.judges is None
        assert [each.process for each in client.plugins().hooks] == ["stopped"]


def push(raw: Raw, handle: int, producer_id: bytes, sequence: int, *values: bytes) -> None:
    batch = encode(values, timestamps=7, producer_id=producer_id, sequence=sequence)
    raw.send(frames.Push(0, handle, 0), [batch])


def acked_offsets(raw: Raw, count: int) -> list[int]:
    """One frame may acknowledge several batches."""
    offsets: list[int] = []
    while len(offsets) < count:
        offsets += numbers_of(raw.next(frames.PushAcked).offsets)
    return offsets


def test_batches_of_a_producer_stay_in_order_and_are_stored_once():
    """Also those that come again while the first one waits."""
    with broker_with(Wild, apart=[Wild]) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw, Raw(broker) as again:
            raw.send(frames.OpenProducer(2, "t"))
            opened = raw.next(frames.ProducerOpened)
            push(raw, opened.handle, opened.producer_id, 0, b"wait 0.3")
            push(raw, opened.handle, opened.producer_id, 1, b"one")
            again.send(frames.OpenProducer(2, "t", producer_id=opened.producer_id))
            reopened = again.next(frames.ProducerOpened)
            push(again, reopened.handle, opened.producer_id, 0, b"wait 0.3")
            push(again, reopened.handle, opened.producer_id, 1, b"one")
            push(raw, opened.handle, opened.producer_id, 2, b"two")
            assert acked_offsets(raw, 3) == [0, 1, 2]
            assert acked_offsets(again, 2) == [0, 1]
        values = [each.value for each in messages(broker.client, "t", 3)]
        assert values == [b"wait 0.3", b"one", b"two"]
        assert broker.client.describe("t").partitions[0].end == 3
        assert broker.plugin("wild").timings["on_publish"].calls == 3


def test_what_is_behind_a_refused_batch_is_refused_and_may_come_again():
    with broker_with(Wild, apart=[Wild]) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            raw.send(frames.OpenProducer(2, "t"))
            opened = raw.next(frames.ProducerOpened)
            got: queue.Queue[object] = raw._frames
            push(raw, opened.handle, opened.producer_id, 0, b"refuse")
            push(raw, opened.handle, opened.producer_id, 1, b"behind")
            first, second = got.get(timeout=10), got.get(timeout=10)
            assert isinstance(first, frames.PushRefused)
            assert isinstance(second, frames.PushRefused)
            assert (first.sequence, first.code) == (0, "rejected")
            assert (second.sequence, second.code) == (1, "sequenceGap")
            push(raw, opened.handle, opened.producer_id, 0, b"fine")
            push(raw, opened.handle, opened.producer_id, 1, b"behind")
            assert acked_offsets(raw, 2) == [0, 1]
        assert [each.value for each in messages(broker.client, "t", 2)] == [b"fine", b"behind"]


def test_what_waits_when_its_connection_ends_is_stored():
    with broker_with(Wild, apart=[Wild]) as broker:
        broker.client.create_topic("t")
        raw = Raw(broker)
        raw.send(frames.OpenProducer(2, "t"))
        opened = raw.next(frames.ProducerOpened)
        push(raw, opened.handle, opened.producer_id, 0, b"wait 0.2")
        until(lambda: process_of(broker, "wild").waiting)
        raw._link.close()
        assert messages(broker.client, "t", 1)[0].value == b"wait 0.2"


def test_a_topic_that_goes_while_a_batch_waits():
    with broker_with(Wild, apart=[Wild]) as broker:
        client = broker.client
        client.create_topic("t")
        with Raw(broker) as raw:
            batch = encode([b"wait 0.3"], timestamps=7)
            raw.send(frames.Publish(5, "t", 0), [batch])
            until(lambda: process_of(broker, "wild").waiting)
            client.delete_topic("t")
            client.create_topic("t")
            refused = raw._frames.get(timeout=10)
            assert isinstance(refused, frames.Failure)
            assert (refused.request, refused.code) == (5, "unknownTopic")
        assert client.describe("t").partitions[0].end == 0


def test_a_node_that_goes_down_refuses_what_waits():
    """And whoever sent it knows that it may send it again."""
    with broker_with(Wild, apart=[Wild], deadline_ms=20_000) as broker:
        broker.client.create_topic("t")
        raw = Raw(broker)
        raw.send(frames.OpenProducer(2, "t"))
        opened = raw.next(frames.ProducerOpened)
        push(raw, opened.handle, opened.producer_id, 0, b"sleep")
        until(lambda: process_of(broker, "wild").waiting)
    refused = raw._frames.get(timeout=10)
    assert isinstance(refused, frames.PushRefused)
    assert (refused.sequence, refused.code) == (0, "shuttingDown")


def test_a_process_that_starts_while_the_node_goes_down_leaves_no_socket(
    monkeypatch: pytest.MonkeyPatch,
):
    one = apart.Apart("one", {"memory_bytes": 0}, 1.0)
    ready = warden.Ready(("on_publish",), "closed", "")
    pairs = [socket.socketpair() for _ in range(4)]
    before, latest, meanwhile, too_late = (
        warden.Process(0, ours, Inbox(1_000), ready) for ours, _ in pairs
    )
    monkeypatch.setattr(one._warden, "close", lambda _seconds: one.started(meanwhile))
    monkeypatch.setattr(apart, "GOODBYE_SECONDS", 0.1)
    one.started(before)  # whose end no loop has seen
    one.started(latest)
    one.close()
    one.started(too_late)
    assert [ours.fileno() for ours, _ in pairs] == [-1] * 4
    for _, its in pairs:
        its.close()


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(apart, "QUESTION_BYTES_MAX", 10_000)
    with broker_with(Wild, apart=[Wild], deadline_ms=20_000) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            for request in range(5, 25):
                word = b"wait 0.2" if request == 5 else b"x" * 1_000
                raw.send(frames.Publish(request, "t", 0), [encode([word], timestamps=7)])
            answers = [raw._frames.get(timeout=10) for _ in range(20)]
        busy = [each for each in answers if isinstance(each, frames.Failure)]
        stored = [each for each in answers if isinstance(each, frames.Published)]
        assert {each.code for each in busy} == {Busy.code}
        assert len(busy) > 5
        assert len(stored) > 3
        assert [each.offset for each in stored] == list(range(len(stored)))


def test_who_does_not_get_its_turn_in_time_is_put_off():
    with broker_with(Wild, apart=[Wild], deadline_ms=1_000) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            for request in range(5, 10):  # each is in time, and all of them together are not
                raw.send(frames.Publish(request, "t", 0), [encode([b"wait 0.7"], timestamps=7)])
            answers = [raw._frames.get(timeout=10) for _ in range(5)]
        by_request = {each.request: each for each in answers}
        assert isinstance(by_request[5], frames.Published)
        assert isinstance(by_request[6], frames.Published)
        assert isinstance(by_request[9], frames.Failure)
        assert by_request[9].code == Busy.code
        assert process_of(broker, "wild").kills == 0


def test_a_batch_that_is_larger_than_all_that_may_wait_passes(monkeypatch: pytest.MonkeyPatch):
    """Else it would be refused as long as it is sent again."""
    monkeypatch.setattr(dockets, "UNASKED_BYTES_MAX", 1_000)
    with broker_with(Wild, apart=[Wild]) as broker:
        broker.client.create_topic("t")
        broker.client.publish("t", b"x" * 2_000, timeout=5)


def test_when_it_is_switched_off_those_within_the_node_still_see_what_waits():
    with broker_with(Failing, Stamp, apart=[Failing], failures_max=1) as broker:
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            raw.send(frames.OpenProducer(2, "t"))
            opened = raw.next(frames.ProducerOpened)
            for sequence in (0, 0, 1):  # what comes again waits for its turn, and so does the next
                push(raw, opened.handle, opened.producer_id, sequence, b"%d" % sequence)
            assert acked_offsets(raw, 3) == [0, 0, 1]
        assert not broker.plugin("failing").is_on
        assert [set(each.headers) for each in messages(broker.client, "t", 2)] == [{"stamp"}] * 2


def test_one_that_has_answered_in_time_is_not_ended_because_the_node_was_slow():
    with broker_with(Wild, apart=[Wild], deadline_ms=200) as broker:
        process = process_of(broker, "wild")
        broker.client.create_topic("t")
        with Raw(broker) as raw:
            raw.send(frames.Publish(5, "t", 0), [encode([b"wait 0.05"], timestamps=7)])
            until(lambda: process.waiting)
            broker.on_its_thread(lambda: time.sleep(0.4))
            assert isinstance(raw._frames.get(timeout=10), frames.Published)
        assert process.kills == 0


def test_threads_of_a_plug_in_that_log_do_not_write_into_its_answers():
    ours, its = socket.socketpair()
    with ours, its:
        slow = Slow(its)
        mail = apart_main.Mail(slow)  # type: ignore[arg-type]
        logs = threading.Thread(target=mail.log, args=(logging.INFO, "", "a line"))
        answer = threading.Thread(target=mail.send, args=(Kind.CHANGED, 1, 0, None, b"batch"))
        answer.start()
        assert slow.is_writing.wait(30)
        logs.start()
        answer.join()
        logs.join()
        letters = list(Inbox(1_000).letters(ours.recv(1_000)))
    assert [each.kind for each in letters] == [Kind.CHANGED, Kind.LOG]
    assert bytes(letters[0].body) == b"batch"


def test_a_line_that_cannot_be_written_is_told_and_fails_nothing(
    capsys: pytest.CaptureFixture[str],
):
    ours, its = socket.socketpair()
    with ours, its:
        handler = apart_main._Handler(apart_main.Mail(its))
        wrong = logging.LogRecord("p", logging.INFO, "p.py", 1, "%d of them", ("some",), None)
        right = logging.LogRecord("p", logging.INFO, "p.py", 1, "%d of them", (3,), None)
        handler.handle(wrong)
        handler.handle(right)
        (letter,) = Inbox(1_000).letters(ours.recv(1_000))
    assert letter.head == [logging.INFO, "p", "3 of them"]
    assert "%d of them" in capsys.readouterr().err


class Slow:
    """A socket that takes its time after each piece."""

    def __init__(self, sock: socket.socket) -> None:
        self.is_writing = threading.Event()
        self._socket = sock

    def sendall(self, piece: bytes) -> None:
        self._socket.sendall(piece)
        self.is_writing.set()
        time.sleep(0.05)


def test_it_hears_of_topics_and_deliveries_and_nobody_waits(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    with broker_with(Ears, apart=[Ears], deadline_ms=DEADLINE_MS) as broker:
        client, process = broker.client, process_of(broker, "ears")
        client.create_topic("t")
        client.publish("t", b"one")
        with client.subscribe("t", index="own", start="earliest") as subscription:
            assert subscription.receive(10).value == b"one"
            until(lambda: "delivered t own 1 [b'one']" in caplog.text)
            client.publish("t", b"deaf")
            assert subscription.receive(10).value == b"deaf"
            client.publish("t", b"two")
            assert subscription.receive(10).value == b"two"
        until(lambda: process.kills == 1 and process.state == "running")
        assert process.dropped["on_deliver"] >= 1
        client.alter_topic("t", partitions=2)
        client.delete_topic("t")
        until(lambda: "deleted t" in caplog.text)
    said = [each.getMessage() for each in caplog.records if "plug-in 'ears': " in each.getMessage()]
    assert [each.partition(": ")[2] for each in said] == [
        "created t 1", "delivered t own 1 [b'one']", "altered t 2", "deleted t", "closed",
    ]  # fmt: skip


def test_users_log_in_by_a_process_of_its_own():
    with broker_with(Doorman, apart=[Doorman], deadline_ms=DEADLINE_MS) as broker:
        broker.client.create_user("alice", roles=["admin"])
        url = broker.listen()
        with hocket.connect(url, token="ecila") as alice:
            alice.create_topic("t")
        for wrong in ("nobody", "true"):
            with pytest.raises(NotAllowed, match="not that of a user"):
                hocket.connect(url, token=wrong)
        assert "it has to return a text" in broker.plugin("doorman").problem
        asleep = threading.Thread(target=login, args=(url, "sleep"))
        asleep.start()
        until(lambda: process_of(broker, "doorman").waiting)
        until(lambda: login(url, "ecila"))  # which is put off while there is no process
        asleep.join(20)
        assert process_of(broker, "doorman").kills >= 1


def login(url: str, token: str) -> bool:
    try:
        hocket.connect(url, token=token, timeout=3).close()
    except HocketError:
        return False
    return True


@pytest.mark.parametrize(
    ("plugin", "words"),
    [
        (Veto, "'veto' cannot run apart: the node cannot wait for another process in authorize"),
        (Dead, "'dead' did not get ready: its process ended by itself, with exit code 7"),
        (Gate, "'gate' cannot run apart: .* in open_door; run it inline"),
        (Hungry, "'hungry' cannot be started: MemoryError"),
    ][: None if LONG else 2],
)
def test_one_that_cannot_run_apart_says_why(plugin: type, words: str):
    with (
        pytest.raises(Unusable, match=words) as caught,
        broker_with(plugin, apart=[plugin], memory_max="96MiB"),
    ):
        pass
    assert "\n" not in str(caught.value)


GUARD = """
import os, time
from hocket.plugins import Rejected, hook

class Plugin:
    api = 1

    @hook
    def on_publish(self, batch):
        print("judges in", os.getpid())
        if batch.values == (b"no",):
            raise Rejected("nobody says no here")
        if batch.values == (b"spin",):
            while True:
                pass
"""


@pytest.mark.parametrize(
    ("source", "table", "words"),
    [
        ("import nothing_of_that_name\n", {}, "cannot be imported: ModuleNotFoundError"),
        (GUARD.replace("api = 1", "api = 2"), {}, "is for version 2, and this broker has version"),
        (GUARD.replace("on_publish", "on_thursday"), {}, "wants a hook that is not there"),
        (GUARD, {"word": "x"}, "has no settings, and 'word' is set"),
        (GUARD, {"deadline-ms": 0}, "'deadline-ms' is 1 to 60000, not 0"),
        (GUARD, {"slow-ms": float("inf")}, "'slow-ms' is 0 or more, not inf"),
        (GUARD, {"slow-ms": float("nan")}, "'slow-ms' is 0 or more, not nan"),
        (GUARD, {"failures-max": 0}, "'failures-max' is 1 or more, not 0"),
        (GUARD, {"memory-max": "1KiB"}, "'memory-max' is 64MiB or more, not 1KiB"),
        (GUARD, {"memory-max": "much"}, "memory-max must look like"),
        (GUARD, {"run": "beside"}, "'run' must be 'inline' or 'apart', not 'beside'"),
    ],
)
def test_bad_input_is_told_in_one_line(
    source: str, table: dict[str, object], words: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
):  # fmt: skip
    package(tmp_path, "guard", source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unusable, match=f"plug-in 'guard'.*{words}") as caught:
        enable(["guard"], {"guard": {"run": "apart", **table}})
    assert "\n" not in str(caught.value)
    if not table or "word" in table:
        host = enable(["guard"], {"guard": {"policy": "open", **table}}, apart=["guard"])
        assert host.plugins == []
        assert "the node starts without a plug-in: plug-in 'guard'" in caplog.text


def test_what_is_for_one_apart_alone_is_refused_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    package(tmp_path, "guard", GUARD)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(Unusable, match=r"'deadline-ms' is for a plug-in with run = \"apart\""):
        enable(["guard"], {"guard": {"deadline-ms": 5}})
    with pytest.raises(Unusable, match="'other' is to run apart, and is not enabled"):
        enable(["guard"], {}, apart=["other"])


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def children(pid: int) -> list[int]:
    listed = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False
    )
    return [int(each) for each in listed.stdout.split()]


def test_a_served_node_runs_one_apart_and_leaves_no_process_behind(tmp_path: Path):
    site = tmp_path / "site"
    site.mkdir()
    package(site, "guard", GUARD)
    config = tmp_path / "hocket.toml"
    config.write_text('plugin = ["guard"]\n[plugins.guard]\nrun = "apart"\ndeadline-ms = 20000\n')
    for end in (signal.SIGTERM, signal.SIGKILL):
        with serving(tmp_path / "data", "--config", str(config), PYTHONPATH=str(site)) as broker:
            (child,) = [
                each for each in children(broker.process.pid)
                if "apart_main" in Path(f"/proc/{each}/cmdline").read_text()
            ]  # fmt: skip
            with hocket.connect(broker.url) as client:
                if end == signal.SIGTERM:
                    client.create_topic("t")
                with pytest.raises(Rejected, match="nobody says no here"):
                    client.publish("t", b"no")
                (state,) = client.plugins().hooks
                assert (state.process, state.calls, state.rejections) == ("running", 1, 1)
                producer = client.producer("t")
                producer.send_future(b"spin")  # it does not even look whether its node is there
                until(lambda: client.plugins().hooks[0].waiting == 1)
                with suppress(HocketError):
                    client.close(timeout=0.1)
            broker.process.send_signal(end)
            broker.process.wait(30)
            until(lambda child=child: not is_alive(child))
