"""The servers that are measured: brokers of ours, and the peers where they are to be had.

A peer is the program of that name on the PATH. If there is none, its Debian packages are fetched
into `.venv/peers` and unpacked there; nothing is installed. Where that fails too, the peer is left
out, and the results say so.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

from benchmarks.fanout.measure import Served
from benchmarks.fanout.processes import running

PEERS = Path(".venv/peers").absolute()
NATS_PACKAGES = ("nats-server",)
REDIS_PACKAGES = (
    "redis-server", "redis-tools", "libjemalloc2", "liblua5.1-0", "liblzf1", "lua-bitop",
    "lua-cjson",
)  # fmt: skip
OPEN_SECONDS = 20.0


class NoPeer(Exception):
    """The peer is not on this machine, and cannot be fetched."""


def program(name: str, packages: tuple[str, ...]) -> str:
    """Where the program is; fetched if need be. Raises NoPeer."""
    found = shutil.which(name) or _unpacked(name)
    if not found:
        _fetch(packages)
        found = _unpacked(name)
    if not found:
        raise NoPeer(f"{name} is not in its packages")
    return found


def _unpacked(name: str) -> str | None:
    return next((str(path) for path in PEERS.glob(f"usr/*bin/{name}")), None)


def _fetch(packages: tuple[str, ...]) -> None:
    PEERS.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            ["apt-get", "download", *packages], cwd=PEERS, check=True, capture_output=True
        )
        for package in PEERS.glob("*.deb"):
            subprocess.run(
                ["dpkg-deb", "-x", str(package), str(PEERS)], check=True, capture_output=True
            )
            package.unlink()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NoPeer(
            f"{packages[0]} is neither installed nor to be had with apt-get download: {error}"
        ) from error


@contextmanager
def broker(directory: Path) -> Iterator[Served]:
    """A node of ours by itself."""
    command = [
        sys.executable, "-m", "hocket.cli", "serve", "--listen", "127.0.0.1:0", "--data",
        str(directory / "alone"), "--log-level", "warning",
    ]  # fmt: skip
    with running(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield Served("hocket", process.stdout.readline().split()[-1], [process.pid])


def version(name: str) -> str:
    """What the peer says of itself."""
    command = {
        "NATS JetStream": [program("nats-server", NATS_PACKAGES), "--version"],
        "Redis Streams": [program("redis-server", REDIS_PACKAGES), "--version"],
    }[name]
    told = subprocess.run(command, check=True, capture_output=True, text=True, env=_environment())
    return told.stdout.strip()


def _environment() -> dict[str, str]:
    libraries = os.pathsep.join(str(path) for path in PEERS.glob("usr/lib/*-linux-gnu"))
    return {**os.environ, "LD_LIBRARY_PATH": libraries} if libraries else dict(os.environ)


@contextmanager
def nats(directory: Path) -> Iterator[tuple[str, int]]:
    """A NATS server with JetStream; its address and process."""
    port = _free_port()
    command = [
        program("nats-server", NATS_PACKAGES), "--addr", "127.0.0.1", "--port", str(port),
        "--jetstream", "--store_dir", str(directory / "nats"),
    ]  # fmt: skip
    with _listening(command, port) as process:
        yield f"nats://127.0.0.1:{port}", process


@contextmanager
def redis(directory: Path, sync: str = "everysec") -> Iterator[tuple[str, int]]:
    """A Redis server that appends to a file, synced so often; its address and process."""
    port = _free_port()
    data = directory / f"redis-{sync}"
    data.mkdir()
    command = [
        program("redis-server", REDIS_PACKAGES), "--bind", "127.0.0.1", "--port", str(port),
        "--dir", str(data), "--appendonly", "yes", "--appendfsync", sync, "--save", "",
    ]  # fmt: skip
    with _listening(command, port) as process:
        yield f"redis://127.0.0.1:{port}", process


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def _listening(command: list[str], port: int) -> Iterator[int]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with running(command, env=_environment(), **quiet) as process:
        deadline = monotonic() + OPEN_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if monotonic() > deadline or process.poll() is not None:
                    raise NoPeer(f"{command[0]} does not start") from None
                sleep(0.05)
        yield process.pid
