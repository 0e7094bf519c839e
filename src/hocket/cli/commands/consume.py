"""`hocket consume`: prints a value per line, and moves an index only past what was written.

Whatever ends the command (the end of the topic, `--max`, Ctrl-C, a reader of the pipe that leaves,
a full disk behind stdout), exactly those messages are acknowledged whose lines were written whole.
What a reader left in the pipe when it went away was not written. With an own index a batch is begun
when the reader has taken all of the last one, so that this holds but for the end of one batch.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import click

from hocket.cli.command import Command
from hocket.cli.exits import say
from hocket.cli.line_writer import LineWriter
from hocket.cli.names import INDEX, TOPICS
from hocket.cli.output import message_json, messages
from hocket.cli.parameters import END, SECONDS, START
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.shared_reading import LOOK_SECONDS, SharedPrinting, SharedReading
from hocket.cli.stop_signals import StopSignals
from hocket.cli.template import Template, read_template
from hocket.errors import HocketError, Timeout, UnknownIndex, UnknownTopic
from hocket.model import Mode, PartitionId, Start

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.client.faces.blocking.subscription import Subscription
    from hocket.client_core.consuming.message import MessageBatch

T = TypeVar("T")


@click.command(
    cls=Command,
    examples="""
$ hocket consume orders                                   # all there is, then end
$ hocket consume orders --follow --start latest           # what comes from now on
$ hocket consume orders --index billing --max 10          # go on where billing has come to
$ hocket consume orders --index mailers --mode shared -f  # share the work with others
$ hocket consume orders --start 2026-03-01T08:00 --json | jq .key
$ hocket consume orders --start 2h30m --to 10m            # from that long ago to that long ago
$ hocket consume orders --format '{partition}/{offset} {key}: {value}'
$ hocket consume orders 'eu.*' --follow --json            # also new topics that match
""",
)
@click.argument("topics", type=TOPICS, metavar="TOPIC...", nargs=-1, required=True)
@click.option(
    "--index", type=INDEX, metavar="NAME",
    help="Go on where this index has come to, and move it past what is printed.",
)  # fmt: skip
@click.option(
    "--mode", type=click.Choice(["own", "shared", "key_shared"]), default="own",
    show_default=True, help="How the consumers of one index share its messages.",
)  # fmt: skip
@click.option(
    "--lease", type=SECONDS, metavar="DURATION",
    help="Shared: how long this consumer may hold a message. [default: the index's own, 30s]",
)  # fmt: skip
@click.option(
    "--max-deliveries", type=click.IntRange(1, 250), metavar="N",
    help="Shared: after N deliveries a message is a dead letter. [default: the index's own, 5]",
)  # fmt: skip
@click.option(
    "--prefetch", type=click.IntRange(1, 20_000), metavar="N",
    help="Shared: at most N messages are held here unsettled. [default: 5000 of each node]",
)  # fmt: skip
@click.option(
    "--start", type=START, default="earliest", show_default=True,
    metavar="earliest|latest|OFFSET|TIME|AGO",
    help="Where to begin, unless the index exists: an offset, an ISO time (without a zone it is "
    "local), or that long ago (10m, 2h30m, 1d).",
)  # fmt: skip
@click.option(
    "--to", type=END, metavar="latest|OFFSET|TIME|AGO",
    help="End there: before this offset (of one partition), before the first message of this time "
    "or of that long ago, or at the end as of now.",
)  # fmt: skip
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, metavar="N",
    help="Only this partition; may be given several times.",
)  # fmt: skip
@click.option(
    "--max", "count_max", type=click.IntRange(min=1), metavar="N", help="End after N messages."
)
@click.option("--follow", "-f", is_flag=True, help="At the end, wait for more.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
@click.option(
    "--format", "template", metavar="TEMPLATE", callback=read_template,
    help="Print a line like this: text with {topic}, {partition}, {offset}, {time}, {key}, "
    "{value}, {headers}, {headers[NAME]}, {delivery_count}; \\t is a tab, {{ a brace.",
)  # fmt: skip
@click.option("--no-ack", is_flag=True, help="Leave an own index where it is.")
@click.option("--no-create", is_flag=True, help="Fail if there is no such index; do not make it.")
@server_options
@pass_server
def consume(
    server: Server,
    /,
    topics: Sequence[str],
    index: str | None,
    mode: Mode,
    lease: float | None,
    max_deliveries: int | None,
    prefetch: int | None,
    start: Start,
    to: Start | None,
    partitions: Sequence[int],
    count_max: int | None,
    follow: bool,
    as_json: bool,
    template: Template | None,
    no_ack: bool,
    no_create: bool,
) -> None:
    """Print the messages of TOPIC, a value per line.

    There may be several topics; in a name, * stands for any run of characters, and with --follow
    topics that match are taken up as they are made.

    Without --follow the command ends where the topic ended when it began, or at --to. With --index,
    what was printed counts as consumed. In JSON, bytes that are not UTF-8 are {"base64": "..."}.

    With --mode shared or key_shared every message goes to one of the index's consumers, and is
    acknowledged when it is printed. Without --follow the command ends when only messages are left
    that other consumers hold.
    """
    if index is None and (no_ack or no_create or mode != "own"):
        raise click.UsageError(
            "--no-ack, --no-create and shared modes are about an index: add --index NAME."
        )
    if mode == "own" and not (lease is max_deliveries is prefetch is None):
        raise click.UsageError(
            "--lease, --max-deliveries and --prefetch are for shared indexes: add --mode shared."
        )
    if mode != "own" and no_ack:
        raise click.UsageError(
            "--no-ack does not go with a shared index: what is not acknowledged is delivered again "
            "and again, and becomes a dead letter. To look only, leave out --index."
        )
    if partitions and (len(topics) > 1 or "*" in topics[0]):
        raise click.UsageError("--partition is about one topic: name that one alone.")
    if as_json and template is not None:
        raise click.UsageError("--json and --format are two ways to print: choose one.")
    _check_end(to, topics, follow=follow, shared=mode != "own")
    with server.connect() as client:
        if to is not None and to.kind == "offset" and not partitions:
            _check_one_partition(client, topics[0], server.timeout)
        subscription = client.subscribe(
            topics[0] if len(topics) == 1 else topics,
            index=index,
            mode=mode,
            start=start,
            partitions=list(partitions) or None,
            lease=lease,
            max_deliveries=max_deliveries,
            prefetch=prefetch,
            create=not no_create,
            timeout=server.timeout,
        )
        if not subscription.topics:
            _nothing_matches(topics, index if no_create else None)
        new_indexes = NewIndexes(subscription)
        new_indexes.tell()
        may_grow = follow and index is not None and any("*" in topic for topic in topics)
        look = new_indexes.look if may_grow else None
        acking = index is not None and not no_ack
        with (
            telling_lost(subscription),
            subscription,
            telling_at_the_end(new_indexes),
            StopSignals() as stop,
        ):
            writer = LineWriter(stop, in_step=acking and mode == "own")
            if mode != "own":
                sharing = SharedReading(
                    client, subscription, stop, partitions=partitions, follow=follow,
                    count_max=count_max, look=look,
                )  # fmt: skip
                sharing_printing = SharedPrinting(writer, as_json=as_json, template=template)
                _pass_on(sharing.next, sharing_printing.print, look)
                return
            reading = Reading(
                subscription,
                stop,
                ends=None if follow else ends_of(client, subscription, partitions, to),
                count_max=count_max,
                timeout=server.timeout,
                look=look,
            )
            printing = Printing(writer, acking=acking, as_json=as_json, template=template)
            _pass_on(reading.next, lambda portion: printing.print(*portion), look)


def _check_end(to: Start | None, topics: Sequence[str], *, follow: bool, shared: bool) -> None:
    if to is None:
        return
    if follow:
        raise click.UsageError("--to says where to end, --follow to go on: choose one.")
    if shared:
        raise click.UsageError(
            "--to does not go with a shared index, whose messages come in no order of offsets: use "
            "--max, or leave out --mode."
        )
    if to.kind == "offset" and (len(topics) > 1 or "*" in topics[0]):
        raise click.UsageError(f"--to {to.value} is an offset of one partition: name one topic.")


def _check_one_partition(client: Client, topic: str, timeout: float) -> None:
    count = len(client.describe(topic, timeout=timeout).partitions)
    if count != 1:
        raise click.UsageError(
            f"--to OFFSET is about one partition, and '{topic}' has {count}: choose one with "
            "--partition N, or name a time."
        )


class NewIndexes:
    """Says of each index that the subscription has made that it is there, once."""

    def __init__(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._told: set[str] = set()
        self._looked = time.monotonic()

    def look(self) -> None:
        """Tell, but look no more often than once a second: there may be many topics."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self.tell()

    def tell(self) -> None:
        index = self._subscription.index
        for topic in self._subscription.new_indexes:
            if topic not in self._told:
                self._told.add(topic)
                say(
                    f"made the index '{index}' of '{topic}', which stays until it is deleted with: "
                    f"hocket index delete {topic} {index} (--no-create makes none)"
                )


