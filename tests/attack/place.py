"""The broker that is attacked: a real `hocket serve` process, with what victim and attackers need.

`victim` is the topic of the victim; attackers may read it and publish to it. `open` is theirs. With
`guarded` access control is on: the victim is user `vic`, the attackers are user `eve`, who has no
more rights than that. Without it everybody is the same.
"""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import hocket
from hocket.adapters.disk import DirectoryDisk
from hocket.cli.authority import Authority, Pair
from hocket.log.directory import store_id_of
from tests.support.certificates import HERE, Certificates, made
from tests.support.processes.forked import popen

VICTIM, OPEN = "victim", "open"
# Of brokers in processes. Frames that are good but for a field may take the second from anybody.
VICS_NAME, EVES_NAME, EVES_PIPES = "vics-broker", "eves-broker", "eves-pipes"
PARTITIONS = 2
READY_SECONDS = 30
ENDING_SECONDS = 5


class Kind(NamedTuple):
    guarded: bool
    tls: bool

    def __str__(self) -> str:
        return f"access {'on' if self.guarded else 'off'}, {'TLS' if self.tls else 'plain'}"


KINDS = [Kind(guarded, tls) for guarded in (False, True) for tls in (False, True)]


class Place:
    """Starts the broker when it is entered, and ends the process when it is left."""

    def __init__(self, folder: Path, kind: Kind, *, mutant: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.tokens = {"vic": "", "eve": "", "ann": ""}
        self.address = ("127.0.0.1", 0)
        self._mutant = mutant
        self._certificates: Certificates | None = made(folder) if kind.tls else None
        self._data = folder / "data"
        self.store = store_id_of(DirectoryDisk(self._data), str(self._data))
        if self._certificates is not None:
            self._node = Pair.named(folder, "node")
            Authority.load(Pair.named(folder, "ca")).issue_node(self._node, self.store, HERE)
        self._process: subprocess.Popen[str] | None = None
        self._log = folder / "broker.log"

    def __enter__(self) -> Self:
        self.start()
        try:
            self._furnish()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.kill()

    def start(self) -> None:
        program = ["tests.attack.mutants", self._mutant] if self._mutant else ["hocket.cli"]
        options = ["serve", "--listen", f"127.0.0.1:{self.address[1]}"]
        options += ["--data", str(self._data)]
        if self._certificates is not None:
            options += ["--tls-cert", str(self._node.certificate)]
            options += ["--tls-key", str(self._node.key)]
            options += ["--tls-ca", str(self._certificates.authority)]
        with self._log.open("a") as log:
            self._process = popen(
                [sys.executable, "-m", *program, *options],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the broker did not start:\n{self._log.read_text()}"
        host, _, port = line.split()[-1].rpartition("/")[2].rpartition(":")
        self.address = (host, int(port))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._gone()

    def stop(self) -> int:
        """SIGTERM, as a service manager would; its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._gone()

    def _gone(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        code = self._process.wait(READY_SECONDS)
        self._process.stdout.close()
        self._process = None
        return code

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def is_ending(self) -> bool:
        """Whether the process ends by itself; waits a moment for that."""
        assert self._process is not None
        try:
            self._process.wait(ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    def resident_bytes(self) -> int:
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/statm").read_text().split()
        return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")

    def tracebacks(self) -> list[str]:
        """The lines of the broker's log that no input should bring about."""
        return [
            line
            for line in self._log.read_text().splitlines()
            if "Traceback" in line or "AssertionError" in line or "CRITICAL" in line
        ]

    # --- ways in ---------------------------------------------------------------------------------

    def client_context(self) -> ssl.SSLContext | None:
        return None if self._certificates is None else self._certificates.client()

    def node_context(self, *, certified: bool) -> ssl.SSLContext | None:
        """Of a client that plays a node, with its own certificate or with none."""
        if self._certificates is None:
            return None
        context = self._certificates.client(of=self._certificates.alice if certified else None)
        context.check_hostname = False
        return context

    def connect(self, user: str) -> hocket.Client:
        scheme = "hocket" if self._certificates is None else "hockets"
        url = f"{scheme}://{self.address[0]}:{self.address[1]}"
        ca = {} if self._certificates is None else {"tls_ca": self._certificates.authority}
        return hocket.connect(url, token=self.tokens[user] or None, timeout=30, **ca)  # type: ignore[arg-type]

    def _furnish(self) -> None:
        with self.connect("ann") as anybody:
            for topic in (VICTIM, OPEN):
                anybody.create_topic(topic, partitions=PARTITIONS)
            if not self.kind.guarded:
                return
            self.tokens["ann"] = anybody.create_user("ann", ["admin"])
        with self.connect("ann") as ann:
            for role, index in (("vic", "*"), ("eve", "eve*")):
                ann.create_role(role)
                ann.grant(role, "publish", VICTIM)
                ann.grant(role, "subscribe", VICTIM, index)
            for action in ("publish", "subscribe", "alter"):
                ann.grant("eve", action, OPEN)
            for role, name in (("vic", VICS_NAME), ("eve", EVES_NAME), ("eve", EVES_PIPES)):
                ann.grant(role, "bind", name)
                ann.grant(role, "connect", name)
            ann.grant("eve", "connect", VICS_NAME)
            for user in ("vic", "eve"):
                self.tokens[user] = ann.create_user(user, [user])
