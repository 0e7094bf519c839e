"""`hocket can`: whether a user may do something, and why."""

from __future__ import annotations

import click

from hocket.cli import output
from hocket.cli.command import Command
from hocket.cli.commands.grant import ACTION
from hocket.cli.exits import NOT_ALLOWED
from hocket.cli.names import USER
from hocket.cli.parameters import Checked
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.model import check_name

EVERYTHING = "*"


def _name_or_everything(what: str) -> Checked:
    return Checked(what, lambda value: value if value == EVERYTHING else check_name(value, what))


@click.command(
    cls=Command,
    examples="""
$ hocket can billing subscribe orders --index billing
$ hocket can ann admin '*'
""",
)
@click.argument("user", type=USER)
@click.argument("action", type=ACTION)
@click.argument("topic", type=_name_or_everything("the name of the topic"))
@click.option(
    "--index", type=_name_or_everything("the name of the index"), metavar="INDEX",
    help="Ask about this index of the topic. [default: about the topic as a whole]",
)  # fmt: skip
@output.json_option
@server_options
@pass_server
@click.pass_context
def can(
    context: click.Context,
    server: Server,
    /,
    user: str,
    action: str,
    topic: str,
    index: str | None,
    as_json: bool,
) -> None:
    """Say whether USER may do ACTION with TOPIC, and by which grant.

    The exit code is 0 for yes and 4 for no. '*' as TOPIC is the whole broker.
    """
    with server.connect() as client:
        decision = client.can(user, action, topic, index, timeout=server.timeout)
    if as_json:
        output.print_json(decision._asdict())
    else:
        click.echo(f"{'yes' if decision.allowed else 'no'}: {decision.reason}")
    if not decision.allowed:
        context.exit(NOT_ALLOWED)
