"""`hocket dlq ...`: lists the messages that shared indexes have given up, and replays them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.names import INDEX, TOPIC
from hocket.cli.server_options import Server, pass_server, server_options

if TYPE_CHECKING:
    from hocket.client.calls.dead_letters import DeadLetter

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
""",
)
def dlq() -> None:
    """Look at the dead letters of a topic, and deliver them again.

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
    """List the dead letters of TOPIC, where each came from, and why it was given up."""
    with server.connect() as client:
        found = client.dead_letters(topic, index=index, timeout=server.timeout)
    letters = [each for each in found if with_replayed or not each.replayed][:limit]
    if as_json:
        output.print_json([_fields(each) for each in letters])
        return
    click.echo(
        output.table(
            ["INDEX", "PARTITION>", "OFFSET>", "DELIVERIES>", "DIED", "REASON", "VALUE"],
            [
                (each.index, each.source.partition, each.source.offset, each.deliveries,
                 output.moment(each.died), each.reason, _shown(each.value))
                for each in letters
            ],
        )
    )  # fmt: skip


@dlq.command(
    "replay",
    cls=Command,
    examples="""
$ hocket dlq replay orders                    # everything that was not replayed yet
$ hocket dlq replay orders --index workers --max 10
""",
)
@click.argument("topic", type=TOPIC)
@index_option
@max_option
@output.json_option
@server_options
@pass_server
def replay(
    server: Server, /, topic: str, index: str | None, limit: int | None, as_json: bool
) -> None:
    """Publish the dead letters of TOPIC to it again, as new messages.

    Every index of the topic gets them. Each is replayed once, unless this command is cut short.
    Those that hold what could not be read (`hocket dlq list --json` says "unreadable") stay.
    """
    with server.connect() as client:
        count = client.replay_dead_letters(topic, index=index, limit=limit, timeout=server.timeout)
    if as_json:
        output.print_json({"topic": topic, "replayed": count})
    else:
        click.echo(f"{output.messages(count)} published to {topic} again")


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
