"""`hocket cluster ...`: what is set for a whole cluster; and a cluster on this machine, for
development, in one command."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click

from hocket.cli import development, development_state, output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.development import DevelopmentCluster
from hocket.cli.development_state import NODES_MAX, DevelopmentState
from hocket.cli.exits import FAILED, say
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.model import REPLICAS_MAX

F = TypeVar("F", bound=Callable[..., Any])

NODES_DEFAULT = 3
UNASKED = (
    "The nodes ask for a token, so nobody has looked at the ring: with a token in HOCKET_TOKEN, "
    "`hocket ring` does."
)

directory_option = click.option(
    "--dir", "directory", metavar="DIR", type=click.Path(file_okay=False, path_type=Path),
    help="The directory of the cluster. [default: hocket/cluster in the user's state directory]",
)  # fmt: skip


@click.group(
    cls=Group,
    examples="""
$ hocket cluster up -n 3
$ hocket cluster status
$ hocket cluster down
$ hocket cluster show
$ hocket cluster set replication 3
""",
)
def cluster() -> None:
    """Set what holds for a whole cluster, or run one on this machine, for development.

    `show` and `set` are for any cluster. `up`, `status` and `down` are for one on this machine; a
    cluster for anything else is made of `hocket serve --join` on machines of its own.
    """


@cluster.command(
    "show",
    cls=Command,
    examples="""
$ hocket cluster show
$ hocket cluster show --json
""",
)
@output.json_option
@server_options
@pass_server
def show(server: Server, /, as_json: bool) -> None:
    """Show what is set for the whole cluster."""
    with server.connect() as client:
        found = client.describe_cluster(timeout=server.timeout)
    if as_json:
        output.print_json(asdict(found))
        return
    for label, value in (
        ("cluster", found.cluster),
        ("nodes", found.nodes),
        ("replication", f"{found.replication}, of topics that are made without saying so"),
        ("successors", found.successors or "-"),
    ):
        click.echo(f"{label:<12} {value}")


@cluster.command(
    "set",
    cls=Command,
    examples="""
$ hocket cluster set replication 3
""",
)
@click.argument("setting", metavar="SETTING", type=click.Choice(["replication"]))
@click.argument("value", metavar="VALUE", type=click.IntRange(1, REPLICAS_MAX))
@server_options
@pass_server
def set_(server: Server, /, setting: str, value: int) -> None:
    """Set what holds for the whole cluster: SETTING is `replication`.

    `replication` is on how many nodes a topic is kept that does not say so itself. It counts for
    topics that are made from now on, and may not be larger than the number of nodes.
    """
    with server.connect() as client:
        client.set_cluster(**{setting: value}, timeout=server.timeout)


@cluster.command(
    "up",
    cls=Command,
    examples="""
$ hocket cluster up
$ hocket cluster up -n 5 --dir ./cluster --plain
""",
)
@click.option(
    "-n", "count", metavar="N", type=click.IntRange(1, NODES_MAX),
    help=f"How many nodes. [default: {NODES_DEFAULT}, or as many as there are in DIR]",
)  # fmt: skip
@click.option("--plain", is_flag=True, help="Without TLS, and so without certificates.")
@directory_option
@output.json_option
def up(count: int | None, plain: bool, directory: Path | None, as_json: bool) -> None:
    """Start a cluster in the background, and wait until its ring is ideal.

    Nodes listen on free ports of 127.0.0.1. A cluster that is there already is started again, with
    its data and its ports; nodes of it that have died are started, and with a larger N new ones.
    """
    where = _where(directory)
    with development_state.locked(where, make=True):
        state = development_state.load(where)
        if state is None or DevelopmentCluster(where, state).is_blank():
            state = DevelopmentState(not plain, [])
            state.grow(count or NODES_DEFAULT)
        _refuse_contradiction(where, state, count, plain=plain)
        if state.tls:
            development.crypto()  # before anything is begun
        state.grow(count or 0)
        found = DevelopmentCluster(where, state)
        if len(found.running()) == len(state.nodes):
            raise click.ClickException(
                f"the cluster runs already: {found.url}; stop it with: {_stopping(directory)}"
            )
        try:
            ideal = found.start()
        except OSError as error:
            raise click.ClickException(
                f"cannot use '{where}': {error}; choose another with --dir DIR"
            ) from error
    if as_json:
        output.print_json(_fields(found, ideal))
        return
    nodes = f"{len(state.nodes)} node{'' if len(state.nodes) == 1 else 's'}"
    click.echo(f"{nodes} {'with' if state.tls else 'without'} TLS: {found.url}")
    click.echo("to use it, paste:")
    click.echo(f"  export HOCKET_SERVER={shlex.quote(found.url)}")
    if found.authority is not None:
        click.echo(f"  export HOCKET_TLS_CA={shlex.quote(str(found.authority))}")
    click.echo("to stop it:")
    click.echo(f"  {_stopping(directory)}")
    if ideal is None:
        say(UNASKED)


def _refuse_contradiction(
    where: Path, state: DevelopmentState, count: int | None, *, plain: bool
) -> None:
    if count is not None and count < len(state.nodes):
        raise click.ClickException(
            f"the cluster in '{where}' has {len(state.nodes)} nodes, and none is taken away: leave "
            "-n out, or choose another directory with --dir DIR"
        )
    if plain and state.tls:
        raise click.ClickException(
            f"the cluster in '{where}' was made with TLS, and stays so: leave --plain out, or "
            "choose another directory with --dir DIR"
        )


@cluster.command(
    "status",
    cls=Command,
    examples="""
