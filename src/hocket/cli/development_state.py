"""What is remembered of a development cluster, in `cluster.json` in its directory.

    DIR/cluster.json     its nodes, the founder first, and their processes
    DIR/certs            the authority and the nodes' certificates; not with --plain
    DIR/NODE/data        a node's data directory
    DIR/NODE/log         what the node has logged
    DIR/NODE/out         its line when it was ready
    DIR/NODE/pid         the id of its process, while it runs

The file is replaced as a whole, so it is never there by half. Whoever changes it holds the lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import click

from hocket.cli.exits import NOT_FOUND
from hocket.cli.processes import Process

FILE = "cluster.json"
FORMAT = 1
NODES_MAX = 32  # processes on one machine; each takes tens of megabytes
_TEMPORARY = ".cluster-"
_NAME = re.compile(r"node-[1-9][0-9]{0,3}\Z")
_ADDRESS = re.compile(r"127\.0\.0\.1:[0-9]{1,5}\Z")


class NoCluster(click.ClickException):
    exit_code = NOT_FOUND


@dataclass(slots=True)
class DevelopmentNode:
    name: str
    address: str = ""  # HOST:PORT, kept from its first start on; empty: it was never ready
    process: Process | None = None  # None: it was stopped


@dataclass(slots=True)
class DevelopmentState:
    tls: bool
    nodes: list[DevelopmentNode]

    def grow(self, count: int) -> None:
        for number in range(len(self.nodes) + 1, count + 1):
            self.nodes.append(DevelopmentNode(f"node-{number}"))


def load(directory: Path) -> DevelopmentState | None:
    """None: there is no cluster in the directory, which is free for one."""
    file = directory / FILE
    try:
        text = file.read_text()
    except FileNotFoundError:
        _refuse_something_else(directory)
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"cannot read '{file}': {error}") from error
    try:
        return _parsed(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise click.ClickException(
            f"'{file}' is not what `hocket cluster up` writes: {error}. Stop the nodes that still "
            f"run (their ids are in {directory}/node-*/pid), and remove '{directory}' or choose "
            "another with --dir DIR"
        ) from error


def _refuse_something_else(directory: Path) -> None:
    try:
        names = [each for each in os.listdir(directory) if not each.startswith(_TEMPORARY)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise click.ClickException(
            f"cannot use '{directory}': {error.strerror}; choose another with --dir DIR"
        ) from error
    if names:
        raise click.ClickException(
            f"'{directory}' is something else than a development cluster: it has no {FILE}, but "
            f"'{sorted(names)[0]}'; choose another directory with --dir DIR"
        )


def _parsed(found: Any) -> DevelopmentState:
    if not isinstance(found, dict):
        raise ValueError("it is no object")  # noqa: TRY004 - the file is wrong, not a type
    if found.get("format") != FORMAT:
        raise ValueError(f"its format is {found.get('format')!r}, and {FORMAT} is known here")
    tls, nodes = found.get("tls"), found.get("nodes")
    if not isinstance(tls, bool) or not isinstance(nodes, list) or not nodes:
        raise ValueError("it has no 'tls', or no 'nodes'")
    state = DevelopmentState(tls, [_node(each) for each in nodes])
    names = [node.name for node in state.nodes]
    if len(set(names)) < len(names):
        raise ValueError("two nodes have one name")
    return state


def _node(found: dict[str, Any]) -> DevelopmentNode:
    name, address, pid, started = (found[key] for key in ("name", "address", "pid", "started"))
    if not isinstance(name, str) or not _NAME.match(name):  # it becomes a path
        raise ValueError(f"{name!r} is no node's name")
    if not isinstance(address, str) or (address and not _ADDRESS.match(address)):
        raise ValueError(f"{address!r} is no address on 127.0.0.1")
    if pid is None:
        return DevelopmentNode(name, address)
    if not isinstance(pid, int) or pid <= 1 or not isinstance(started, str):
        raise ValueError(f"{pid!r} is no id of a process")
    return DevelopmentNode(name, address, Process(pid, started))


def save(directory: Path, state: DevelopmentState) -> None:
    """Replace the file. If that fails, the file is as it was."""
    content = {
        "format": FORMAT,
        "tls": state.tls,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "pid": node.process.pid if node.process else None,
                "started": node.process.started if node.process else None,
            }
            for node in state.nodes
        ],
    }
    with NamedTemporaryFile("w", dir=directory, prefix=_TEMPORARY, delete=False) as new:
        try:
            new.write(json.dumps(content, indent=2) + "\n")
            new.flush()
            os.fsync(new.fileno())
            os.replace(new.name, directory / FILE)
        except BaseException:
            with suppress(OSError):
                os.unlink(new.name)
            raise


@contextmanager
def locked(directory: Path, *, make: bool = False) -> Iterator[None]:
    """Nobody else starts or stops nodes of the directory during the block."""
    try:
        if make:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError as error:
        raise no_cluster(directory) from error
    except OSError as error:
        raise click.ClickException(
            f"cannot use '{directory}': {error.strerror}; choose another with --dir DIR"
        ) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise click.ClickException(
            f"another command starts or stops the cluster in '{directory}' just now; wait for it"
        ) from error
    else:
        yield
    finally:
        os.close(handle)


def no_cluster(directory: Path) -> NoCluster:
    return NoCluster(
        f"there is no cluster in '{directory}'; make one with `hocket cluster up`, or name its "
        "directory with --dir DIR"
    )
