"""Listeners that write down everything they are told, in order, and on which thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any


class History:
    """A message listener that keeps the full ordered history of what it was told.

    `on_received` and its sisters run after the fact is written down; what they raise goes to the
    pump, like any listener's error.
    """

    def __init__(
        self,
        *,
        on_received: Callable[[Any], object] | None = None,
        on_sent: Callable[[Any], object] | None = None,
        on_writable: Callable[[], object] | None = None,
        on_closed: Callable[[Any], object] | None = None,
    ) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.threads: set[threading.Thread] = set()
        self.on_received = on_received
        self.on_sent = on_sent
        self.on_writable = on_writable
        self.on_closed = on_closed

    def note(self, *event: Any) -> None:
        self.threads.add(threading.current_thread())
        self.events.append(event)

    def received(self, message: Any) -> None:
        self.note("received", message)
        if self.on_received:
            self.on_received(message)

    def sent(self, message: Any) -> None:
        self.note("sent", message)
        if self.on_sent:
            self.on_sent(message)

    def writable(self) -> None:
        self.note("writable")
        if self.on_writable:
            self.on_writable()

    def closed(self, reason: Any) -> None:
        self.note("closed", reason)
        if self.on_closed:
            self.on_closed(reason)

    # --- views of the history ----------------------------------------------------------------

    def what(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [event for event in list(self.events) if event[0] in kinds]

    @property
    def messages(self) -> list[Any]:
        return [event[1] for event in self.what("received")]

    @property
    def handed_over(self) -> list[Any]:
        return [event[1] for event in self.what("sent")]

    @property
    def writables(self) -> int:
        return len(self.what("writable"))

    @property
    def reasons(self) -> list[Any]:
        return [event[1] for event in self.what("closed")]

    @property
    def reason(self) -> Any:
        """The one reason of the end; a second `closed` is a failure of its own."""
        (reason,) = self.reasons
        return reason


class Accepts:
    """Keeps each accepted queue, and gives it the listener `listener_for(queue)` makes."""

    def __init__(self, listener_for: Callable[[Any], Any] | None = None) -> None:
        self.queues: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self.listener_for = listener_for

    def accepted(self, queue: Any) -> None:
        self.threads.add(threading.current_thread())
        if self.listener_for:
            queue.set_listener(self.listener_for(queue))
        self.queues.append(queue)


class Connects:
    """Keeps each answer to a connect; `answers` is their full ordered history."""

    def __init__(self, listener_for: Callable[[Any], Any] | None = None) -> None:
        self.answers: list[Any] = []
        self.queues: list[Any] = []
        self.reasons: list[Any] = []
        self.threads: set[threading.Thread] = set()
        self.listener_for = listener_for

    def connected(self, queue: Any) -> None:
        self.threads.add(threading.current_thread())
        if self.listener_for:
            queue.set_listener(self.listener_for(queue))
        self.queues.append(queue)
        self.answers.append(queue)

    def refused(self, reason: Any) -> None:
        self.threads.add(threading.current_thread())
        self.reasons.append(reason)
        self.answers.append(reason)


class Echo(History):
    """Sends back whatever it receives, from inside `received`; holds what does not fit.

    A polite echo pauses its reading while it holds something, so that it stays bounded itself.
    """

    def __init__(self, queue: Any, *, polite: bool = False, **hooks: Any) -> None:
        super().__init__(**hooks)
        self.queue = queue
        self.polite = polite
        self.held: deque[Any] = deque()
        self.held_most = 0

    def received(self, message: Any) -> None:
        super().received(message)
        self.held.append(message)
        self.flush()

    def writable(self) -> None:
        super().writable()
        self.flush()

    def flush(self) -> None:
        while self.held and self.queue.send(self.held[0]):
            self.held.popleft()
        self.held_most = max(self.held_most, len(self.held))
        if self.polite:
            if self.held:
                self.queue.pause()
            else:
                self.queue.resume()


class Source(History):
    """Sends a list of messages as fast as the queue takes them, going on at each `writable`."""

    def __init__(self, queue: Any, messages: list[Any], **hooks: Any) -> None:
        super().__init__(**hooks)
        self.queue = queue
        self.waiting: deque[Any] = deque(messages)
        self.refusals = 0

    def start(self, pump: Any) -> None:
        """Begins on the pump, where `writable` comes too: one thread, no race on `waiting`."""
        self.queue.set_listener(self)
        pump.post(self.flush)

    def writable(self) -> None:
        super().writable()
        self.flush()

    def flush(self) -> None:
        while self.waiting:
            if not self.queue.send(self.waiting[0]):
                self.refusals += 1
                return
            self.waiting.popleft()
