"""Plug-ins that do what no plug-in should, when a message says so. They are run apart."""

from __future__ import annotations

import os
import sys
import time

from hocket.plugins import Delivery, Publish, Rejected, hook
from hocket.plugins.doors import Door, Surroundings


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")


class Wild:
    """Closed: what it cannot judge is refused."""

    api = 1
    policy = "closed"

    @hook
    def on_publish(self, batch: Publish) -> None:
        word = batch.values[0]
        if word.startswith(b"wait "):
            time.sleep(float(word[5:]))
        elif word == b"sleep":
            time.sleep(1_000)
        elif word.startswith(b"spin"):
            until = time.perf_counter() + float(word[5:] or "inf")
            while time.perf_counter() < until:
                pass
        elif word.startswith(b"eat "):
            bytearray(b"x") * (int(word[4:]) << 20)
        elif word == b"eat":
            eaten = []
            while True:
                eaten.append(bytearray(1 << 20))
        elif word == b"crash":
            os.abort()
        elif word == b"leave":
            os._exit(3)
        elif word == b"raise":
            raise KeyError("of the plug-in")
        elif word == b"refuse":
            raise Rejected("not this one")
        elif word == b"scribble":
            os.write(_socket(), b"\0" * 64)
        batch.add_header("judged", b"by %d" % os.getpid())


class Lenient(Wild):
    policy = "open"


class Failing:
    """Fails at everything, after a while."""

    api = 1
    policy = "open"

    @hook
    def on_publish(self, batch: Publish) -> None:
        time.sleep(0.2)
        raise KeyError("of the plug-in")


class Stamp:
    """Runs behind the others, within the node or not."""

    api = 1

    @hook
    def on_publish(self, batch: Publish) -> None:
        seen = b",".join(sorted(name.encode() for name in batch.headers[0]))
        batch.add_header("stamp", seen)


class Ears:
    """Hears everything, and prints it: what it prints is in the node's log."""

    api = 1
    policy = "open"

    @hook
    def on_deliver(self, delivery: Delivery) -> None:
        values = [value for batch in delivery.batches() for value in batch.values()]
        if values == [b"deaf"]:
            time.sleep(1_000)
        say("delivered", delivery.topic, delivery.index, delivery.records, values)

    @hook
    def on_topic_created(self, topic: str, config: object) -> None:
        say("created", topic, config.partitions)  # type: ignore[attr-defined]

    @hook
    def on_topic_altered(self, topic: str, config: object) -> None:
        say("altered", topic, config.partitions)  # type: ignore[attr-defined]

    @hook
    def on_topic_deleted(self, topic: str) -> None:
        say("deleted", topic)

    @hook
    def on_close(self) -> None:
        say("closed")


class Doorman:
    """Knows whoever says a name backwards."""

    api = 1

    @hook
    def authenticate(self, token: str) -> str | None:
        if token == "sleep":
            time.sleep(1_000)
        if token == "true":
            return True  # type: ignore[return-value]
        return token[::-1] if token.startswith("eci") else None


class Veto:
    api = 1

    @hook
    def authorize(self, user: str) -> str | None:
        return None


class Gate:
    api = 1

    @hook
    def open_door(self, around: Surroundings) -> Door | None:
        return None


class Hungry:
    """Wants more memory than it may have before it is asked anything."""

    api = 1

    def __init__(self) -> None:
        self.eaten = [bytearray(1 << 20) for _ in range(1_000)]

    @hook
    def on_publish(self, batch: Publish) -> None: ...


class Dead:
    api = 1

    def __init__(self) -> None:
        os._exit(7)

    @hook
    def on_publish(self, batch: Publish) -> None: ...


def _socket() -> int:
    """The descriptor of this process's socket: the only one that it has."""
    import stat

    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                return int(name)
        except OSError:
            continue
    raise AssertionError("this process has no socket")
