"""The two ends of a conversation between processes, the same for all contenders: send, receive.

Each end is blocking code on the main thread, as one would write it first. A child process has the
other end; `child` says what it does with what it gets.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from multiprocessing.connection import Client, Listener
from typing import Any, Protocol

import zmq

import hocket
from hocket.local import EventPump, QueueBroker

PORT = 1
STREAM, ECHO, END = b"stream", b"echo", b"end"


class End(Protocol):
    def send(self, message: bytes) -> None: ...

    def receive(self) -> bytes: ...

    def close(self) -> None: ...


class OursEnd:
    """A queue between two brokers, each in its process."""

    def __init__(self, server: str, *, accepts: bool) -> None:
        self._client = hocket.connect(server)
        self._pump = EventPump().start()
        self.met = threading.Event()
        self._queue: Any = None
        if accepts:
            self._broker = QueueBroker("bench-parent", self._pump, self._client)
            self._broker.bind(PORT, self)
        else:
            self._broker = QueueBroker("bench-child", self._pump, self._client)
            self._broker.connect("bench-parent", PORT, self)
            self.wait()

    def accepted(self, queue: Any) -> None:
        self._queue = queue
        self.met.set()

    connected = accepted

    def refused(self, reason: Exception) -> None:
        raise reason

    def wait(self) -> None:
        assert self.met.wait(30)
        self.send, self.receive = self._queue.send_wait, self._queue.receive_wait

    def close(self) -> None:
        self._pump.stop()
        self._client.close()


class PipeEnd:
    """`multiprocessing.connection` over TCP, without pickling."""

    def __init__(self, connection: Any) -> None:
        self.send, self.receive = connection.send_bytes, connection.recv_bytes
        self.close = connection.close


class ZmqEnd:
    """A PAIR socket of pyzmq over TCP."""

    def __init__(self, address: str, *, binds: bool) -> None:
        self._context = zmq.Context()
        socket = self._context.socket(zmq.PAIR)
        self.address = address
        if binds:
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            self.address = f"tcp://127.0.0.1:{port}"
        else:
            socket.connect(address)
        self._socket = socket
        self.send, self.receive = socket.send, socket.recv

    def close(self) -> None:
        self._socket.close(1000)
        self._context.term()


def dialled(kind: str, address: str) -> End:
    if kind == "ours":
        return OursEnd(address, accepts=False)  # type: ignore[return-value]
    if kind == "pipe":
        host, port = address.rsplit(":", 1)
        return PipeEnd(Client((host, int(port))))  # type: ignore[return-value]
    return ZmqEnd(address, binds=False)  # type: ignore[return-value]


def child(kind: str, address: str) -> None:
    """Do what the parent says, until it says that it is over."""
    end = dialled(kind, address)
    while (order := bytes(end.receive())) != END:
        what, count = order.split()
        if what == ECHO:
            for _ in range(int(count)):
                end.send(end.receive())
        else:
            for _ in range(int(count)):
                end.receive()
            end.send(b"done")
    end.close()


class Parent:
    """The end of the process that measures, and the child at the other end."""

    def __init__(self, kind: str, server: str = "") -> None:
        listener = None
        if kind == "ours":
            ours = OursEnd(server, accepts=True)
            self.end: Any = ours
            address = server
        elif kind == "pipe":
            listener = Listener(("127.0.0.1", 0))
            address = "{}:{}".format(*listener.address)
        else:
            self.end = ZmqEnd("", binds=True)
            address = self.end.address
        command = [sys.executable, "-m", "benchmarks.names.sides", kind, address]
        self._process = subprocess.Popen(command)
        if kind == "ours":
            ours.wait()
        elif listener is not None:
            self.end = PipeEnd(listener.accept())
            listener.close()

    def close(self) -> None:
        self.end.send(END)
        self._process.wait(30)
        self.end.close()


if __name__ == "__main__":
    child(sys.argv[1], sys.argv[2])
