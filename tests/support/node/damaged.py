"""A node that is killed, and whose stored entries are then damaged one by one."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import NamedTuple

from hocket import frames
from hocket.errors import HocketError
from hocket.log.directory import IDENTITY, read_file, salt_of
from hocket.log.envelope import SECTION_BYTES, decode_section
from hocket.log.wal_scan import envelopes
from hocket.sim.disk import SimDisk
from hocket.wire.entry import HEADER_BYTES, Header, unpack_header
from tests.support.node.guarded import GuardedNode, Person


class Stored(NamedTuple):
    """An entry in the write-ahead log, and where it stands."""

    path: str
    position: int
    group: int
    header: Header
    body: bytes

    @property
    def body_position(self) -> int:
        return self.position + HEADER_BYTES


class KilledNode(GuardedNode):
    def kill(self) -> None:
        """The process ends, when the log has said that everything is durable (the mark)."""
        self.settle()
        self.pass_time(0.3)
        self.node.tick()
        self.settle()
        self.kill_at_once()

    def kill_at_once(self) -> None:
        self.executor.crash()
        self.disk.kill()
        self.people.clear()

    def restart(self) -> None:
        self.kill()
        self.start()

    def lose(self, entry: Stored) -> None:
        """Flip a bit of the entry's body."""
        self.disk.flip(entry.path, entry.body_position + entry.header.length // 2)

    def entries(self, group: int | None = None) -> list[Stored]:
        return [each for each in stored(self.disk) if group in (None, each.group)]

    def group_of(self, topic: str, number: int = 0) -> int:
        return self.node._wiring.catalogue.topics[topic].groups[number]

    def wal_files(self) -> list[str]:
        return sorted(n for n in self.disk.files() if n.startswith("wal/") and n.endswith(".wal"))


def stored(disk: SimDisk) -> Iterator[Stored]:
    salt = salt_of(json.loads(read_file(disk, IDENTITY))["store"])
    for path in sorted(disk.files()):
        if not path.startswith("wal/") or not path.endswith(".wal"):
            continue
        for found in envelopes(read_file(disk, path), int(path[4:-4]), salt):
            content = found.content
            assert content is not None
            at = section_end = group = 0
            while at < len(content):
                if at == section_end:
                    section = decode_section(content, at)
                    assert section is not None
                    group, length = section
                    at += SECTION_BYTES
                    section_end = at + length
                header = unpack_header(content, at)
                body = bytes(content[at + HEADER_BYTES : at + HEADER_BYTES + header.length])
                start = found.position + found.header.content_start + at
                yield Stored(path, start, group, header, body)
                at += header.size


def ended(person: Person) -> str:
    """Why the broker has ended the person's only subscription."""
    (end,) = person.heard(frames.HandleEnded)
    assert end.code == "corruptData", end
    return str(end.message)


def refusal(place: KilledNode) -> str:
    """Why the node does not start."""
    try:
        place.start()
    except HocketError as error:
        place.executor.crash()
        return str(error)
    raise AssertionError("it started")


def warnings(records: list[logging.LogRecord]) -> str:
    return "\n".join(r.getMessage() for r in records if r.levelno == logging.WARNING)
