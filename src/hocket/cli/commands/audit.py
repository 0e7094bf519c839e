"""`hocket audit`: what the nodes have denied and changed lately."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import click

from hocket.cli import output
from hocket.cli.command import Command
from hocket.cli.exits import say
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import OutOfRange
from hocket.model import SECOND_US, duration_us


def _since(_context: click.Context, option: click.Parameter, text: str | None) -> datetime | None:
    """A time in ISO format, or how long ago."""
    if text is None:
        return None
    try:
        return datetime.fromtimestamp(time.time() - duration_us(text) / SECOND_US, UTC)
    except OutOfRange:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither a time in ISO format nor how long ago (30m, 2d)", param=option
        ) from None


@click.command(
    cls=Command,
    examples="""
$ hocket audit
$ hocket audit --since 1h
$ hocket audit --since 2027-01-01T00:00:00+01:00 --json
""",
)
@click.option(
    "--since", metavar="TIME", callback=_since,
    help="Only what was written from then on: a time in ISO format, or how long ago (30m, 2d).",
)  # fmt: skip
@output.json_option
@server_options
@pass_server
def audit(server: Server, /, since: datetime | None, as_json: bool) -> None:
    """Show what the nodes of the cluster have denied and changed lately.

    Each node keeps the last of its records. Nodes that do not answer within a second are named.
    """
    with server.connect() as client:
        found = client.audit(since=since, timeout=server.timeout)
    if as_json:
        output.print_json(
            {
                "records": [
                    {"time": output.moment(each.time_us), "node": each.node, "text": each.text}
                    for each in found.records
                ],
                "silent": list(found.silent),
            }
        )
        return
    for each in found.records:
        click.echo(f"{output.moment(each.time_us)}  {each.node}  {each.text}")
    for node in found.silent:
        say(f"node {node} does not answer: what it has written is not shown")
