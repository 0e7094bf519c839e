"""`hocket grant ...`: says what the users of a role may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar, get_args

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.exits import say
from hocket.cli.names import ROLE
from hocket.cli.parameters import Checked
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import UnknownRole
from hocket.model import Action, check_pattern

F = TypeVar("F", bound=Callable[..., Any])

ACTION = click.Choice(get_args(Action))
PATTERN = Checked("pattern", check_pattern)


@click.group(
    cls=Group,
    examples="""
$ hocket grant add writer publish 'orders*'
$ hocket grant add reader subscribe orders --index 'billing-*'
$ hocket grant list
""",
)
def grant() -> None:
    """Say what the users of a role may do, with which topics and indexes.

    Actions are publish, subscribe, create, alter, delete, and admin, which implies the others; for
    names of brokers in other processes, bind (to have such a name) and connect (to call it). In a
    pattern '*' is any run of characters; quote it from the shell.
    """


def _grant_arguments(command: F) -> F:
    command = click.option(
        "--index", default="*", type=PATTERN, metavar="PATTERN",
        help="Only for these indexes of the topics. [default: all]",
    )(command)  # fmt: skip
    command = click.argument("topic", default="*", type=PATTERN, metavar="[TOPIC-PATTERN]")(command)
    command = click.argument("action", type=ACTION)(command)
    return click.argument("role", type=ROLE)(command)


@grant.command(
    "add",
    cls=Command,
    examples="""
$ hocket grant add writer publish 'orders*'
$ hocket grant add reader subscribe orders --index 'billing-*'
$ hocket grant add operator alter
$ hocket grant add chatter bind 'chat-*'
""",
)
@_grant_arguments
@server_options
@pass_server
def add(server: Server, /, role: str, action: str, topic: str, index: str) -> None:
    """Permit users of ROLE an ACTION on the topics that match, or on all topics."""
    with server.connect() as client:
        client.grant(role, action, topic, index, timeout=server.timeout)
        if action not in ("create", "bind", "connect") and topic.strip("*"):
            _say_if_nothing_matches(topic, client.topics(timeout=server.timeout))


@grant.command(
    "remove", cls=Command, examples="\n$ hocket grant remove writer publish 'orders*'\n"
)  # fmt: skip
@_grant_arguments
@server_options
@pass_server
def remove(server: Server, /, role: str, action: str, topic: str, index: str) -> None:
    """Take a grant back; name it as it was added. What it kept open ends at once."""
    with server.connect() as client:
        client.revoke(role, action, topic, index, timeout=server.timeout)


@grant.command(
    "list", cls=Command, examples="\n$ hocket grant list\n$ hocket grant list reader --json\n"
)  # fmt: skip
@click.argument("role", required=False, type=ROLE)
@output.json_option
@server_options
@pass_server
def list_grants(server: Server, /, role: str | None, as_json: bool) -> None:
    """List the grants of ROLE, or of every role."""
    with server.connect() as client:
        _, roles = client.access(timeout=server.timeout)
    known = [each.name for each in roles]
    if role is not None and role not in known:
        raise UnknownRole(f"there is no role '{role}'; there are: {', '.join(known)}")
    found = [(each.name, one) for each in roles for one in each.grants if role in (None, each.name)]
    if as_json:
        output.print_json([{"role": name, **asdict(one)} for name, one in found])
        return
    rows = [(name, one.action, one.topic, one.index) for name, one in found]
    click.echo(output.table(["ROLE", "ACTION", "TOPICS", "INDEXES"], rows))


def _say_if_nothing_matches(pattern: str, topics: list[str]) -> None:
    from hocket.model import matches

    if not any(matches(pattern, topic) for topic in topics):
        say(f"granted; no topic matches '{pattern}' yet")
