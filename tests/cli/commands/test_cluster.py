"""`hocket cluster ...`: once with real brokers; the rest with processes that are only played."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from hocket.cli import authority, development, development_state, processes
from hocket.cli.development import DevelopmentCluster
from hocket.cli.processes import Process, Processes
from hocket.cluster_model import RingDescription, RingNode
from hocket.errors import NoConnection, NotAllowed
from tests.support.cli import NOBODY, Hocket, Outcome, fails
from tests.support.threads import PATIENCE, until

HOCKET = Hocket(NOBODY)


def test_a_cluster_of_real_brokers_from_up_to_down(tmp_path: Path):
    where = str(tmp_path / "cluster")
    began = HOCKET.run("cluster", "up", "-n", "2", "--plain", "--dir", where, "--json")
    try:
        assert began.code == 0, began
        made = began.json()
        assert made["ideal"] is True
        first, second = made["nodes"]
        assert made["url"] == f"hocket://{first['address']},{second['address']}"
        assert all(node["running"] for node in made["nodes"])
        assert [line.split()[1] for line in began.stderr.splitlines()] == ["node-1", "node-2"]

        shown = HOCKET("cluster", "status", "--dir", where).text()
        assert f"node-2  {second['address']}" in shown
        assert shown.endswith("the ring is ideal\n")

        at_first, at_second = (Hocket(f"hocket://{each['address']}") for each in (first, second))
        ring = at_second("ring", "--json").json()
        assert sorted(node["name"] for node in ring["nodes"]) == ["node-1", "node-2"]

        assert at_second("ring").text().endswith("\nthe ring is ideal\n")

        at_first("topic", "create", "orders", "--disk-retention", "3d").text()
        until(lambda: at_second("topic", "list", "--names").stdout == b"orders\n")
        at_first("publish", "orders", "one coffee").text()
        for hocket in (at_first, at_second):  # one of them is not the topic's home
            _asked_away_from_home(hocket)
    finally:
        ended = HOCKET("cluster", "down", "--dir", where)
    assert ended.text() == "node-1 stopped\nnode-2 stopped\n"
    assert HOCKET("cluster", "status", "--dir", where).code == 1


def _asked_away_from_home(hocket: Hocket) -> None:
    """What a topic holds is asked of its home."""
    assert hocket("topic", "list").text().splitlines()[1].split()[:3] == ["orders", "1", "1"]
    shown = hocket("topic", "describe", "orders")
    assert shown.code == 0, shown
    assert b"on disk      3d\n" in shown.stdout
    assert shown.stderr == ""
    described = hocket("topic", "describe", "orders", "--json").json()
    assert described["lost"] == {}
    (partition,) = described["partitions"]
    assert (partition["start"], partition["end"], partition["known"]) == (0, 1, True)
    nodes = [each["node"] for each in hocket("node", "list", "--json").json()]
    assert partition["leader"] in nodes
    assert partition["replicas"] == [partition["leader"]]
    (state,) = partition["replica_states"]
    assert (state["node"], state["role"], state["end"]) == (partition["leader"], "leader", 1)
    assert partition["problem"] == ""


# --- with processes that are only played ---------------------------------------------------------


class Played(Processes):
    """Brokers that are ready as soon as they start; a signal ends them."""

    def __init__(self) -> None:
        super().__init__()
        self.commands: list[list[str]] = []
        self.started = 0
        self.alive: dict[int, str] = {}
        self.signals: list[tuple[int, int]] = []
        self.broken = ""  # the name of a node that does not start
        self.stubborn = False  # SIGTERM is not enough
        self.clock = 0.0
        self.ring: Callable[[], RingDescription] = self._ideal
        self.environment: dict[str, str] = {}

    def start(
        self, command: Sequence[str], *, out: Path, log: Path, environment: dict[str, str]
    ) -> Process:
        self.commands.append(list(command))
        self.environment = environment
        self.started += 1
        pid = 1000 + self.started
        said = dict(zip(command[4::2], command[5::2], strict=True))
        out.write_text("")
        if said["--name"] == self.broken:
            log.write_text("one\nthe disk is on fire\n")
            return Process(pid, "never")
        port = int(said["--listen"].rpartition(":")[2]) or pid
        out.write_text(f"hocket 1 serving x on hocket://127.0.0.1:{port}\n")
        self.alive[pid] = f"start of {pid}"
        return Process(pid, self.alive[pid])

    def is_running(self, process: Process) -> bool:
        return self.alive.get(process.pid) == process.started

    def send(self, process: Process, number: signal.Signals) -> bool:
        if not self.is_running(process):
            return False
        self.signals.append((process.pid, number))
        if number == signal.SIGKILL or not self.stubborn:
            del self.alive[process.pid]
        return True

    def _ideal(self) -> RingDescription:
        nodes = tuple(RingNode(f"{n}", "", "", n, (), "", ()) for n in self.alive)
        return RingDescription("c", True, 8, nodes, ())

    def pause(self, seconds: float) -> None:
        self.clock += seconds


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Played:
    brokers = Played()
    monkeypatch.setattr(
        "hocket.cli.commands.cluster.DevelopmentCluster",
        partial(
            DevelopmentCluster, processes=brokers, ring=lambda _url, _ca: brokers.ring(),
            pause=brokers.pause, now=lambda: brokers.clock,
        ),
    )  # fmt: skip
    return brokers


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "cluster"


def cluster(verb: str, where: Path, *args: str) -> Outcome:
    return HOCKET("cluster", verb, "--dir", str(where), *args)


def names(played: Played) -> list[str]:
    return [command[command.index("--name") + 1] for command in played.commands]


def test_the_first_founds_it_and_the_others_join(
    played: Played, where: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOCKET_SERVE_JOIN", "elsewhere:1")
    said = cluster("up", where, "--plain")
    assert said.code == 0, said
    assert "export HOCKET_SERVER=hocket://127.0.0.1:1001,127.0.0.1:1002,127.0.0.1:1003\n" in (
        said.stdout.decode()
    )
    assert f"hocket cluster down --dir {where}\n".encode() in said.stdout
    assert b"HOCKET_TLS_CA" not in said.stdout
    founder, second, third = played.commands
    assert founder[:4] == [sys.executable, "-m", "hocket.cli", "serve"]
    assert "--join" not in founder
    assert second[-2:] == ["--join", "127.0.0.1:1001"]
    assert third[-2:] == ["--join", "127.0.0.1:1001,127.0.0.1:1002"]
    assert "HOCKET_SERVE_JOIN" not in played.environment
    assert (where / "node-3" / "pid").read_text() == "1003\n"


def test_with_tls_every_node_has_a_certificate(played: Played, where: Path):
    said = cluster("up", where, "-n", "2")
    assert said.code == 0, said
    assert f"export HOCKET_TLS_CA={where}/certs/ca.pem\n".encode() in said.stdout
    assert b"hockets://" in said.stdout
    for command in played.commands:
        certificate = Path(command[command.index("--tls-cert") + 1])
        assert certificate.exists()
        assert Path(command[command.index("--tls-key") + 1]).exists()
        assert command[-2:] == ["--tls-ca", str(where / "certs" / "ca.pem")]
    assert len({command[command.index("--tls-cert") + 1] for command in played.commands}) == 2
    before = sorted((where / "certs").iterdir())
    cluster("down", where)
    assert cluster("up", where).code == 0
    assert sorted((where / "certs").iterdir()) == before


def test_a_certificate_that_was_made_by_half_is_made_anew(tmp_path: Path):
    certs, data = tmp_path / "certs", tmp_path / "data"
    certificate, key = development.certified(certs, data)
    certificate.unlink()
    (certs / "ca.pem").unlink()
    assert development.certified(certs, data) == (certificate, key)
    assert certificate.exists()
    authority.Authority.load(authority.Pair.named(certs, "ca"))


def test_without_the_package_for_certificates_plain_is_named(
    played: Played, where: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delattr("hocket.cli.authority")
    monkeypatch.setitem(sys.modules, "hocket.cli.authority", None)
    fails(cluster("up", where), 1, "hocket[certs]", "--plain")
    assert played.commands == []
    assert cluster("up", where, "--plain").code == 0  # as it was told


def test_a_cluster_that_never_was_does_not_bind(played: Played, where: Path):
    played.broken = "node-1"
    assert cluster("up", where, "-n", "3").code == 1
    played.broken = ""
    assert cluster("up", where, "-n", "2", "--plain").code == 0
    assert names(played) == ["node-1", "node-1", "node-2"]


def test_up_again_starts_the_same_nodes_at_their_old_ports(played: Played, where: Path):
    cluster("up", where, "--plain")
    assert cluster("down", where).stdout == b"node-1 stopped\nnode-2 stopped\nnode-3 stopped\n"
    assert played.signals[-1] == (1001, signal.SIGTERM)  # the founder is the last
    assert not (where / "node-1" / "pid").exists()
    played.commands.clear()
    assert cluster("up", where).code == 0
    assert names(played) == ["node-1", "node-2", "node-3"]
    listens = [command[command.index("--listen") + 1] for command in played.commands]
    assert listens == ["127.0.0.1:1001", "127.0.0.1:1002", "127.0.0.1:1003"]


def test_a_cluster_that_runs_is_not_started_twice(played: Played, where: Path):
    cluster("up", where, "-n", "1", "--plain")
    fails(cluster("up", where), 1, "runs already", "hocket cluster down --dir")
    assert len(played.commands) == 1


def test_up_starts_the_nodes_that_have_died_and_new_ones(played: Played, where: Path):
    cluster("up", where, "--plain")
    del played.alive[1002]
    said = cluster("status", where)
    assert said.code == 1
    assert b"node-2  127.0.0.1:1002  1002     not running\n" in said.stdout
    played.commands.clear()
    assert cluster("up", where, "-n", "4").code == 0
    assert names(played) == ["node-2", "node-4"]
    assert cluster("status", where).code == 0


@pytest.mark.parametrize(
    ("made", "args", "said"),
    [
        (["--plain"], ["-n", "2"], "has 3 nodes"),
        ([], ["--plain"], "was made with TLS"),
    ],
)
def test_what_contradicts_the_cluster_is_refused(
    played: Played, where: Path, made: list[str], args: list[str], said: str
):
    cluster("up", where, *made)
    fails(cluster("up", where, *args), 1, said, "--dir DIR")
    assert len(played.alive) == 3


@pytest.mark.parametrize("count", ["0", "-1", "33", "many"])
def test_a_senseless_number_of_nodes_is_refused(where: Path, count: str):
    fails(cluster("up", where, "-n", count), 2, "-n")
    assert not where.exists()


def test_a_node_that_does_not_start_takes_the_others_down_and_says_why(played: Played, where: Path):
    played.broken = "node-2"
    said = cluster("up", where, "--plain")
    assert (said.code, said.stdout) == (1, b"")
    assert "  node-2: the disk is on fire\n" in said.stderr
    assert f"node-2 did not start; see above, and its log '{where}/node-2/log'" in said.stderr
    assert played.alive == {}
    played.broken = ""
    assert cluster("up", where).code == 0  # what is left is no obstacle
    assert len(played.alive) == 3


def test_only_what_was_started_is_stopped_again(played: Played, where: Path):
    cluster("up", where, "-n", "2", "--plain")
    played.broken = "node-3"
    assert cluster("up", where, "-n", "3").code == 1
    assert sorted(played.alive) == [1001, 1002]


def test_a_ring_that_does_not_become_ideal_is_a_failure(played: Played, where: Path):
    def nobody() -> RingDescription:
        raise NoConnection("nobody is there")

    played.ring = nobody
    fails_in_the_end = cluster("up", where, "--plain")
    assert fails_in_the_end.code == 1
    assert "the ring was not ideal within 60 s" in fails_in_the_end.stderr
    assert played.alive == {}


def test_nodes_that_ask_for_a_token_are_up_all_the_same(played: Played, where: Path):
    def refused() -> RingDescription:
        raise NotAllowed("this broker asks for a token")

    played.ring = refused
    said = cluster("up", where, "--plain")
    assert said.code == 0
    assert "HOCKET_TOKEN" in said.stderr
    assert cluster("status", where, "--json").json()["ideal"] is None


def test_an_interrupted_up_leaves_nothing_running(played: Played, where: Path):
    def interrupted() -> RingDescription:
        raise KeyboardInterrupt

    played.ring = interrupted
    assert cluster("up", where, "--plain").code == 130
    assert played.alive == {}


def test_a_node_that_does_not_end_is_killed(played: Played, where: Path):
    cluster("up", where, "-n", "1", "--plain")
    played.stubborn = True
    said = cluster("down", where).text()
    assert said == "node-1 did not stop within 15 s, and was killed\n"
    assert played.signals == [(1001, signal.SIGTERM), (1001, signal.SIGKILL)]


def test_a_process_with_the_same_id_is_not_ours(played: Played, where: Path):
    cluster("up", where, "-n", "1", "--plain")
    played.alive[1001] = "another start"
    shown = cluster("status", where, "--json")
    assert shown.code == 1
    assert shown.json()["nodes"][0]["running"] is False
    assert cluster("down", where).text() == "node-1 was not running\n"
    assert played.signals == []


def test_delete_asks_and_removes_what_is_the_clusters(played: Played, where: Path):
    cluster("up", where, "-n", "2")
    fails(cluster("down", where, "--delete"), 2, "--yes")
    assert len(played.alive) == 2
    (where / "notes.txt").write_text("mine")
    assert b"which holds other files, too" in cluster("down", where, "--delete", "--yes").stdout
    assert os.listdir(where) == ["notes.txt"]
    fails(cluster("up", where), 1, "something else", "notes.txt")
    (where / "notes.txt").unlink()
    cluster("up", where, "-n", "2")
    assert f"deleted '{where}'\n".encode() in cluster("down", where, "--delete", "--yes").stdout
    assert not where.exists()


@pytest.mark.parametrize("verb", ["status", "down"])
def test_where_there_is_no_cluster(where: Path, verb: str):
    fails(cluster(verb, where), 3, "there is no cluster", "hocket cluster up")
    assert not where.exists()


def node(**fields: object) -> dict[str, object]:
    return {"name": "node-1", "address": "127.0.0.1:1", "pid": None, "started": None, **fields}


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"format": 1, "tls": tr',
        "[]",
        json.dumps({"format": 2, "tls": True, "nodes": [node()]}),
        json.dumps({"format": 1, "tls": True, "nodes": []}),
        json.dumps({"format": 1, "tls": True, "nodes": ["node-1"]}),
        json.dumps({"format": 1, "tls": True, "nodes": [node(name="../../home")]}),
        json.dumps({"format": 1, "tls": True, "nodes": [node(address="example.org:1")]}),
        json.dumps({"format": 1, "tls": True, "nodes": [node(pid=1, started="x")]}),
        json.dumps({"format": 1, "tls": True, "nodes": [node(pid=-1, started="x")]}),
        json.dumps({"format": 1, "tls": True, "nodes": [node(), node()]}),
        json.dumps({"format": 1, "tls": True, "nodes": [{}]}),
    ],
)
def test_a_damaged_state_is_said_and_nothing_is_done(played: Played, where: Path, text: str):
    where.mkdir()
    file = where / development_state.FILE
    file.write_text(text)
    for verb, *args in (["up"], ["status"], ["down", "--delete", "--yes"]):
        fails(cluster(verb, where, *args), 1, str(file), "node-*/pid")
    assert file.read_text() == text
    assert (played.commands, played.signals) == ([], [])


def test_one_command_at_a_time_works_on_a_cluster(played: Played, where: Path):
    with development_state.locked(where, make=True):
        fails(cluster("up", where, "--plain"), 1, "another command")
        fails(cluster("down", where), 1, "another command")
    assert cluster("up", where, "--plain").code == 0


def test_a_file_is_no_directory(where: Path):
    where.write_text("")
    fails(cluster("up", where), 2, "--dir")


def test_the_usual_directory_is_in_the_users_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert development.default_directory() == tmp_path / "hocket" / "cluster"
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert development.default_directory() == tmp_path / ".local/state/hocket/cluster"


# --- real processes, which are no brokers --------------------------------------------------------


def test_a_process_is_known_by_its_id_and_its_start(tmp_path: Path):
    started = Processes()
    ours = started.start(
        ["sleep", "600"], out=tmp_path / "out", log=tmp_path / "log", environment={**os.environ}
    )
    stranger = Process(ours.pid, "another start")
    assert started.is_running(ours)
    assert os.getsid(ours.pid) == ours.pid  # Ctrl-C at our terminal does not reach it
    assert not started.is_running(stranger)
    assert not started.send(stranger, signal.SIGKILL)
    assert started.is_running(ours)
    assert Processes().send(ours, signal.SIGTERM)  # a later command knows it as well
    until(lambda: not Processes().is_running(ours))  # also while nobody has waited for it
    assert not started.is_running(ours)
    assert not started.send(ours, signal.SIGTERM)


def test_no_process_has_a_number_that_cannot_be_one():
    assert not Processes().is_running(Process(-1, "x"))
    assert not Processes().send(Process(1 << 70, "x"), signal.SIGTERM)


def test_a_process_without_pidfd_is_sent_signals_all_the_same(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    with subprocess.Popen(["sleep", "600"]) as child:
        started = Processes()
        ours = Process(child.pid, processes._started(child.pid) or "")
        assert not started.send(Process(child.pid, "another start"), signal.SIGKILL)
        assert started.send(ours, signal.SIGKILL)
        assert child.wait(PATIENCE) == -signal.SIGKILL
