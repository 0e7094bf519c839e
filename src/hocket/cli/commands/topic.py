"""`hocket topic ...`: creates, lists, describes, alters and deletes topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.confirming import confirm, yes_option
from hocket.cli.exits import say
from hocket.cli.names import TOPIC
from hocket.cli.parameters import KEPT_FOR, LIMIT, RETENTION, SIZE
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.tree import fields as tree_fields, is_tree, table as tree_table
from hocket.errors import (
    HocketError,
    NoConnection,
    NotEnoughNodes,
    NotHere,
    SeveralNodes,
    UnknownTopic,
)
from hocket.model import PARTITIONS_MAX, check_retention, format_duration

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.cluster_model import TreeDescription
    from hocket.model import PartitionDescription, TopicConfig, TopicDescription

F = TypeVar("F", bound=Callable[..., Any])

AWAY_SECONDS = 1.0  # for the indexes of a topic whose node does not answer
REPLICAS_COLUMNS = 38  # of a table: three names of nodes
# The fields of a partition that nobody knows while its node does not answer.
NUMBERS = (
    "start", "end", "memory_start", "memory_bytes", "disk_bytes", "memory_reads", "disk_reads",
    "waiting", "tier_bytes",
)  # fmt: skip


def config_options(command: F) -> F:
    """Add the options for what can be set for a topic.

    What is not given keeps its value, or gets the default.
    """
    options = [
        click.option(
            "--partitions", type=click.IntRange(1, PARTITIONS_MAX), metavar="N",
            help="How many logs the topic is spread over, by key. [default: 1]",
        ),
        click.option(
            "--replication", type=click.IntRange(min=1), metavar="N",
            help="On how many nodes each partition is kept. [default: the cluster's]",
        ),
        click.option(
            "--memory-retention", type=KEPT_FOR,
            help="How long to serve messages from memory, with its unit. [default: 10m]",
        ),
        click.option(
            "--memory-bytes", type=SIZE,
            help="Memory for one partition; it overrides the time. [default: 256MiB]",
        ),
        click.option(
            "--disk-retention", type=RETENTION,
            help="How long to keep messages on disk, with its unit (7d, 12h), or 'forever'; not "
            "shorter than in memory. [default: 7d]",
        ),
        click.option(
            "--disk-bytes", type=LIMIT,
            help="Disk for one partition, or 'unlimited'. [default: unlimited]",
        ),
        click.option(
            "--segment-bytes", type=SIZE,
            help="Size of the files a partition is made of. [default: 64MiB]",
        ),
        click.option(
            "--durability", type=click.Choice(["quorum", "memory"]),
            help="Acknowledge a message when it is synced to the disks of a majority, or when it "
            "is in memory, where a power cut may lose the last messages. [default: quorum]",
        ),
        click.option(
            "--delayed", is_flag=True, default=None,
            help="Take messages that are due later; this cannot be taken back.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _given(config: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if value is not None}


@click.group(
    cls=Group,
    examples="""
$ hocket topic create orders --partitions 4
$ hocket topic describe orders
""",
)
def topic() -> None:
    """Create, look at, change and delete topics."""


@topic.command(
    "create",
    cls=Command,
    examples="""
$ hocket topic create orders
$ hocket topic create orders --partitions 4 --memory-retention 10m --disk-retention 30d
$ hocket topic create audit --disk-retention forever --if-not-exists
$ hocket topic create reminders --delayed
""",
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@config_options
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic is there already.")
@server_options
@pass_server
def create(server: Server, /, topic: str, if_not_exists: bool, **config: Any) -> None:
    """Create the topic NAME."""
    with server.connect() as client:
        client.create_topic(topic, exist_ok=if_not_exists, timeout=server.timeout, **_given(config))


@topic.command(
    "list",
    cls=Command,
    examples="""
