"""`hocket role ...`: makes and deletes roles; `hocket grant` says what their users may do."""

from __future__ import annotations

from dataclasses import asdict

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.names import ROLE
from hocket.cli.server_options import Server, pass_server, server_options


@click.group(
    cls=Group,
    examples="""
$ hocket role create reader
$ hocket grant add reader subscribe 'orders*'
""",
)
def role() -> None:
    """Make roles, which users have and grants belong to.

    The role 'admin' is built in: it may do everything, and cannot be changed.
    """


@role.command("create", cls=Command, examples="\n$ hocket role create reader\n")
@click.argument("name", type=ROLE)
@server_options
@pass_server
def create(server: Server, /, name: str) -> None:
    """Make the role NAME, without any grant."""
    with server.connect() as client:
        client.create_role(name, timeout=server.timeout)


@role.command("delete", cls=Command, examples="\n$ hocket role delete reader --yes\n")
@click.argument("name", type=ROLE)
@yes_option
@server_options
@pass_server
def delete(server: Server, /, name: str, yes: bool) -> None:
    """Delete the role NAME. Users that have it lose it at once."""
    confirm(yes, f"Delete the role '{name}'?")
    with server.connect() as client:
        client.delete_role(name, timeout=server.timeout)


@role.command(
    "list", cls=Command, examples="\n$ hocket role list\n$ hocket role list --json\n"
)  # fmt: skip
@output.json_option
@server_options
@pass_server
def list_roles(server: Server, /, as_json: bool) -> None:
    """List the roles, and the users that have them."""
    with server.connect() as client:
        users, roles = client.access(timeout=server.timeout)
    holders = {
        each.name: [user.name for user in users if each.name in user.roles] for each in roles
    }
    if as_json:
        output.print_json(
            [
                {
                    "role": each.name,
                    "users": holders[each.name],
                    "grants": [asdict(grant) for grant in each.grants],
                }
                for each in roles
            ]
        )
        return
    rows = [(each.name, len(each.grants), ", ".join(holders[each.name])) for each in roles]
    click.echo(output.table(["ROLE", "GRANTS>", "USERS"], rows))
