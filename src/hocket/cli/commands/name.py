"""`hocket name ...`: the names of brokers in other processes."""

from __future__ import annotations

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.server_options import Server, pass_server, server_options


@click.group(
    cls=Group,
    examples="""
$ hocket name list
$ hocket name list --json
""",
)
def name() -> None:
    """Look at the names by which processes reach each other."""


@name.command(
    "list",
    cls=Command,
    examples="""
$ hocket name list
$ hocket name list --json
""",
)
@output.json_option
@server_options
@pass_server
def list_names(server: Server, /, as_json: bool) -> None:
    """List the names of brokers in the cluster, and the way to each.

    The way is "direct" if its process offers an address, else "node": a node passes bytes on.
    """
    with server.connect() as client:
        found = client.list_names(timeout=server.timeout)
    if as_json:
        output.print_json(
            [
                {"name": each.name, "kind": each.kind, "way": each.way,
                 "address": each.address or None, "node": each.node, "user": each.user or None}
                for each in found
            ]
        )  # fmt: skip
        return
    click.echo(
        output.table(
            ["NAME", "KIND", "WAY", "ADDRESS", "NODE", "USER"],
            [
                (each.name, each.kind, each.way, each.address, each.node, each.user)
                for each in found
            ],
        )
    )