$ hocket topic list
$ hocket topic list --names | grep '^orders'
$ hocket topic list --json
""",
)
@click.option("--names", is_flag=True, help="Print the names alone, one per line.")
@output.json_option
@server_options
@pass_server
def list_topics(server: Server, /, names: bool, as_json: bool) -> None:
    """List the topics.

    NODES are those that hold partitions of the topic, BEHIND counts the partitions that a node
    should have and is not known to. What a node holds that does not answer is not known, and shown
    as -.
    """
    with server.connect() as client:
        found = client.topics(timeout=server.timeout)
        if names:
            click.echo("".join(f"{name}\n" for name in found), nl=False)
            return
        described = []
        for name in found:
            try:
                described.append(client.describe(name, timeout=server.timeout))
            except UnknownTopic:  # deleted since
                continue
    summaries = [_summary(each) for each in described]
    if as_json:
        output.print_json(summaries)
        return
    is_spread = len({node for each in summaries for node in each["nodes"]}) > 1
    is_behind = any(each["under_replicated"] for each in summaries)
    has_tier = any(each["tier_bytes"] for each in summaries)
    click.echo(
        output.table(
            ["TOPIC", "PARTITIONS>", *(["NODES>"] if is_spread else []),
             *(["BEHIND>"] if is_behind else []), "MESSAGES>", "MEMORY>", "DISK>",
             *(["TIER>"] if has_tier else [])],
            [
                (each["topic"], each["partitions"], *([len(each["nodes"])] if is_spread else []),
                 *([each["under_replicated"]] if is_behind else []),
                 _known(each["messages"]), _known(each["memory_bytes"], output.size),
                 _known(each["disk_bytes"], output.size),
                 *([_known(each["tier_bytes"], output.size)] if has_tier else []))
                for each in summaries
            ],
        )
    )  # fmt: skip
    for problem in dict.fromkeys(filter(None, (each["problem"] for each in summaries))):
        say(problem)


def _summary(description: TopicDescription) -> dict[str, Any]:
    """A number is None if a partition that counts in it is not known."""
    partitions = description.partitions
    missing = [each.problem for each in partitions if not each.known]

    def total(number: Callable[[PartitionDescription], int]) -> int | None:
        return None if missing else sum(map(number, partitions))

    return {
        "topic": description.name,
        "partitions": len(partitions),
        "nodes": sorted({node for each in partitions for node in each.replicas}),
        "under_replicated": sum(each.under_replicated for each in partitions),
        "messages": total(lambda each: each.end - each.start),
        "memory_bytes": total(lambda each: each.memory_bytes),
        "disk_bytes": total(lambda each: each.disk_bytes),
        "tier_bytes": total(lambda each: each.tier_bytes),
        "problem": f"topic {description.name!r}: {missing[0]}" if missing else None,
    }


def _known(number: int | None, shown: Callable[[int], str | int] = int) -> str | int:
    return "-" if number is None else shown(number)


@topic.command(
    "describe",
    cls=Command,
    examples="""
