"""`hocket user ...`: says who may connect, with which roles, and makes tokens."""

from __future__ import annotations

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.exits import say
from hocket.cli.names import ROLE, USER
from hocket.cli.server_options import Server, pass_server, server_options


@click.group(
    cls=Group,
    examples="""
$ hocket user create ann --role admin > ann.token     # the first user turns access control on
$ hocket --token-file ann.token user list
""",
)
def user() -> None:
    """Say who may use the broker.

    While there is no user, everybody may do everything, and the broker serves loopback only. The
    first user turns access control on.
    """


@user.command(
    "create",
    cls=Command,
    examples="""
$ hocket user create ann --role admin
$ hocket user create billing --role reader --role writer > billing.token
""",
)
@click.argument("name", type=USER)
@click.option(
    "--role", "roles", multiple=True, type=ROLE, metavar="ROLE",
    help="A role of the user; may be given several times. The first user must have 'admin'.",
)  # fmt: skip
@server_options
@pass_server
def create(server: Server, /, name: str, roles: tuple[str, ...]) -> None:
    """Make the user NAME, and print its token."""
    with server.connect() as client:
        token = client.create_user(name, roles, timeout=server.timeout)
    _show(token, name)


@user.command(
    "list", cls=Command, examples="\n$ hocket user list\n$ hocket user list --json\n"
)  # fmt: skip
@output.json_option
@server_options
@pass_server
def list_users(server: Server, /, as_json: bool) -> None:
    """List the users with their roles."""
    with server.connect() as client:
        users, _ = client.access(timeout=server.timeout)
    if as_json:
        output.print_json([{"user": each.name, "roles": list(each.roles)} for each in users])
        return
    if not users:
        say("there is no user: access control is off, and everybody may do everything")
    click.echo(
        output.table(["USER", "ROLES"], [(each.name, ", ".join(each.roles)) for each in users])
    )


@user.command("delete", cls=Command, examples="\n$ hocket user delete ann --yes\n")
@click.argument("name", type=USER)
@yes_option
@server_options
@pass_server
def delete(server: Server, /, name: str, yes: bool) -> None:
    """Delete the user NAME. Its connections are closed at once."""
    confirm(yes, f"Delete the user '{name}'?")
    with server.connect() as client:
        client.delete_user(name, timeout=server.timeout)


@user.command("token", cls=Command, examples="\n$ hocket user token billing > billing.token\n")
@click.argument("name", type=USER)
@server_options
@pass_server
def token(server: Server, /, name: str) -> None:
    """Print a new token for the user NAME.

    The old token is void at once, and connections that were made with it are closed.
    """
    with server.connect() as client:
        new = client.renew_token(name, timeout=server.timeout)
    _show(new, name)


@user.command(
    "roles",
    cls=Command,
    examples="""
$ hocket user roles billing reader writer
$ hocket user roles billing --none              # may connect, and do nothing
""",
)
@click.argument("name", type=USER)
@click.argument("roles", nargs=-1, type=ROLE)
@click.option("--none", is_flag=True, help="No role at all.")
@server_options
@pass_server
def set_roles(server: Server, /, name: str, roles: tuple[str, ...], none: bool) -> None:
    """Give the user NAME these ROLES, in place of those it has."""
    if none == bool(roles):
        raise click.UsageError("Name the roles the user is to have, or --none.")
    with server.connect() as client:
        client.set_roles(name, roles, timeout=server.timeout)


def _show(token: str, name: str) -> None:
    try:
        click.echo(token)
    except OSError as error:
        error.add_note(f"the token is lost; make a new one with: hocket user token {name}")
        raise
    say("this token is shown once; keep it in a file (--token-file) or in HOCKET_TOKEN")