@contextmanager
def telling_at_the_end(new_indexes: NewIndexes) -> Iterator[None]:
    """Say what was made since it was last looked, before the subscription is closed."""
    try:
        yield
    finally:
        with suppress(HocketError):  # it has ended by itself: its error is told
            new_indexes.tell()


def _nothing_matches(patterns: Sequence[str], index: str | None) -> None:
    """Say that there is nothing to read; `index` is one that had to be there."""
    matching = f"that matches {' or '.join(map(repr, patterns))}"
    if index is not None:
        raise UnknownIndex(
            f"no topic {matching} has an index {index!r}; leave out --no-create to make it, or see "
            "what there is with: hocket topic list, hocket index list TOPIC"
        )
    say(f"there is no topic yet {matching}, or none that you may read")


@contextmanager
def telling_lost(subscription: Subscription) -> Iterator[None]:
    """Say at the end how many messages were not there any more."""
    try:
        yield
    finally:
        count = subscription.lost
        if count:
            was = "was" if count == 1 else "were"
            say(f"{messages(count)} {was} removed, by retention say, before they could be read")


def _pass_on(
    read: Callable[[], T | None],
    write: Callable[[T], None],
    look: Callable[[], None] | None,
) -> None:
    while (portion := read()) is not None:
        write(portion)
        if look is not None:
            look()


