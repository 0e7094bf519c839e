"""`hocket publish`: publishes one message, and prints its position."""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta

import click

from hocket.cli import exits, output
from hocket.cli.command import Command
from hocket.cli.delay_options import check_due, delay_options
from hocket.cli.names import TOPIC
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.model import MESSAGE_BYTES_MAX


def parse_headers(
    _context: click.Context, option: click.Parameter, given: tuple[str, ...]
) -> dict[str, bytes]:
    headers: dict[str, bytes] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"a header is NAME=VALUE, not {text!r}", param=option)
        if name in headers:
            raise click.BadParameter(f"the header {name!r} is given twice", param=option)
        headers[name] = os.fsencode(value)
    return headers


@click.command(
    cls=Command,
    examples="""
$ hocket publish orders 'one coffee' --key table-7
$ hocket publish orders --header kind=order --header from=web 'one tea'
$ hocket publish images < photo.png                 # stdin as one message
$ hocket publish reminders 'call Ada' --delay 5m    # a topic made with --delayed
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("value", required=False)
@click.option("--key", metavar="K", help="The key, which decides the partition.")
@click.option(
    "--header", "headers", metavar="NAME=VALUE", multiple=True, callback=parse_headers,
    help="A header; may be given several times.",
)  # fmt: skip
@click.option(
    "--partition", type=click.IntRange(min=0), metavar="N",
    help="The partition; it overrides the key.",
)  # fmt: skip
@delay_options
@output.json_option
@server_options
@pass_server
def publish(
    server: Server,
    /,
    topic: str,
    value: str | None,
    key: str | None,
    headers: dict[str, bytes],
    partition: int | None,
    delay: timedelta | None,
    deliver_at: datetime | None,
    as_json: bool,
) -> None:
    """Publish VALUE to TOPIC, durably, and print its position as topic/partition/offset.

    Without VALUE, or with -, all of stdin is the message. A delayed message gets its offset when it
    is due; until then it is shown as -1.
    """
    check_due(delay, deliver_at)
    body = _read_stdin() if value is None or value == "-" else os.fsencode(value)
    with server.connect() as client:
        position = client.publish(
            topic,
            body,
            key=None if key is None else os.fsencode(key),
            headers=headers or None,
            partition=partition,
            delay=delay,
            deliver_at=deliver_at,
            timeout=server.timeout,
        )
    if as_json:
        output.print_json(position._asdict())
    else:
        click.echo(f"{position.topic}/{position.partition}/{position.offset}")


def _read_stdin() -> bytes:
    exits.check_stdin()
    if sys.stdin.isatty():
        exits.say("reading the message from the terminal; Ctrl-D ends")
    return sys.stdin.buffer.read(MESSAGE_BYTES_MAX + 1)  # more would be refused all the same
