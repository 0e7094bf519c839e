"""`hocket produce`: sends a message per line, as fast as lines come.

Whatever ends the input (its end, Ctrl-C, a line that cannot be a message), what was read before is
sent. Lines go to the producer by the thousand, as one read brings them; the only work per line is
splitting.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import exits, output
from hocket.cli.command import Command
from hocket.cli.delay_options import check_due, delay_options
from hocket.cli.lines import LineSplitter, split_keys, unescape
from hocket.cli.names import TOPIC
from hocket.cli.parameters import SECONDS
from hocket.cli.progress import Progress
from hocket.cli.server_options import Server, pass_server, server_options
from hocket.cli.stop_signals import StopSignals
from hocket.errors import HocketError
from hocket.model import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from hocket.client.faces.blocking.producer import Producer
    from hocket.client_core.producing.outgoing import Outcome

READ_BYTES = 1 << 20
STDIN = 0


class _Codec(click.Choice):  # type: ignore[type-arg]
    """Ours are listed; those of other packages are looked for."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        from hocket.wire import named_codec

        if value not in self.choices and named_codec.find(value) is not None:
            return value
        return super().convert(value, param, context)


@click.command(
    cls=Command,
    examples="""
$ seq 1000000 | hocket produce numbers
$ hocket produce orders --file orders.csv --key-separator ';'
$ find . -print0 | hocket produce files --delimiter '\\0' --codec zstd
$ echo 'call Ada' | hocket produce reminders --delay 5m
$ echo 'happy new year' | hocket produce reminders --deliver-at 2027-01-01T00:00:00+01:00
""",
)
@click.argument("topic", type=TOPIC)
@click.option(
    "--file", "path", metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Read from here instead of stdin.",
)  # fmt: skip
@click.option(
    "--key-separator", metavar="S", callback=unescape,
    help="Lines are KEY S VALUE; messages of a key stay in order.",
)  # fmt: skip
@click.option(
    "--delimiter", metavar="S", default="\\n", callback=unescape,
    help="What ends a message: text, \\n, \\r, \\t or \\0. [default: \\n]",
)  # fmt: skip
@click.option(
    "--codec", type=_Codec(["none", "lz4", "zstd"]), default="none", show_default=True,
    help="Compress the batches, for the network and for the disk; also by a codec that a package "
    "offers.",
)  # fmt: skip
@click.option(
    "--linger", type=SECONDS, default=0.002,
    help="How long to wait for a batch to fill. [default: 2ms]",
)  # fmt: skip
@delay_options
@click.option(
    "--progress/--no-progress", "shown", default=None,
    help="Show a progress bar. [default: if stderr is a terminal, and lines are not typed there]",
)  # fmt: skip
@server_options
@pass_server
def produce(
    server: Server,
    /,
    topic: str,
    path: Path | None,
    key_separator: bytes | None,
    delimiter: bytes,
    codec: str,
    linger: float,
    delay: timedelta | None,
    deliver_at: datetime | None,
    shown: bool | None,
) -> None:
    """Send every line of stdin to TOPIC as a message.

    An empty line is an empty message. A last line without a delimiter counts. Nothing is decoded.
    Ctrl-C ends the input: what was read until then is sent. A second Ctrl-C gives up.
    """
    check_due(delay, deliver_at)

    def delivered(outcome: Outcome) -> None:  # told by the client's threads
        if not isinstance(outcome, HocketError):
            progress.add_stored(outcome.end - outcome.start)

    with (
        _open(path) as descriptor,
        server.connect() as client,
        client.producer(
            topic, codec=codec, linger=linger, on_delivery=delivered, timeout=server.timeout
        ) as producer,
        StopSignals() as stop,
    ):
        progress = Progress(
            shown=_has_room_for_a_bar(descriptor) if shown is None else shown,
            total_bytes=_size(descriptor),
        )
        sending = Sending(producer, progress, key_separator, delay, deliver_at)
        try:
            try:
                sending.send_all(_chunks(descriptor, stop), LineSplitter(delimiter))
            finally:
                producer.flush()
                progress.all_stored()
        except HocketError as error:
            read, stored = output.messages(progress.messages), output.number(progress.stored)
            error.add_note(f"Of {read} read, at least {stored} are stored.")
            raise
        finally:
            progress.close()
    if stop.requested:
        read = output.messages(progress.messages)
        raise exits.Interrupted(stop.requested, f"interrupted; all that was read, {read}, is sent")
    exits.say(progress.summary(topic))


class Sending:
    """Hands lines to the producer, and counts what was handed over."""

    def __init__(
        self,
        producer: Producer,
        progress: Progress,
        separator: bytes | None,
        delay: timedelta | None = None,
        deliver_at: datetime | None = None,
    ) -> None:
        self._delay = delay
        self._deliver_at = deliver_at
        self._producer = producer
        self._progress = progress
        self._separator = separator

    def send_all(self, chunks: Iterator[bytes], splitter: LineSplitter) -> None:
        for chunk in chunks:
            self._send(splitter.feed(chunk))
            self._progress.add_bytes(len(chunk))
            if splitter.rest_bytes > MESSAGE_BYTES_MAX:
                raise self._too_large()
        self._send(splitter.end())
        self._progress.add_bytes(0)

    def _send(self, lines: list[bytes]) -> None:
        if not lines:
            return
        if len(lines[0]) > MESSAGE_BYTES_MAX:  # the others came in one read, which is smaller
            raise self._too_large()
        keys, values = None, lines
        if self._separator is not None:
            keys, values = split_keys(lines, self._separator)
        self._producer.send_many(values, keys, delay=self._delay, deliver_at=self._deliver_at)
        self._progress.add_messages(len(values))
        if len(values) < len(lines):
            raise self._failed(f"has no key separator {self._separator!r}")

    def _too_large(self) -> click.ClickException:
        limit = output.size(MESSAGE_BYTES_MAX)
        return self._failed(f"is larger than {limit}, the most a message may be; see --delimiter")

    def _failed(self, what: str) -> click.ClickException:
        done = self._progress.messages
        return click.ClickException(
            f"line {done + 1} {what}. The {output.number(done)} before it are sent, it and the "
            "rest are not"
        )


@contextmanager
def _open(path: Path | None) -> Iterator[int]:
    if path is None:
        exits.check_stdin()
        if os.isatty(STDIN):
            exits.say("reading messages from the terminal, one per line; Ctrl-D ends")
        yield STDIN
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise click.ClickException(f"cannot read '{path}': {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _has_room_for_a_bar(descriptor: int) -> bool:
    """Whoever types the messages needs the line that the bar would be drawn on, over and over."""
    return sys.stderr.isatty() and not os.isatty(descriptor)


def _size(descriptor: int) -> int | None:
    """How many bytes there are to read; None: not known."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        return None
    return max(0, status.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))


def _chunks(descriptor: int, stop: StopSignals) -> Iterator[bytes]:
    while stop.wait_readable(descriptor) and (chunk := os.read(descriptor, READ_BYTES)):
        yield chunk
