"""The runs of pipelines in the broker's topic: seen from anywhere, refused twice, stopped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket.client.faces.blocking.client import Client
from hocket.pipelines.runs import AlreadyRunning, LiveRun, Runs, UnknownPipeline
from tests.support.pipelines import hocket as hocket_command
from tests.support.processes.server import ServerProcess
from tests.support.threads import until

UPDATE = {
    "number": 1, "seconds": 2.0, "rows": 5, "rows_per_second": 2.5, "bad": 1, "lag": {"a": 0},
    "rows_in_all": 5, "bad_in_all": 1,
}  # fmt: skip


@pytest.fixture
def other(broker: ServerProcess) -> Iterator[Client]:
    """A terminal elsewhere."""
    with hocket.connect(broker.address) as found:
        yield found


def begun(client: Client, name: str) -> LiveRun:
    run = LiveRun(client, name)
    run.begin(directory=f"/srv/{name}", master="local[2]")
    return run


def test_a_run_is_seen_from_another_terminal_from_its_beginning_to_its_end(
    client: Client, other: Client
) -> None:
    run = begun(client, "seen")
    assert Runs(other).one("seen").state == "running"
    run.say("update", **UPDATE)
    found = Runs(other).one("seen")
    assert (found.updates, found.rows, found.bad, found.update["lag"]) == (1, 5, 1, {"a": 0})
    run.end("finished")
    assert Runs(other).one("seen").state == "finished"
    kinds = [event["kind"] for event in Runs(other).events("seen")]
    assert kinds == ["started", "update", "ended"]


def test_a_second_run_of_the_same_name_is_refused_by_name(client: Client, other: Client) -> None:
    run = begun(client, "twice")
    with pytest.raises(AlreadyRunning, match=r"'twice' runs already as process \d+ on "):
        begun(other, "twice")
    other_name = begun(other, "twice-2")
    other_name.end("finished")
    run.end("stopped")
    begun(other, "twice").end("finished")


def test_a_run_hears_that_it_is_asked_to_stop_and_no_other_does(
    client: Client, other: Client
) -> None:
    run, bystander = begun(client, "stopped"), begun(client, "bystander")
    Runs(other).ask_to_stop("stopped")
    assert until(lambda: run.listen(0.1))
    assert run.stop_reason == "asked to stop"
    assert not bystander.listen(0.1)
    run.end("stopped")
    bystander.end("finished")
    again = begun(client, "stopped")
    assert not again.listen(0.1), "an old request is none of a new run's business"
    again.end("finished")


def test_of_two_runs_that_begin_at_once_the_earlier_one_stops(
    client: Client, other: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(client, "race")
    with monkeypatch.context() as patch:
        patch.setattr(Runs, "is_attached", lambda *_: False)  # both looked before either was there
        second = begun(other, "race")
    assert until(lambda: first.listen(0.1))
    assert "another run of 'race' has " in first.stop_reason
    assert not second.listen(0.1)
    second.end("finished")


def test_a_run_whose_place_another_has_taken_stops_though_it_heard_nothing_of_it(
    client: Client, other: Client
) -> None:
    """As when the node with the state of runs died: the name looked free until it had come back."""
    run = begun(client, "taken")
    with other.subscribe("hocket.pipelines", index="taken"):
        assert until(lambda: run.listen(0.1))
    assert run.stop_reason == "another run of 'taken' has taken its place"
    run.end("stopped")


def test_a_run_whose_process_dies_is_seen_to_have_died(
    broker: ServerProcess, other: Client
) -> None:
    dying = hocket.connect(broker.address)
    begun(dying, "dying")
    dying.close()  # to the broker it is the same: the connection is gone
    assert until(lambda: Runs(other).one("dying").state == "died")
    run = begun(other, "dying")  # and the name is free
    run.end("finished")


def test_a_pipeline_that_never_ran_is_unknown(client: Client) -> None:
    with pytest.raises(UnknownPipeline, match="no run of a pipeline 'nobody'"):
        Runs(client).one("nobody")


def test_there_are_none_before_the_first(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, hocket.connect(server.address) as client:
        assert Runs(client).all() == {}


NONSENSE = [
    b"", b"[]", b"{", b"[" * 100_000, b'{"kind": "started"}', b'{"kind": ["started"]}',
    b'{"kind": "started", "at": NaN, "run": "x", "host": "h", "pid": 1, "directory": "d", '
    b'"master": "m"}',
    b'{"kind": "ended", "at": 1, "run": "RUN"}',
    b'{"kind": "update", "at": 1, "run": "RUN", "number": "one"}',
    b'{"kind": "line", "at": 1e300, "run": "RUN", "text": "words"}',
]  # fmt: skip


def test_what_no_run_has_written_keeps_nobody_from_seeing_the_runs(
    broker: ServerProcess, client: Client, tmp_path: Path
) -> None:
    live = begun(client, "nonsense")
    for said in NONSENSE:
        value = said.replace(b"RUN", live.run.encode())
        client.publish("hocket.pipelines", value, key=b"nonsense")
    for command in ("list", "status nonsense", "logs nonsense"):
        shown = hocket_command(broker.address, "pipeline", *command.split(), cwd=tmp_path)
        assert "running" in shown.stdout or "started" in shown.stdout
        assert not shown.stderr
    live.end("stopped")
