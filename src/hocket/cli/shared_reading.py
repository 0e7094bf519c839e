"""`hocket consume` of a shared index: each message is acknowledged once it is written.

No message is taken that is not printed, since a message that is taken counts as delivered. Without
--follow the command ends when only messages are left that other consumers hold.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from hocket.cli.line_writer import LineWriter
from hocket.cli.output import message_json
from hocket.cli.stop_signals import StopSignals
from hocket.cli.template import Template
from hocket.errors import Timeout, UnknownTopic, WouldBlock

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.client.faces.blocking.subscription import Subscription
    from hocket.client_core.consuming.message import Message

PORTION = 500  # messages written at once
LOOK_SECONDS = 1.0  # how often it is looked which indexes were made meanwhile
QUIET = 0.2  # seconds without a message, after which the broker is asked whether any are left


class SharedReading:
    def __init__(
        self,
        client: Client,
        subscription: Subscription,
        stop: StopSignals,
        *,
        partitions: Sequence[int],
        follow: bool,
        count_max: int | None,
        look: Callable[[], None] | None = None,
    ) -> None:
        """With `look`, it is called about once a second while there is nothing to read."""
        self._look = look
        self._client = client
        self._subscription = subscription
        self._stop = stop
        self._partitions = partitions
        self._follow = follow
        self._left = sys.maxsize if count_max is None else count_max

    def next(self) -> list[Message] | None:
        """The next messages to print; None: there are no more."""
        if not self._left:
            return None
        first = self._first()
        if first is None:
            return None
        found = [first]
        while len(found) < min(self._left, PORTION):
            try:
                found.append(self._subscription.receive_nowait())
            except WouldBlock:
                break
        self._left -= len(found)
        return found

    def _first(self) -> Message | None:
        while True:
            try:
                return self._stop.wait_for(self._subscription.receive, self._patience())
            except Timeout:
                if self._look is not None:
                    self._look()
                if not self._follow and self._is_done():
                    return None

    def _patience(self) -> float | None:
        if not self._follow:
            return QUIET
        return None if self._look is None else LOOK_SECONDS

    def _is_done(self) -> bool:
        """Whether nothing is left for us. What other consumers hold may or may not come again."""
        name = self._subscription.index
        return all(
            each.lag <= each.leased
            for topic in self._subscription.topics
            for index in self._client.indexes(topic)
            if index.name == name
            for each in index.partitions
            if not self._partitions or each.partition in self._partitions
        )


class SharedPrinting:
    """Writes messages to stdout, and acknowledges each once it is written."""

    def __init__(
        self, writer: LineWriter, *, as_json: bool, template: Template | None = None
    ) -> None:
        self._writer = writer
        self._as_json = as_json
        self._template = template

    def print(self, messages: list[Message]) -> None:
        if self._as_json:
            lines = [message_json(message, counted=True) for message in messages]
        elif self._template is not None:
            lines = [self._template.line(message) for message in messages]
        else:
            lines = [message.value + b"\n" for message in messages]
        try:
            self._writer.write(lines)
        finally:
            for message in messages[: self._writer.written]:
                with suppress(UnknownTopic):  # it was deleted; the subscription tells if it is over
                    message.ack()
