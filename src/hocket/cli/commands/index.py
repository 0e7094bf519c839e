"""`hocket index ...`: shows how far the indexes of a topic have come, and moves them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.exits import say
from hocket.cli.names import INDEX, TOPIC
from hocket.cli.parameters import START
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.errors import NotAllowed, UnknownIndex, UnknownTopic
from hocket.model import IndexDescription, IndexPartition, Start

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client

Found = tuple[str, IndexDescription]  # with its topic


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
$ hocket index list                 # of all topics, the worst lag first
$ hocket index list orders --json
""",
)
@click.argument("topic", required=False, type=TOPIC)
@output.json_option
@server_options
@pass_server
def list_indexes(server: Server, /, topic: str | None, as_json: bool) -> None:
    """List the indexes of TOPIC, and how many messages each has yet to consume.

    Without TOPIC it is all topics that you may consume, and the index with the most to consume
    comes first.

    LOST are those that were removed, by retention say, before the index had consumed them.
    """
    with server.connect() as client:
        found = _found(client, topic, server.timeout)
    if as_json:
        output.print_json([_fields(each, where, named=topic) for where, each in found])
        return
    _print_table(
        ["INDEX", "MODE", "PARTITIONS>", "LAG>", "LOST>", "CONSUMED NOW", "HOLDS RETENTION"],
        [
            (where, (each.name, each.mode, len(each.partitions), each.lag, each.lost,
             _yes(any(one.attached for one in each.partitions)), _yes(each.hold_retention)))
            for where, each in found
        ],
        named=topic,
    )  # fmt: skip
    _say_lost(found, named=topic)


@index.command(
    "lag",
    cls=Command,
    examples="""
$ hocket index lag                      # of all topics, the worst lag first
$ hocket index lag orders               # of every index of the topic
$ hocket index lag orders billing
$ hocket index lag orders billing --json
""",
)
@click.argument("topic", required=False, type=TOPIC)
@click.argument("index", required=False, type=INDEX)
@output.json_option
@server_options
@pass_server
def lag(server: Server, /, topic: str | None, index: str | None, as_json: bool) -> None:
    """Show per partition how far INDEX, or every index of TOPIC, is behind the end.

    Without TOPIC it is all topics that you may consume: the index that is the furthest behind comes
    first, and of its partitions the one that is.

    LOST are messages that were removed, by retention say, before the index had consumed them.
    """
    with server.connect() as client:
        found = _found(client, topic, server.timeout)
    if topic is not None and index is not None:
        found = [(topic, _named([each for _, each in found], index, topic))]
    if as_json:
        output.print_json([_fields(each, where, named=topic) for where, each in found])
        return
    _print_table(
        ["INDEX", "PARTITION>", "POSITION>", "END>", "LAG>", "LOST>", "CONSUMED NOW"],
        [
            (where, (each.name, one.partition, one.position, one.end, one.lag, one.lost,
             _yes(one.attached)))
            for where, each in found
            for one in (each.partitions if topic is not None else _worst_first(each.partitions))
        ],
        named=topic,
    )  # fmt: skip
    _say_lost(found, named=topic)


@index.command(
    "reset",
    cls=Command,
    examples="""
$ hocket index reset orders billing --to earliest        # consume everything again
$ hocket index reset orders billing --to latest          # skip what is there
$ hocket index reset orders billing --to 2026-03-01T08:00
$ hocket index reset orders billing --to 2h30m           # what came since then
$ hocket index reset orders billing --to 1200 --partition 0
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("index", type=INDEX)
@click.option(
    "--to", required=True, type=START, metavar="earliest|latest|OFFSET|TIME|AGO",
    help="Where its consumer goes on; a time without a zone is local, 10m or 2h30m is that long "
    "ago.",
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


@index.command(
    "skip",
    cls=Command,
    examples="""
$ hocket index skip orders billing --partition 0 --offset 1200
""",
)
@click.argument("topic", type=TOPIC)
@click.argument("index", type=INDEX)
@click.option(
    "--partition", required=True, type=click.IntRange(min=0), metavar="N", help="Where they are."
)
@click.option(
    "--offset", required=True, type=click.IntRange(min=0), metavar="N",
    help="One of the messages that cannot be read, as its consumer was told.",
)  # fmt: skip
@output.json_option
@server_options
@pass_server
def skip(
    server: Server, /, topic: str, index: str, partition: int, offset: int, as_json: bool
) -> None:
    """Move INDEX past messages of TOPIC that cannot be read, and past no others.

    The index must have come to them: what lies before them is acknowledged first. A shared index
    needs no help; it sets such messages aside as dead letters.
    """
    with server.connect() as client:
        position = client.skip(
            topic, index, partition=partition, offset=offset, timeout=server.timeout
        )
    if as_json:
        output.print_json({"partition": partition, "position": position})
    else:
        click.echo(output.table(["PARTITION>", "POSITION>"], [(partition, position)]))


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


def _found(client: Client, topic: str | None, timeout: float) -> list[Found]:
    """The indexes of this topic; of all topics, if it is None, with the worst lag first."""
    if topic is not None:
        return [(topic, each) for each in client.indexes(topic, timeout=timeout)]
    found: list[Found] = []
    for name in client.topics(timeout=timeout):
        with suppress(UnknownTopic, NotAllowed):  # deleted since; or another's
            found += [(name, each) for each in client.indexes(name, timeout=timeout)]
    return sorted(found, key=lambda each: (-each[1].lag, each[0], each[1].name))


def _worst_first(partitions: Sequence[IndexPartition]) -> list[IndexPartition]:
    return sorted(partitions, key=lambda one: (-one.lag, one.partition))


def _print_table(
    columns: list[str], rows: list[tuple[str, tuple[str | int, ...]]], *, named: str | None
) -> None:
    """Print the rows, which come with their topics; those are shown unless the user named one."""
    if named is None:
        click.echo(output.table(["TOPIC", *columns], [(topic, *row) for topic, row in rows]))
    else:
        click.echo(output.table(columns, [row for _, row in rows]))


def _say_lost(found: list[Found], *, named: str | None) -> None:
    for topic, each in found:
        if each.lost:
            of = "" if named else f" of '{topic}'"
            say(f"index '{each.name}'{of}: {output.lost(each.lost)}")


def _named(indexes: list[IndexDescription], name: str, topic: str) -> IndexDescription:
    for each in indexes:
        if each.name == name:
            return each
    known = ", ".join(each.name for each in indexes) or "none"
    raise UnknownIndex(f"the topic '{topic}' has no index '{name}'; there are: {known}")


def _fields(description: IndexDescription, topic: str, *, named: str | None) -> dict[str, Any]:
    fields = asdict(description)
    for one, partition in zip(fields["partitions"], description.partitions, strict=True):
        one["lag"] = partition.lag
    totals = {"lag": description.lag, "lost": description.lost}
    where = {} if named else {"topic": topic}
    return {**where, "index": fields.pop("name"), **totals, **fields}


def _yes(fact: bool) -> str:
    return "yes" if fact else "no"