$ hocket cluster status
$ hocket cluster status --json
""",
)
@directory_option
@output.json_option
@click.pass_context
def status(context: click.Context, /, directory: Path | None, as_json: bool) -> None:
    """Show the nodes of the cluster and whether they run. Ends with 0 if all of them do."""
    where = _where(directory)
    found = _existing(where)
    running = found.running()
    ideal = found.is_ideal() if running else False
    if as_json:
        output.print_json(_fields(found, ideal))
    else:
        click.echo(
            output.table(
                ["NODE", "ADDRESS", "PROCESS", "STATE"],
                [
                    (node.name, node.address or "-", str(node.process.pid) if node.process else "-",
                     "running" if node in running else "not running" if node.process else "stopped")
                    for node in found.state.nodes
                ],
            )
        )  # fmt: skip
        if ideal is None:
            say(UNASKED)
        elif running:
            click.echo(f"the ring is {'' if ideal else 'not '}ideal")
    if len(running) < len(found.state.nodes):
        context.exit(FAILED)


@cluster.command(
    "down",
    cls=Command,
    examples="""
$ hocket cluster down
$ hocket cluster down --dir ./cluster --delete --yes
""",
)
@directory_option
@click.option("--delete", is_flag=True, help="Delete the data of all nodes as well.")
@yes_option
def down(directory: Path | None, delete: bool, yes: bool) -> None:
    """Stop the nodes of the cluster. Their data stays, and `up` starts them again with it."""
    where = _where(directory)
    with development_state.locked(where):
        found = _existing(where)
        if delete:
            confirm(yes, f"Delete the cluster in '{where}' with all its messages?")
        happened = found.stop(found.state.nodes)
        for node in found.state.nodes:
            click.echo(f"{node.name} {happened[node.name]}")
        if not delete:
            return
        if found.delete():
            click.echo(f"deleted '{where}'")
        else:
            click.echo(f"deleted the cluster in '{where}', which holds other files, too")


# --- pieces --------------------------------------------------------------------------------------


def _where(given: Path | None) -> Path:
    return (development.default_directory() if given is None else given).absolute()


def _existing(where: Path) -> DevelopmentCluster:
    state = development_state.load(where)
    if state is None:
        raise development_state.no_cluster(where)
    return DevelopmentCluster(where, state)


def _stopping(directory: Path | None) -> str:
    said = "" if directory is None else f" --dir {shlex.quote(str(directory))}"
    return f"hocket cluster down{said}"


def _fields(found: DevelopmentCluster, ideal: bool | None) -> dict[str, Any]:
    return {
        "directory": str(found.directory),
        "url": found.url,
        "tls_ca": None if found.authority is None else str(found.authority),
        "ideal": ideal,
        "nodes": [
            {
                "name": node.name,
                "address": node.address,
                "pid": node.process.pid if node.process else None,
                "running": found.is_running(node),
                "log": str(found.home(node) / "log"),
            }
            for node in found.state.nodes
        ],
    }
