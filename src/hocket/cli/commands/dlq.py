"""`hocket dlq ...`: lists the messages that shared indexes gave up, replays and purges them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.names import INDEX, TOPIC
from hocket.cli.parameters import AGO
from hocket.cli.server_options import Server, pass_server, server_options

if TYPE_CHECKING:
    from hocket.client_core.calls.dead_letters import DeadLetter
    from hocket.model import Start

SHOWN_MAX = 40  # characters of a value in a table

index_option = click.option(
    "--index", type=INDEX, metavar="NAME", help="Only messages that this index has given up."
)
max_option = click.option(
    "--max", "limit", type=click.IntRange(min=1), metavar="N", help="Only the oldest N."
)


@click.group(
    cls=Group,
    examples="""
$ hocket dlq list orders
$ hocket dlq replay orders --index workers
$ hocket dlq purge orders --older-than 30d
""",
)
def dlq() -> None:
    """Look at the dead letters of a topic, deliver them again, or delete them.

    When a shared index has delivered a message in vain as often as it may, the message goes to
    TOPIC.dlq.
    """


@dlq.command(
    "list",
    cls=Command,
    examples="""
$ hocket dlq list orders
$ hocket dlq list orders --all --json
""",
)
@click.argument("topic", type=TOPIC)
@index_option
@max_option
@click.option("--all", "with_replayed", is_flag=True, help="List also those that were replayed.")
@output.json_option
@server_options
@pass_server
def list_letters(
    server: Server,
    /,
    topic: str,
    index: str | None,
    limit: int | None,
    with_replayed: bool,
    as_json: bool,
) -> None:
    """List the dead letters of TOPIC, where each came from, and why it was given up.

    Those that were replayed are listed with --all, and the table then says which they are.
    """
    with server.connect() as client:
        found = client.dead_letters(topic, index=index, timeout=server.timeout)
    letters = [each for each in found if with_replayed or not each.replayed][:limit]
    if as_json:
        output.print_json([_fields(each) for each in letters])
        return
    columns = ["INDEX", "PARTITION>", "OFFSET>", "DELIVERIES>", "DIED", "REASON", "VALUE"]
    rows = [
        (each.index, each.source.partition, each.source.offset, each.deliveries,
         output.moment(each.died), each.reason, _shown(each.value))
        for each in letters
    ]  # fmt: skip
    if with_replayed:
        replayed = ["yes" if each.replayed else "no" for each in letters]
        columns.insert(4, "REPLAYED")
        click.echo(
            output.table(
                columns,
                [(*row[:4], one, *row[4:]) for row, one in zip(rows, replayed, strict=True)],
            )
        )
        return
    click.echo(output.table(columns, rows))


@dlq.command(
    "replay",
    cls=Command,
    examples="""
$ hocket dlq replay orders                    # everything that was not replayed yet
$ hocket dlq replay orders --index workers    # to this index, and to no other
$ hocket dlq replay orders --of-index workers --max 10
""",
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--index", type=INDEX, metavar="NAME",
    help="Give this index back what it has given up; no other index gets it.",
)  # fmt: skip
@click.option(
    "--of-index", type=INDEX, metavar="NAME",
    help="Publish only what this index has given up; every index gets it.",
)  # fmt: skip
@max_option
@output.json_option
@server_options
@pass_server
def replay(
    server: Server,
    /,
    topic: str,
    index: str | None,
    of_index: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Publish the dead letters of TOPIC to it again, as new messages.

    Every index of the topic gets them. Each is replayed once, unless this command is cut short.
    Those that hold what could not be read (`hocket dlq list --json` says "unreadable") stay.

    With --index nothing is published: that index delivers the messages that it gave up once more,
    at their old offsets, and counts their deliveries from the start. Each is delivered again once,
    also if this command is cut short and repeated. The topic must still keep the messages.
    """
    from hocket.client_core.calls.dead_letters import SUFFIX  # late: --help does without the client

    if index is not None and of_index is not None:
        raise click.UsageError(
            "--index gives messages back to an index, --of-index publishes them: choose one."
        )
    with server.connect() as client:
        count = client.replay_dead_letters(
            topic,
            index=index if of_index is None else of_index,
            limit=limit,
            to_index=index is not None,
            timeout=server.timeout,
        )
        if index is not None and not count:  # a slip of the pen is not "nothing to do"
            client.lag(topic.removesuffix(SUFFIX), index, timeout=server.timeout)
    if as_json:
        output.print_json({"topic": topic, "replayed": count})
    elif index is not None:
        click.echo(f"{output.messages(count)} of {topic} given back to {index}")
    else:
        click.echo(f"{output.messages(count)} published to {topic} again")


@dlq.command(
    "purge",
    cls=Command,
    examples="""
$ hocket dlq purge orders                       # all of them; it asks first
$ hocket dlq purge orders --older-than 30d --yes
$ hocket dlq purge orders --index workers --yes
""",
)
@click.argument("topic", type=TOPIC)
@index_option
@click.option(
    "--older-than", "before", type=AGO, metavar="DURATION",
    help="Only those that were given up that long ago, or before (30d, 2h30m).",
)  # fmt: skip
@yes_option
@output.json_option
@server_options
@pass_server
def purge(
    server: Server,
    /,
    topic: str,
    index: str | None,
    before: Start | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Delete dead letters of TOPIC for good, replayed ones among them.

    Without an option, all of them are deleted.
    """
    with server.connect() as client:
        if not yes:
            found = client.dead_letters(topic, index=index, timeout=server.timeout)
            count = sum(before is None or each.died < before.value for each in found)
            if count:
                confirm(yes, "Go on?", f"This deletes {_letters(count)} of '{topic}'.")
        count = client.purge_dead_letters(topic, index=index, before=before, timeout=server.timeout)
    if as_json:
        output.print_json({"topic": topic, "purged": count})
    else:
        click.echo(f"{_letters(count)} of {topic} deleted")


def _letters(count: int) -> str:
    return f"{output.number(count)} dead letter{'' if count == 1 else 's'}"


def _shown(value: bytes) -> str:
    text = value.decode(errors="backslashreplace")
    shown = "".join(each if each.isprintable() else " " for each in text[: SHOWN_MAX + 1])
    return shown if len(shown) <= SHOWN_MAX else shown[: SHOWN_MAX - 3] + "..."


def _fields(letter: DeadLetter) -> dict[str, Any]:
    return {
        "topic": letter.source.topic,
        "partition": letter.source.partition,
        "offset": letter.source.offset,
        "index": letter.index,
        "deliveries": letter.deliveries,
        "reason": letter.reason,
        "died": output.moment(letter.died),
        "replayed": letter.replayed,
        "unreadable": letter.unreadable,
        "end": letter.end,
        "part": letter.part,
        "timestamp": output.moment(letter.timestamp),
        "key": output.text_or_base64(letter.key),
        "value": output.text_or_base64(letter.value),
        "headers": {name: output.text_or_base64(data) for name, data in letter.headers.items()},
    }
