"""`hocket node ...`: the nodes of the cluster."""

from __future__ import annotations

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.server_options import Server, pass_server, server_options


@click.group(
    cls=Group,
    examples="""
$ hocket node list
$ hocket node list --json
""",
)
def node() -> None:
    """Look at the nodes of the cluster."""


@node.command(
    "list",
    cls=Command,
    examples="""
$ hocket node list
$ hocket node list --json
""",
)
@output.json_option
@server_options
@pass_server
def list_nodes(server: Server, /, as_json: bool) -> None:
    """List the nodes that belong to the cluster, and whether they live.

    A node is "suspect" if it does not answer, and "dead" when the ring has given it up.
    """
    with server.connect() as client:
        found = client.nodes(timeout=server.timeout)
    if as_json:
        output.print_json(
            [
                {"node": each.node, "name": each.name, "address": each.address,
                 "state": each.state, "domain": each.domain}
                for each in found
            ]
        )  # fmt: skip
        return
    click.echo(
        output.table(
            ["NODE", "NAME", "ADDRESS", "STATE", "DOMAIN"],
            [
                (each.node, each.name if each.name != each.node else "", each.address, each.state,
                 each.domain)
                for each in found
            ],
        )
    )  # fmt: skip