$ hocket topic describe orders
$ hocket topic describe orders --json
""",
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@output.json_option
@server_options
@pass_server
def describe(server: Server, /, topic: str, as_json: bool) -> None:
    """Show how the topic NAME is set up and what its partitions hold.

    START is the oldest offset that can be read, END the offset of the next message. Reads from
    IN MEMORY on are answered without the disk. WAITING are delayed messages that are not due yet.
    LEADER is the node that serves the partition. What a node holds that does not answer is not
    known, and shown as -. Of each copy, if there are several, FLUSHED is the offset up to which it
    is on the disk, and LAG how many entries it lacks; BEHIND is one that is not known to have what
    the leader had a moment ago. Of a popular topic, whose consumers are served by all nodes, the
    last table shows which node takes its messages from which: see hocket ring --topic.
    """
    with server.connect() as client:
        description = client.describe(topic, timeout=server.timeout)
        lost: dict[str, int] = {}
        is_away = not all(each.known for each in description.partitions)
        try:
            indexes = client.indexes(topic, timeout=AWAY_SECONDS if is_away else server.timeout)
        except (NotHere, NoConnection, SeveralNodes) as error:
            say(f"What its indexes have lost is left out: {error}.")
        else:
            lost = {each.name: each.lost for each in indexes if each.lost}
        trees = _trees(client, topic, server.timeout)
        names = {} if as_json else _names(client, server.timeout)
    if as_json:
        fields = asdict(description)
        for partition, known in zip(fields["partitions"], description.partitions, strict=True):
            partition["under_replicated"] = known.under_replicated
            if not known.known:
                partition |= dict.fromkeys(NUMBERS)
        tree = [] if trees is None else tree_fields(trees)
        output.print_json({"topic": fields.pop("name"), **fields, "lost": lost, "trees": tree})
        return
    click.echo(described(description, lost, output.width(), names))
    if trees is not None and is_tree(trees):
        click.echo("\n" + tree_table(trees, lambda node: _short(node, names)))


def _names(client: Client, timeout: float | None) -> dict[str, str]:
    """The names of the nodes by their ids; none where the broker does not tell its nodes."""
    try:
        return {each.node: each.name for each in client.nodes(timeout=timeout)}
    except HocketError:
        return {}


def _trees(client: Client, topic: str, timeout: float | None) -> TreeDescription | None:
    """How it fans out; None: the broker is in no cluster, or does not say."""
    try:
        return client.tree(topic, timeout=timeout)
    except NotEnoughNodes:
        return None
    except HocketError as error:
        say(f"How it fans out is left out: {error}.")
        return None


def described(
    description: TopicDescription,
    lost: dict[str, int],
    columns_max: int,
    names: dict[str, str] | None = None,
) -> str:
    """The description, in lines that are not longer than this; nodes by their names."""
    names = names or {}
    problems: dict[str, list[str]] = {}
    for each in description.partitions:
        if each.problem:
            problems.setdefault(each.problem, []).append(str(each.partition))
    remarks = [
        f"{'partitions' if numbers[1:] else 'partition'} {', '.join(numbers)}: {problem}"
        for problem, numbers in problems.items()
    ]
    behind = [str(each.partition) for each in description.partitions if each.under_replicated]
    if behind:
        remarks.append(
            f"{'partitions' if behind[1:] else 'partition'} {', '.join(behind)}: "
            "under-replicated: a node that should have a copy is not known to have all of it"
        )
    remarks += [f"index {name}: {output.lost(count)}" for name, count in lost.items()]
    copies = len(description.partitions[0].replicas)
    return "\n\n".join(
        [
            _config_text(description.name, description.config, copies, columns_max),
            _partitions_table(description, columns_max, names),
            *_replicas_table(description, columns_max, names),
            *(output.wrapped(remark, columns_max) for remark in remarks),
        ]
    )


def _replication(config: TopicConfig, copies: int) -> str:
    if config.replication is not None:
        return str(config.replication)
    return f"{copies}, the cluster's default when it was made"


def _config_text(name: str, config: TopicConfig, copies: int, columns_max: int) -> str:
    disk_time, disk_bytes = config.disk_retention_us, config.disk_bytes_max
    lines = [
        ("topic", name),
        ("replication", _replication(config, copies)),
        ("durability", config.durability),
        ("in memory", f"{format_duration(config.memory_retention_us)}, at most "
                      f"{output.size(config.memory_bytes_max)} per partition"),
        ("on disk", ("forever" if disk_time is None else format_duration(disk_time))
                    + ("" if disk_bytes is None
                       else f", at most {output.size(disk_bytes)} per partition")),
        ("segments", output.size(config.segment_bytes_max)),
        ("delayed", "yes" if config.delayed else "no"),
    ]  # fmt: skip
    return "\n".join(
        output.wrapped(f"{label:<12} {value}", columns_max, indent=13) for label, value in lines
    )


def _partitions_table(
    description: TopicDescription, columns_max: int, names: dict[str, str]
) -> str:
    delayed = description.config.delayed
    has_tier = any(each.tier_bytes for each in description.partitions)
    rows: list[tuple[str | int, ...]] = []
    for each in description.partitions:
        first, *rest = output.folded(
            (_short(node, names) for node in each.replicas), REPLICAS_COLUMNS
        ) or [""]
        waiting = [each.waiting] if delayed else []
        held: tuple[str | int, ...] = (
            each.start, each.end, *waiting, each.memory_start, output.size(each.memory_bytes),
            output.size(each.disk_bytes), *([output.size(each.tier_bytes)] if has_tier else []),
            each.memory_reads, each.disk_reads,
        )  # fmt: skip
        if not each.known:
            held = ("-",) * len(held)
        rows.append((each.partition, *held, _short(each.leader, names) or "-", first))
        rows += [("",) * (len(rows[-1]) - 1) + (line,) for line in rest]
    return output.blocks(
        ["PARTITION>", "START>", "END>", *(["WAITING>"] if delayed else []), "IN MEMORY>",
         "MEMORY>", "DISK>", *(["TIER>"] if has_tier else []), "MEMORY READS>", "DISK READS>",
         "LEADER", "REPLICAS"],
        rows,
        columns_max,
    )  # fmt: skip


def _replicas_table(
    description: TopicDescription, columns_max: int, names: dict[str, str]
) -> list[str]:
    """Nothing for a topic with one replica, or told by a node that does not know of its copies."""
    rows: list[tuple[str | int, ...]] = []
    for each in description.partitions:
        for state in each.replica_states:
            is_known = state.role != "unknown"
            rows.append(
                (each.partition, _short(state.node, names), state.role,
                 state.end if is_known else "-", state.lag if is_known else "-",
                 "yes" if state.behind else "no")
            )  # fmt: skip
    if len(rows) == len(description.partitions):
        return []
    head = ["PARTITION>", "REPLICA", "ROLE", "FLUSHED>", "LAG>", "BEHIND"]
    return [output.blocks(head, rows, columns_max)] if rows else []


def _short(node: str, names: dict[str, str]) -> str:
    """A node's name, or the beginning of its id; the JSON has all of the id."""
    shown = names.get(node) or node
    return shown if len(shown) <= 12 else f"{shown[:11]}…"


