"""Three processes that talk by name.

    hocket serve &
    python examples/chat/chat.py ann bob cid &
    python examples/chat/chat.py bob ann cid &
    python examples/chat/chat.py cid ann bob

Each process registers its name with the broker. Of each two the one whose name comes later calls
the other. Everybody says one thing to everybody, prints what it hears, and leaves when it has heard
from all. No address is written anywhere: the names are enough, on one machine or on several.
"""

from __future__ import annotations

import sys
import threading

import hocket
from hocket.errors import HocketError, UnknownBroker
from hocket.local import EventPump, MessageQueue, QueueBroker

PORT = 1


class Conversation:
    """One queue to somebody else."""

    def __init__(self, chat: Chat, queue: MessageQueue) -> None:
        self.chat = chat
        queue.send(f"{chat.me}: hello".encode())
        queue.set_listener(self)

    def received(self, message: bytes) -> None:
        self.chat.heard.append(message.decode())
        print(f"{self.chat.me} heard {message.decode()}", flush=True)
        if len(self.chat.heard) == self.chat.expected:
            self.chat.has_heard_all.set()


class Chat:
    def __init__(self, broker: QueueBroker, others: list[str]) -> None:
        self.me = broker.name
        self.broker = broker
        self.expected = len(others)
        self.heard: list[str] = []
        self.has_heard_all = threading.Event()
        broker.bind(PORT, self)
        for other in others:
            if other < self.me:
                self.call(other)

    def call(self, other: str) -> None:
        self.broker.connect(other, PORT, Call(self, other))

    def accepted(self, queue: MessageQueue) -> None:
        Conversation(self, queue)


class Call:
    """A connect, which is tried again while the other process has not come yet."""

    def __init__(self, chat: Chat, other: str) -> None:
        self.chat = chat
        self.other = other

    def connected(self, queue: MessageQueue) -> None:
        Conversation(self.chat, queue)

    def refused(self, reason: HocketError) -> None:
        if isinstance(reason, UnknownBroker):
            self.chat.broker.pump.call_later(0.1, lambda: self.chat.call(self.other))
        else:
            print(f"{self.other} refuses: {reason}", file=sys.stderr)


def main(me: str, *others: str) -> None:
    with (
        hocket.connect() as client,
        EventPump() as pump,
        QueueBroker(me, pump, client) as broker,
    ):
        chat = Chat(broker, list(others))
        if not chat.has_heard_all.wait(60):
            sys.exit(f"{me} has heard {chat.heard} only")
        for queue in broker.queues:
            queue.close()  # what was said still arrives
        while broker.queues:
            threading.Event().wait(0.01)


if __name__ == "__main__":
    main(*sys.argv[1:])
