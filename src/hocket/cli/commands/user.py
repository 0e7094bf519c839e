"""`hocket user ...`: says who may connect, with which roles, and makes tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.exits import say
from hocket.cli.names import ROLE, USER
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.token_file import opened, token_file_options


@click.group(
    cls=Group,
    examples="""
$ hocket user create ann --role admin --out ann.token   # the first turns access control on
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
$ hocket user create billing --role reader --role writer --out billing.token
""",
)
@click.argument("name", type=USER)
@click.option(
    "--role", "roles", multiple=True, type=ROLE, metavar="ROLE",
    help="A role of the user; may be given several times. The first user must have 'admin'.",
)  # fmt: skip
@token_file_options
@server_options
@pass_server
def create(
    server: Server, /, name: str, roles: tuple[str, ...], out: Path | None, force: bool
) -> None:
    """Make the user NAME, and print its token, or write it to a file.

    If the file cannot be written, no user is made.
    """
    with opened(out, force=force) as write, server.connect() as client:
        _hand_over(client.create_user(name, roles, timeout=server.timeout), name, out, write)


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


@user.command(
    "token",
    cls=Command,
    examples="""
$ hocket user token billing
$ hocket user token billing --out billing.token --force
""",
)
@click.argument("name", type=USER)
@token_file_options
@server_options
@pass_server
def token(server: Server, /, name: str, out: Path | None, force: bool) -> None:
    """Print a new token for the user NAME, or write it to a file.

    The old token is void at once, and connections that were made with it are closed. If the file
    cannot be written, the old token stays good.
    """
    with opened(out, force=force) as write, server.connect() as client:
        _hand_over(client.renew_token(name, timeout=server.timeout), name, out, write)


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


def _hand_over(
    token: str, name: str, out: Path | None, write: Callable[[str], None] | None
) -> None:
    """Print the token, or write it to the file `out`."""
    try:
        if write is None:
            click.echo(token)
        else:
            write(token)
    except OSError as error:
        error.add_note(f"the token is lost; make a new one with: hocket user token {name}")
        raise
    if write is None:
        say("this token is shown once; keep it in a file (--token-file) or in HOCKET_TOKEN")
    else:
        say(f"the token of '{name}' is in '{out}'; use it with: hocket --token-file {out}")
