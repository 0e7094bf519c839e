"""A cluster of several brokers on this machine, for development: starts it, looks at it, stops it.

The first node is the founder; it starts before the others and stops after them, since it alone
decides on changes. The others join one after the other, and return all at once. Nodes keep their
data, their names and their ports when they are stopped.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from shutil import rmtree
from types import ModuleType
from typing import TYPE_CHECKING

import click

from hocket import errors
from hocket.cli import development_state
from hocket.cli.development_state import DevelopmentNode, DevelopmentState
from hocket.cli.exits import say
from hocket.cli.processes import Processes
from hocket.deadline import in_seconds

if TYPE_CHECKING:
    from hocket.cluster_model import RingDescription

READY_SECONDS = 60.0  # for one node to be ready; a busy machine starts Python slowly
IDEAL_SECONDS = 60.0  # for the ring, after the last node is ready
STOP_SECONDS = 15.0  # for all nodes to end by themselves
PAUSE_SECONDS = 0.05
LOOK_SECONDS = 0.25  # between two looks at the ring, each of which asks every node
LOG_LINES = 5  # shown of a node that did not start
_HOSTS = ("localhost", "127.0.0.1", "::1")
_NOT_INHERITED = ("HOCKET_SERVE_", "NOTIFY_SOCKET")  # they mean another broker


def default_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME", "")
    # The specification of these directories wants a relative one to be ignored.
    home = Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state"
    return home / "hocket" / "cluster"


def ask_for_ring(url: str, authority: Path | None) -> RingDescription:
    import hocket

    with hocket.connect(url, tls_ca=authority, timeout=10, name="hocket cluster") as client:
        return client.ring(timeout=10)


@dataclass(slots=True)
class DevelopmentCluster:
    directory: Path
    state: DevelopmentState
    processes: Processes = field(default_factory=Processes)
    ring: Callable[[str, Path | None], RingDescription] = ask_for_ring
    pause: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.monotonic

    # --- what it is -----------------------------------------------------------------------------

    @property
    def url(self) -> str:
        scheme = "hockets" if self.state.tls else "hocket"
        return f"{scheme}://{','.join(each.address for each in self.state.nodes if each.address)}"

    @property
    def authority(self) -> Path | None:
        return self.directory / "certs" / "ca.pem" if self.state.tls else None

    def is_running(self, node: DevelopmentNode) -> bool:
        return node.process is not None and self.processes.is_running(node.process)

    def running(self) -> list[DevelopmentNode]:
        return [node for node in self.state.nodes if self.is_running(node)]

    def is_ideal(self) -> bool | None:
        """Whether the ring has all nodes and is ideal. None: the nodes want a token first."""
        try:
            found = self.ring(self.url, self.authority)
        except errors.NotAllowed:
            return None
        except (errors.NoConnection, errors.ReplyLost, errors.Timeout, errors.ShuttingDown):
            return False
        return found.ideal and len(found.nodes) == len(self.state.nodes) and not found.silent

    def is_blank(self) -> bool:
        """Whether no node was ever ready, and none is on the way: there is nothing to keep."""
        return not self.running() and not any(node.address for node in self.state.nodes)

    def home(self, node: DevelopmentNode) -> Path:
        return self.directory / node.name

    # --- starting -------------------------------------------------------------------------------

    def start(self) -> bool | None:
        """Start the nodes that do not run. Returns `is_ideal`, which is not False then.

        If anything goes wrong, the nodes that were started here are stopped again.
        """
        founder = self.state.nodes[0]
        missing = [node for node in self.state.nodes if not self.is_running(node)]
        returning = [node for node in missing if node.address and node is not founder]
        new = [node for node in missing if not node.address and node is not founder]
        begun: list[DevelopmentNode] = []
        try:
            # Returning nodes know their place and come back together. New ones come after them:
            # the free port that a new node picks is then not the one that another returns to.
            for group in ([founder] if founder in missing else [], returning, *([n] for n in new)):
                for node in group:
                    begun.append(node)
                    self._start(node)
                for node in group:
                    self._settle(node)
            return self._wait_until_ideal()
        except BaseException:
            if any(self.is_running(node) for node in begun):
                say("stopping again what was started")
            self.stop(begun)
            raise

    def _start(self, node: DevelopmentNode) -> None:
        home = self.home(node)
        home.mkdir(mode=0o700, exist_ok=True)
        command = self._command(node)
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
        }
        node.process = self.processes.start(
            command, out=home / "out", log=home / "log", environment=environment
        )
        (home / "pid").write_text(f"{node.process.pid}\n")
        self._save()

    def _settle(self, node: DevelopmentNode) -> None:
        """Wait until it is ready, and remember where."""
        ready = self._wait_until_ready(node)
        node.address = ready.split()[-1].partition("://")[2]
        self._save()
        say(f"{node.name} is ready at {node.address}")

    def _command(self, node: DevelopmentNode) -> list[str]:
        data = self.home(node) / "data"
        command = [
            sys.executable, "-m", "hocket.cli", "serve", "--listen", node.address or "127.0.0.1:0",
            "--data", str(data), "--name", node.name,
        ]  # fmt: skip
        others = [each.address for each in self.state.nodes if each is not node and each.address]
        if node is not self.state.nodes[0]:
            command += ["--join", ",".join(others)]
        if self.authority is not None:
            certificate, key = certified(self.directory / "certs", data)
            command += ["--tls-cert", str(certificate), "--tls-key", str(key)]
            command += ["--tls-ca", str(self.authority)]
        return command

    def _wait_until_ready(self, node: DevelopmentNode) -> str:
        out = self.home(node) / "out"
        end = self.now() + READY_SECONDS
        while True:
            lives = self.is_running(node)
            said = out.read_text()
            if said.endswith("\n"):
                return said
            if not lives:
                raise self._failed(node, "did not start")
            if self.now() >= end:
                raise self._failed(node, f"was not ready within {in_seconds(READY_SECONDS)}")
            self.pause(PAUSE_SECONDS)

    def _failed(self, node: DevelopmentNode, what: str) -> click.ClickException:
        log = self.home(node) / "log"
        for line in _last_lines(log):
            click.echo(f"  {node.name}: {line}", err=True)
        return click.ClickException(f"{node.name} {what}; see above, and its log '{log}'")

    def _wait_until_ideal(self) -> bool | None:
        end = self.now() + IDEAL_SECONDS
        while (ideal := self.is_ideal()) is False:
            for node in self.state.nodes:
                if not self.is_running(node):
                    raise self._failed(node, "ended")
            if self.now() >= end:
                raise click.ClickException(
                    f"the ring was not ideal within {in_seconds(IDEAL_SECONDS)}; the logs of the "
                    f"nodes are '{self.directory}/node-*/log'"
                )
            self.pause(LOOK_SECONDS)
        return ideal

    # --- stopping -------------------------------------------------------------------------------

    def stop(self, nodes: Sequence[DevelopmentNode]) -> dict[str, str]:
        """Stop these nodes, the founder last. Returns what happened to each of them."""
        happened: dict[str, str] = {}
        if self.state.nodes[0] in nodes:
            rest = [node for node in nodes if node is not self.state.nodes[0]]
            happened |= self.stop(rest) if rest else {}
            nodes = self.state.nodes[:1]
        asked = []
        for node in nodes:
            if node.process is not None and self.processes.send(node.process, signal.SIGTERM):
                asked.append(node)
            else:
                happened[node.name] = "was not running"
        end = self.now() + STOP_SECONDS
        while (left := [node for node in asked if self.is_running(node)]) and self.now() < end:
            self.pause(PAUSE_SECONDS)
        for node in asked:
            happened[node.name] = "stopped"
        for node in left:
            assert node.process is not None
            self.processes.send(node.process, signal.SIGKILL)
            happened[node.name] = f"did not stop within {in_seconds(STOP_SECONDS)}, and was killed"
        while any(self.is_running(node) for node in left):  # nothing survives this signal
            self.pause(PAUSE_SECONDS)
        for node in nodes:
            node.process = None
            with suppress(FileNotFoundError):
                (self.home(node) / "pid").unlink()
        self._save()
        return happened

    def delete(self) -> bool:
        """Remove what belongs to the cluster, and its directory. False: that has more in it."""
        for node in self.state.nodes:
            rmtree(self.home(node), ignore_errors=True)
        rmtree(self.directory / "certs", ignore_errors=True)
        (self.directory / development_state.FILE).unlink()
        try:
            self.directory.rmdir()
        except OSError:
            return False
        return True

    def _save(self) -> None:
        development_state.save(self.directory, self.state)


def crypto() -> ModuleType:
    """The module that needs the package `cryptography`, which not everybody has."""
    try:
        from hocket.cli import authority
    except ModuleNotFoundError as error:
        raise click.ClickException(
            "a cluster with TLS needs the package 'cryptography': pip install 'hocket[certs]'; or "
            "do without TLS: hocket cluster up --plain"
        ) from error
    return authority


def certified(certs: Path, data: Path) -> tuple[Path, Path]:
    """The certificate of the node with this data directory, and its key; made if it has none."""
    making = crypto()
    from hocket.adapters.disk import DirectoryDisk
    from hocket.log.directory import store_id_of

    certs.mkdir(mode=0o700, exist_ok=True)
    signer = making.Pair.named(certs, "ca")
    if signer.certificate.exists():
        authority = making.Authority.load(signer)
    else:
        signer.key.unlink(missing_ok=True)  # the key is written first; nobody has used it
        authority = making.Authority.create("Hocket development cluster")
        authority.save(signer)
    node = store_id_of(DirectoryDisk(data), str(data))
    files = making.Pair.named(certs, f"node-{node}")
    if not files.certificate.exists():
        files.key.unlink(missing_ok=True)
        authority.issue_node(files, node, _HOSTS)
    return files.certificate, files.key


def _last_lines(log: Path) -> list[str]:
    try:
        return log.read_text(errors="replace").splitlines()[-LOG_LINES:]
    except OSError:
        return []
