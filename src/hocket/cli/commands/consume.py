"""`hocket consume`: prints a value per line, and moves an index only past what was written.

Whatever ends the command (the end of the topic, `--max`, Ctrl-C, a reader of the pipe that leaves,
a full disk behind stdout), exactly those messages are acknowledged whose lines were written whole.
What a reader left in the pipe when it went away was not written. With an own index a batch is begun
when the reader has taken all of the last one, so that this holds but for the end of one batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

import click

from hocket.cli.command import Command
from hocket.cli.exits import say
from hocket.cli.line_writer import LineWriter
from hocket.cli.names import INDEX, TOPICS
from hocket.cli.output import message_json, messages
from hocket.cli.parameters import SECONDS, START
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.shared_reading import SharedPrinting, SharedReading
from hocket.cli.stop_signals import StopSignals
from hocket.errors import Timeout, UnknownIndex, UnknownTopic
from hocket.model import PREFETCH_DEFAULT, Mode, PartitionId, Start

if TYPE_CHECKING:
    from hocket.client.consuming.message import MessageBatch
    from hocket.client.faces.blocking.client import Client
    from hocket.client.faces.blocking.subscription import Subscription

T = TypeVar("T")


@click.command(
    cls=Command,
    examples="""
$ hocket consume orders                                   # all there is, then end
$ hocket consume orders --follow --start latest           # what comes from now on
$ hocket consume orders --index billing --max 10          # go on where billing has come to
$ hocket consume orders --index mailers --mode shared -f  # share the work with others
$ hocket consume orders --start 2026-03-01T08:00 --json | jq .key
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
    help="Shared: at most N messages are held here unsettled. [default: 5000]",
)  # fmt: skip
@click.option(
    "--start", type=START, default="earliest", show_default=True,
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin, unless the index exists; a time without a zone is local.",
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
    partitions: Sequence[int],
    count_max: int | None,
    follow: bool,
    as_json: bool,
    no_ack: bool,
    no_create: bool,
) -> None:
    """Print the messages of TOPIC, a value per line.

    There may be several topics; in a name, * stands for any run of characters, and with --follow
    topics that match are taken up as they are made.

    Without --follow the command ends where the topic ended when it began. With --index, what was
    printed counts as consumed. In JSON, bytes that are not UTF-8 are {"base64": "..."}.

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
    with server.connect() as client:
        subscription = client.subscribe(
            topics[0] if len(topics) == 1 else topics,
            index=index,
            mode=mode,
            start=start,
            partitions=list(partitions) or None,
            lease=lease,
            max_deliveries=max_deliveries,
            prefetch=prefetch or PREFETCH_DEFAULT,
            create=not no_create,
            timeout=server.timeout,
        )
        if not subscription.topics:
            _nothing_matches(topics, index if no_create else None)
        for topic in subscription.new_indexes:
            say(
                f"made the index '{index}' of '{topic}', which stays until it is deleted with: "
                f"hocket index delete {topic} {index} (--no-create makes none)"
            )
        acking = index is not None and not no_ack
        with telling_lost(subscription), subscription, StopSignals() as stop:
            writer = LineWriter(stop, in_step=acking and mode == "own")
            if mode != "own":
                sharing = SharedReading(
                    client, subscription, partitions=partitions, follow=follow, count_max=count_max
                )
                _pass_on(sharing.next, SharedPrinting(writer, as_json=as_json).print, stop)
                return
            reading = Reading(
                subscription,
                ends=None if follow else ends_of(client, subscription, partitions),
                count_max=count_max,
                timeout=server.timeout,
            )
            printing = Printing(writer, acking=acking, as_json=as_json)
            _pass_on(reading.next, lambda portion: printing.print(*portion), stop)


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


def _pass_on(read: Callable[[], T | None], write: Callable[[T], None], stop: StopSignals) -> None:
    while True:
        with stop.interruptible():  # a portion that is lost here is not acknowledged
            portion = read()
        if portion is None:
            break
        write(portion)


def ends_of(
    client: Client, subscription: Subscription, partitions: Sequence[int]
) -> dict[PartitionId, int]:
    """The end of each partition that is wanted."""
    return {
        PartitionId(topic, each.partition): each.end
        for topic in subscription.topics
        for each in client.describe(topic).partitions
        if not partitions or each.partition in partitions
    }


class Reading:
    """Reads batches, and says how many messages of each are wanted.

    Messages are wanted up to `ends`, and up to `count_max` in all. Before the ends something is
    known to be there, so it must come within `timeout`.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        ends: dict[PartitionId, int] | None,
        count_max: int | None,
        timeout: float,
    ) -> None:
        self._subscription = subscription
        self._ends = ends
        self._left = sys.maxsize if count_max is None else count_max
        self._timeout = None if ends is None else timeout

    def next(self) -> tuple[MessageBatch, int] | None:
        while self._left and not self._reached():
            try:
                batch = self._subscription.receive_batch(self._timeout)
            except Timeout:
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

    def __init__(self, writer: LineWriter, *, acking: bool, as_json: bool) -> None:
        self._writer = writer
        self._acking = acking
        self._as_json = as_json

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
        return [value + b"\n" for value in batch.values()[:count]]

    def _ack(self, batch: MessageBatch, written: int) -> None:
        if written == batch.count:
            batch.ack()
        else:
            for message in batch.messages()[:written]:
                message.ack()
