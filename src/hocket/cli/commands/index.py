"""`hocket index ...`: shows how far the indexes of a topic have come, and moves them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.exits import say
from hocket.cli.names import INDEX, TOPIC
from hocket.cli.parameters import START
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import UnknownIndex
from hocket.model import IndexDescription, Start


@click.group(
    cls=Group,
    examples="""
$ hocket index list orders
$ hocket index reset orders billing --to earliest
""",
)
def index() -> None:
    """Look at the indexes of a topic, and move them.

    An index is a named position in a topic, from which its consumer goes on.
    """


@index.command(
    "list",
    cls=Command,
    examples="""
$ hocket index list orders
$ hocket index list orders --json
""",
)
@click.argument("topic", type=TOPIC)
@output.json_option
@server_options
@pass_server
def list_indexes(server: Server, /, topic: str, as_json: bool) -> None:
    """List the indexes of TOPIC, and how many messages each has yet to consume.

    LOST are those that were removed, by retention say, before the index had consumed them.
    """
    with server.connect() as client:
        found = client.indexes(topic, timeout=server.timeout)
    if as_json:
        output.print_json([_fields(each) for each in found])
        return
    click.echo(
        output.table(
            ["INDEX", "MODE", "PARTITIONS>", "LAG>", "LOST>", "CONSUMED NOW", "HOLDS RETENTION"],
            [
                (each.name, each.mode, len(each.partitions), each.lag, each.lost,
                 _yes(any(one.attached for one in each.partitions)), _yes(each.hold_retention))
                for each in found
            ],
        )
    )  # fmt: skip
    _say_lost(found)


@index.command(
    "lag",
    cls=Command,
    examples="""
$ hocket index lag orders               # of every index
$ hocket index lag orders billing
$ hocket index lag orders billing --json
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("index", required=False, type=INDEX)
@output.json_option
@server_options
@pass_server
def lag(server: Server, /, topic: str, index: str | None, as_json: bool) -> None:
    """Show per partition how far INDEX, or every index of TOPIC, is behind the end.

    LOST are messages that were removed, by retention say, before the index had consumed them.
    """
    with server.connect() as client:
        found = client.indexes(topic, timeout=server.timeout)
    if index is not None:
        found = [_named(found, index, topic)]
    if as_json:
        output.print_json([_fields(each) for each in found])
        return
    click.echo(
        output.table(
            ["INDEX", "PARTITION>", "POSITION>", "END>", "LAG>", "LOST>", "CONSUMED NOW"],
            [
                (each.name, one.partition, one.position, one.end, one.lag, one.lost,
                 _yes(one.attached))
                for each in found
                for one in each.partitions
            ],
        )
    )  # fmt: skip
    _say_lost(found)


@index.command(
    "reset",
    cls=Command,
    examples="""
$ hocket index reset orders billing --to earliest        # consume everything again
$ hocket index reset orders billing --to latest          # skip what is there
$ hocket index reset orders billing --to 2026-03-01T08:00
$ hocket index reset orders billing --to 1200 --partition 0
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("index", type=INDEX)
@click.option(
    "--to", required=True, type=START, metavar="earliest|latest|OFFSET|TIME",
    help="Where its consumer goes on; a time without a zone is local.",
)  # fmt: skip
@click.option("--partition", type=click.IntRange(min=0), metavar="N", help="Only this partition.")
@output.json_option
@server_options
@pass_server
def reset(
    server: Server, /, topic: str, index: str, to: Start, partition: int | None, as_json: bool
) -> None:
    """Move INDEX within TOPIC, whether a consumer is connected or not."""
    with server.connect() as client:
        offsets = client.seek(topic, index, to, partition=partition, timeout=server.timeout)
    first = 0 if partition is None else partition
    positions = list(enumerate(offsets, first))
    if as_json:
        output.print_json([{"partition": one, "position": offset} for one, offset in positions])
    else:
        click.echo(output.table(["PARTITION>", "POSITION>"], positions))


@index.command("delete", cls=Command, examples="\n$ hocket index delete orders billing --yes\n")
@click.argument("topic", type=TOPIC)
@click.argument("index", type=INDEX)
@yes_option
@server_options
@pass_server
def delete(server: Server, /, topic: str, index: str, yes: bool) -> None:
    """Forget how far INDEX has come in TOPIC. No message is deleted."""
    confirm(yes, f"Forget how far the index '{index}' has come in '{topic}'?")
    with server.connect() as client:
        client.delete_index(topic, index, timeout=server.timeout)


def _say_lost(indexes: list[IndexDescription]) -> None:
    for each in indexes:
        if each.lost:
            say(f"index '{each.name}': {output.lost(each.lost)}")


def _named(indexes: list[IndexDescription], name: str, topic: str) -> IndexDescription:
    for each in indexes:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in indexes) or "none"
    raise UnknownIndex(f"the topic '{topic}' has no index '{name}'; there are: {known}")


def _fields(description: IndexDescription) -> dict[str, Any]:
    fields = asdict(description)
    for one, partition in zip(fields["partitions"], description.partitions, strict=True):
        one["lag"] = partition.lag
    totals = {"lag": description.lag, "lost": description.lost}
    return {"index": fields.pop("name"), **totals, **fields}


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