@topic.command(
    "alter",
    cls=Command,
    examples="""
$ hocket topic alter orders --partitions 8          # more, never fewer
$ hocket topic alter orders --disk-retention 30d --disk-bytes unlimited
$ hocket topic alter orders --disk-retention 12h --yes   # older messages are deleted
""",
)
@click.argument("topic", metavar="NAME", type=TOPIC)
@config_options
@yes_option
@server_options
@pass_server
def alter(server: Server, /, topic: str, yes: bool, **config: Any) -> None:
    """Change what is set for the topic NAME; what is not given stays as it is.

    After adding partitions, the messages of a key may go to another partition than before. If
    messages would be deleted, because they are kept on disk for a shorter time or in less space,
    the command asks first.
    """
    changes = _given(config)
    if not changes:
        raise click.UsageError("Nothing to change: give at least one option.")
    with server.connect() as client:
        if not yes:
            loss = _loss(client, topic, changes, server.timeout)
            if loss:
                confirm(yes, "Go on?", loss)
        client.alter_topic(topic, timeout=server.timeout, **changes)


def _loss(client: Client, topic: str, changes: dict[str, Any], timeout: float) -> str:
    """What the topic would lose by these changes, as a sentence; empty if it loses nothing."""
    from hocket.client_core.calls.topics import configured  # late: `--help` needs no frames

    before = client.describe(topic, timeout=timeout)
    after = configured(before.config, **changes)
    check_retention(after, before.config)
    lost = []
    if _is_less(after.disk_retention_us, before.config.disk_retention_us):
        assert after.disk_retention_us is not None
        since = datetime.now(UTC) - timedelta(microseconds=after.disk_retention_us)
        kept_from = client.find_offsets(topic, since, timeout=timeout)
        older = sum(
            max(0, offset - each.start)
            for each, offset in zip(before.partitions, kept_from, strict=False)
        )
        if older:
            held = format_duration(after.disk_retention_us)
            total = sum(each.end - each.start for each in before.partitions)
            lost.append(
                f"up to {output.messages(older)} of {output.number(total)} that are older than "
                f"{held}"
            )
    if _is_less(after.disk_bytes_max, before.config.disk_bytes_max):
        assert after.disk_bytes_max is not None
        unknown = next((each.problem for each in before.partitions if not each.known), "")
        if unknown:
            return f"This may delete messages from '{topic}', how many cannot be told: {unknown}."
        excess = sum(max(0, each.disk_bytes - after.disk_bytes_max) for each in before.partitions)
        if excess:
            lost.append(f"the oldest messages, about {output.size(excess)}")
    return f"This deletes {' and '.join(lost)} from '{topic}'." if lost else ""


def _is_less(limit: int | None, former: int | None) -> bool:
    """Whether this limit, where None is none, takes more than the former."""
    return limit is not None and (former is None or limit < former)


@topic.command("delete", cls=Command, examples="\n$ hocket topic delete orders --yes\n")
@click.argument("topic", metavar="NAME", type=TOPIC)
@yes_option
@server_options
@pass_server
def delete(server: Server, /, topic: str, yes: bool) -> None:
    """Delete the topic NAME with its messages and indexes."""
    with server.connect() as client:
        if not yes:
            client.describe(topic, timeout=server.timeout)  # raises if there is nothing to ask for
            confirm(yes, f"Delete the topic '{topic}' with all its messages?")
        client.delete_topic(topic, timeout=server.timeout)
