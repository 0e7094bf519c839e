"""`hocket ring`: the ring as its nodes see it, and who owns a key."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.exits import say
from hocket.cli.server_options import Server, pass_server, server_options

if TYPE_CHECKING:
    from hocket.cluster_model import RingDescription

NOT_IDEAL = (
    "The ring is not ideal: some node's neighbours are not those that it should have. That passes "
    "within a minute, unless nodes come and go."
)
WAITS = (
    "The ring is not ideal: in so small a ring a node that is dead keeps its place until it is "
    "back. Lookups pass over it; start it again with its data."
)


@click.group(
    cls=Group,
    invoke_without_command=True,
    examples="""
$ hocket ring
$ hocket ring --json
$ hocket ring --svg ring.svg
$ hocket ring --topic orders --svg tree.svg
$ hocket ring lookup orders/0
""",
)
@click.option(
    "--svg", metavar="FILE", type=click.Path(dir_okay=False, writable=True, path_type=Path),
    help="Draw the ring, with fingers, or the trees of --topic, to FILE.",
)  # fmt: skip
@click.option(
    "--topic", metavar="TOPIC",
    help="Show how this topic fans out: which node takes its messages from which.",
)  # fmt: skip
@output.json_option
@server_options
@click.pass_context
def ring(context: click.Context, /, svg: Path | None, topic: str | None, as_json: bool) -> None:
    """Show the ring: its nodes in order, and whom each of them counts on.

    Every node is asked for its own view. A ring is ideal if all these views are exactly right.
    """
    if context.invoked_subcommand is not None:
        return
    server = context.ensure_object(Server)
    if topic is not None:
        _show_tree(server, topic, svg, as_json=as_json)
        return
    with server.connect() as client:
        found = client.ring(timeout=server.timeout)
    if svg is not None:
        from hocket.cli.ring_picture import drawn

        _write(svg, drawn(found))
    if as_json:
        output.print_json(_fields(found))
        return
    names = {node.node: node.name for node in found.nodes}
    click.echo(
        output.table(
            ["POSITION>", "NODE", "ADDRESS", "PREDECESSOR", "SUCCESSORS"],
            [
                (f"{node.position / 2**64:.4f}", _short(node.name), node.address,
                 _named(names, [node.predecessor] if node.predecessor else []),
                 _named(names, node.successors))
                for node in found.nodes
            ],
        )
    )  # fmt: skip
    for node in found.silent:
        say(f"node {_short(node)} does not answer, and others count on it")
    if found.ideal:
        click.echo("the ring is ideal")
    else:
        say(why_not_ideal(found))


def _show_tree(server: Server, topic: str, svg: Path | None, *, as_json: bool) -> None:
    from hocket.cli import tree

    with server.connect() as client:
        found = client.tree(topic, timeout=server.timeout)
        names = {node.node: node.name for node in client.nodes(timeout=server.timeout)}
    if svg is not None:
        from hocket.cli.tree_picture import drawn

        _write(svg, drawn(found, lambda node: _one(names, node)))
    for node in found.silent:
        say(f"node {_one(names, node)} does not answer, and is left out")
    if as_json:
        output.print_json(tree.fields(found))
    else:
        click.echo(tree.table(found, lambda node: _one(names, node)))


def _write(svg: Path, picture: str) -> None:
    try:
        svg.write_text(picture)
    except OSError as error:
        raise click.ClickException(f"cannot write '{svg}': {error.strerror}") from error
    say(f"drawn to {svg}")


@ring.command(
    "lookup",
    cls=Command,
    examples="""
$ hocket ring lookup orders/0
$ hocket ring lookup orders/0 --no-cache --json
""",
)
@click.argument("key")
@click.option(
    "--no-cache", is_flag=True,
    help="Go from finger to finger, without the short cuts that nodes have learnt.",
)  # fmt: skip
@output.json_option
@server_options
@pass_server
def lookup(server: Server, /, key: str, no_cache: bool, as_json: bool) -> None:
    """Find the node that owns KEY, and show which nodes were asked on the way."""
    with server.connect() as client:
        found = client.look_up(key, cached=not no_cache, timeout=server.timeout)
        if as_json:
            output.print_json(asdict(found))
            return
        names = {node.node: node.name for node in client.nodes(timeout=server.timeout)}
    click.echo(f"{key} is at {found.position / 2**64:.4f}, and {_one(names, found.owner)} owns it")
    if not found.hops:
        click.echo("the node that was asked knew that itself")
    for number, hop in enumerate(found.hops, 1):
        click.echo(f"  hop {number}: {_one(names, hop)}")


def why_not_ideal(found: RingDescription) -> str:
    is_small = len(found.nodes) + len(found.silent) <= found.successors + 1
    return WAITS if is_small and found.silent else NOT_IDEAL


def _fields(found: RingDescription) -> dict[str, Any]:
    return asdict(found)


def _one(names: dict[str, str], node: str) -> str:
    return _short(names.get(node) or node)


def _named(names: dict[str, str], nodes: list[str] | tuple[str, ...]) -> str:
    return " ".join(_one(names, node) for node in nodes) or "-"


def _short(name: str) -> str:
    """A store id is long, and its first digits tell it apart."""
    return name[:8] if len(name) == 32 else name
