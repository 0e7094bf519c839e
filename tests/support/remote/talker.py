"""A process that talks by name until it is killed, and writes down what it did.

    python -m tests.support.remote.talker SERVER NAME CALLS LOG

Each line of LOG is what happened, written before anybody can know of it: `sent N` before a message
is sent, `took N` when one was taken. A line that is there is true, whenever the process dies.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import hocket
from hocket.errors import Closed, HocketError
from hocket.local import EventPump, QueueBroker

PORT = 1


class Talker:
    def __init__(self, log: int, queue: Any) -> None:
        self._log = log
        self._queue = queue

    def note(self, text: str) -> None:
        os.write(self._log, text.encode() + b"\n")

    def send(self) -> None:
        number = 0
        try:
            while True:
                self.note(f"sent {number}")
                self._queue.send_wait(b"%d" % number)
                number += 1
        except Closed:
            return

    def receive(self) -> None:
        try:
            while True:
                self.note(f"took {int(self._queue.receive_wait())}")
        except Closed:
            return


class Meeting:
    def __init__(self) -> None:
        self.queue: Any = None
        self.met = threading.Event()
        self.reason: HocketError | None = None

    def accepted(self, queue: Any) -> None:
        self.queue = queue
        self.met.set()

    connected = accepted

    def refused(self, reason: HocketError) -> None:
        self.reason = reason
        self.met.set()


def main(server: str, name: str, calls: str, path: str) -> None:
    client = hocket.connect(server)
    pump = EventPump().start()
    broker = QueueBroker(name, pump, client, messages_max=64)
    meeting = Meeting()
    if calls == "-":
        broker.bind(PORT, meeting)
    else:
        broker.connect(calls, PORT, meeting)
    os.write(1, b"ready\n")
    meeting.met.wait()
    if meeting.queue is None:
        sys.exit(str(meeting.reason))
    log = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    talker = Talker(log, meeting.queue)
    sending = threading.Thread(target=talker.send, daemon=True)
    sending.start()
    talker.receive()
    sending.join()
    threading.Event().wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