def ends_of(
    client: Client, subscription: Subscription, partitions: Sequence[int], to: Start | None = None
) -> dict[PartitionId, int]:
    """The end of each partition that is wanted: where it ends now, or at `to` if that is before."""
    ends: dict[PartitionId, int] = {}
    for topic in subscription.topics:
        described = client.describe(topic).partitions
        found = [each.end for each in described]
        if to is not None and to.kind == "offset":
            found = [min(end, to.value) for end in found]
        elif to is not None and to.kind == "time":
            found = list(map(min, found, client.find_offsets(topic, to)))
        for each, end in zip(described, found, strict=True):
            if not partitions or each.partition in partitions:
                ends[PartitionId(topic, each.partition)] = end
    return ends


class Reading:
    """Reads batches, and says how many messages of each are wanted.

    Messages are wanted up to `ends`, and up to `count_max` in all. Before the ends something is
    known to be there, so it must come within `timeout`.
    """

    def __init__(
        self,
        subscription: Subscription,
        stop: StopSignals,
        *,
        ends: dict[PartitionId, int] | None,
        count_max: int | None,
        timeout: float,
        look: Callable[[], None] | None = None,
    ) -> None:
        """With `look`, it is called about once a second while nothing comes."""
        self._look = look
        self._subscription = subscription
        self._stop = stop
        self._ends = ends
        self._left = sys.maxsize if count_max is None else count_max
        self._timeout: float | None = timeout
        if ends is None:
            self._timeout = None if look is None else LOOK_SECONDS

    def next(self) -> tuple[MessageBatch, int] | None:
        while self._left and not self._reached():
            try:
                batch = self._stop.wait_for(self._subscription.receive_batch, self._timeout)
            except Timeout:
                if self._look is not None:
                    self._look()
                    continue
                if self._reached():  # retention has removed what we waited for
                    return None
                raise
            count = min(batch.count, self._left)
            if self._ends is not None:
                place = PartitionId(batch.topic, batch.partition)
                end = self._ends.get(place, 0)  # 0: the partition is new since then
                count = min(count, end - batch.offset)
            if count > 0:
                self._left -= count
                return batch, count
        return None

    def _reached(self) -> bool:
        return self._ends is not None and all(
            self._is_behind(place, end) for place, end in self._ends.items()
        )

    def _is_behind(self, place: PartitionId, end: int) -> bool:
        try:
            return self._subscription.position(place.partition, place.topic) >= end
        except UnknownTopic:  # a topic of a pattern, which was deleted: there is no more of it
            if place.topic in self._subscription.topics:
                raise
            return True


class Printing:
    """Writes messages to stdout, and acknowledges each once it is written."""

    def __init__(
        self,
        writer: LineWriter,
        *,
        acking: bool,
        as_json: bool,
        template: Template | None = None,
    ) -> None:
        self._writer = writer
        self._acking = acking
        self._as_json = as_json
        self._template = template

    def print(self, batch: MessageBatch, count: int) -> None:
        """Print the first `count` messages of the batch."""
        lines = self._lines(batch, count)
        try:
            self._writer.write(lines)
        finally:
            if self._acking:
                with suppress(UnknownTopic):  # it was deleted; `Reading` knows whether that matters
                    self._ack(batch, self._writer.written)

    def _lines(self, batch: MessageBatch, count: int) -> list[bytes]:
        if self._as_json:
            return [message_json(message) for message in batch.messages()[:count]]
        if self._template is not None:
            return [self._template.line(message) for message in batch.messages()[:count]]
        return [value + b"\n" for value in batch.values()[:count]]

    def _ack(self, batch: MessageBatch, written: int) -> None:
        if written == batch.count:
            batch.ack()
        else:
            for message in batch.messages()[:written]:
                message.ack()
