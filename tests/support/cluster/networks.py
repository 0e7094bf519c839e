"""A machine room in network namespaces: each node has one of its own, and a router joins them.

Whoever is `inside` the room (this thread, threads and processes that it starts) is at the router,
and reaches all nodes. Cuts are made at the router, which drops packets from one node to another
without a word: so the ends learn of a cut as they would in a real network, by silence alone; and a
cut may be of one direction.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

_NEW_NETWORK = 0x40000000  # CLONE_NEWNET
_SPACES = Path("/var/run/netns")


def run(*command: str) -> None:
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert not done.returncode, f"{' '.join(command)}: {done.stderr}"


def has_namespaces() -> bool:
    """Whether this user may make them here."""
    if shutil.which("ip") is None or not hasattr(ctypes.CDLL(None), "setns"):
        return False
    name = f"hocket-probe-{os.getpid()}"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode:
        return False
    run("ip", "netns", "del", name)
    return True


class Room:
    """Made by `room_of`. Nodes are numbered from 1 on."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._prefix = f"hkt-{os.getpid()}"
        self._cuts: set[tuple[int, int]] = set()

    def address(self, number: int) -> str:
        return f"10.199.{number}.2"

    def within(self, number: int) -> list[str]:
        """What a command is begun with, to run where this node is."""
        return ["ip", "netns", "exec", self._space(number)]

    def _space(self, number: int) -> str:
        return f"{self._prefix}-{number}" if number else f"{self._prefix}-router"

    # --- cuts ------------------------------------------------------------------------------------

    def cut(self, pairs: Iterable[tuple[int, int]]) -> None:
        """From now on nothing goes from the first to the second of each pair."""
        for each in pairs:
            if each not in self._cuts:
                self._rule("add", each)
                self._cuts.add(each)

    def mend(self) -> None:
        """All cuts."""
        for each in sorted(self._cuts):
            self._rule("del", each)
        self._cuts.clear()

    def unplug(self, number: int) -> None:
        """Pull its cable."""
        run(*self.within(number), "ip", "link", "set", "wire", "down")

    def plug_in(self, number: int) -> None:
        run(*self.within(number), "ip", "link", "set", "wire", "up")
        self._route(number)

    def _route(self, number: int) -> None:
        """A wire that goes down takes its routes along."""
        router = f"10.199.{number}.1"
        run(*self.within(number), "ip", "route", "add", "default", "via", router)

    def _rule(self, act: str, pair: tuple[int, int]) -> None:
        source, target = map(self.address, pair)
        run(*self.within(0), "ip", "rule", act, "from", source, "to", target, "blackhole")

    # --- making and clearing away ----------------------------------------------------------------

    def make(self) -> None:
        router = self.within(0)
        for number in range(self.count + 1):
            run("ip", "netns", "add", self._space(number))
            run(*self.within(number), "ip", "link", "set", "lo", "up")
        run(*router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
        for number in range(1, self.count + 1):
            node, wire = self.within(number), f"hkt{number}"
            run("ip", "link", "add", wire, "netns", self._space(0), "type", "veth",
                "peer", "name", "wire", "netns", self._space(number))  # fmt: skip
            run(*router, "ip", "address", "add", f"10.199.{number}.1/30", "dev", wire)
            run(*router, "ip", "link", "set", wire, "up")
            run(*node, "ip", "address", "add", f"{self.address(number)}/30", "dev", "wire")
            run(*node, "ip", "link", "set", "wire", "up")
            self._route(number)

    def clear_away(self) -> None:
        for number in range(self.count + 1):
            space = self._space(number)
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def enter(self) -> None:
        _enter(_SPACES / self._space(0))


@contextmanager
def room_of(count: int) -> Iterator[Room]:
    """A room with so many nodes; the block is inside, and leaves it whatever happens."""
    _clear_away_of_the_dead()
    room = Room(count)
    outside = f"/proc/self/task/{_thread_id()}/ns/net"
    home = os.open(outside, os.O_RDONLY)
    try:
        room.make()
        room.enter()
        yield room
    finally:
        _set_namespace(home)
        os.close(home)
        room.clear_away()


def _clear_away_of_the_dead() -> None:
    """Rooms of processes that were killed."""
    for path in _SPACES.glob("hkt-*"):
        if not Path("/proc", path.name.split("-")[1]).exists():
            subprocess.run(["ip", "netns", "del", path.name], capture_output=True, check=False)


def _thread_id() -> int:
    return int(Path("/proc/thread-self").readlink().name)


def _enter(path: Path) -> None:
    space = os.open(path, os.O_RDONLY)
    try:
        _set_namespace(space)
    finally:
        os.close(space)


def _set_namespace(descriptor: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.setns(descriptor, _NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "this thread cannot enter the network namespace")
