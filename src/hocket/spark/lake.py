"""A lake on disk: topics as Parquet files, by date, and how far each partition has come.

    LAKE/date=2026-11-18/orders-0-<first offset>-<end>.parquet   the records, for any reader
    LAKE/_hocket/state.json      where each partition begins and ends in the lake
    LAKE/_hocket/intent.json     a change that is under way
    LAKE/_hocket/staged/         files that are not part of the lake yet
    LAKE/_hocket/old/            files that were merged into larger ones, until the next merge

Offsets make it exactly once. A change is first written down as an intent, then done step by step,
and every step may be done again; then the state moves. Whoever comes after a crash finishes the
intent first. A batch that comes twice finds its offsets in the lake already, and is compared with
what is there. The files' names carry offsets, so the state and the names together say all: a file
counts only up to the state's end, and not if a larger one covers it.

Parquet readers that know nothing of this see the same records. Only while small files are being
merged may they see some twice: our own reader never does.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from hocket.errors import CorruptData, HocketError, OutOfRange

INNER = "_hocket"
_NAME = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)-(?P<start>\d{20})-(?P<end>\d{20})\.parquet")


class LakeConflict(HocketError):
    """What should go into the lake is not what is there already, or leaves a gap."""


class LakeFull(HocketError):
    """The lake's disk is full; nothing is half done."""


def path_of(text: str, option: str = "archive") -> Path:
    """The path that the option names. Raises OutOfRange for other file systems."""
    found = urlsplit(text)
    if found.scheme not in ("", "file") or not text:
        raise OutOfRange(
            f"{option} must be a path of a file system that all of Spark's machines share, not "
            f"{text!r}"
        )
    path = Path(unquote(found.path) if found.scheme else text)
    if not path.is_absolute():
        raise OutOfRange(
            f"{option} must be an absolute path, since drivers and tasks run in different "
            f"directories; not {text!r}"
        )
    return path


@dataclass(frozen=True, slots=True, order=True)
class Range:
    """The offsets from `start` to `end` of one partition."""

    topic: str
    partition: int
    start: int
    end: int

    def file_name(self) -> str:
        return f"{self.topic}-{self.partition}-{self.start:020}-{self.end:020}.parquet"


@dataclass(frozen=True, slots=True)
class LakeFile:
    range: Range
    date: str
    path: Path

    @staticmethod
    def parse(path: Path) -> LakeFile | None:
        found = _NAME.fullmatch(path.name)
        if found is None:
            return None
        offsets = int(found["start"]), int(found["end"])
        where = Range(found["topic"], int(found["partition"]), *offsets)
        return LakeFile(where, path.parent.name.removeprefix("date="), path)


@dataclass(slots=True)
class State:
    """Where each partition begins and ends in the lake: topic -> partition -> (start, end)."""

    partitions: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)

    def end(self, topic: str, partition: int) -> int | None:
        found = self.partitions.get(topic, {}).get(partition)
        return None if found is None else found[1]

    def grow(self, grown: Range) -> None:
        by_partition = self.partitions.setdefault(grown.topic, {})
        start, _ = by_partition.get(grown.partition, (grown.start, grown.start))
        by_partition[grown.partition] = (start, grown.end)

    def to_json(self) -> str:
        found = {
            topic: {str(number): list(ends) for number, ends in sorted(numbers.items())}
            for topic, numbers in sorted(self.partitions.items())
        }
        return json.dumps({"version": 1, "topics": found}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str, path: Path) -> State:
        try:
            found = json.loads(text)
            assert found["version"] == 1
            return State(
                {
                    topic: {int(each): (ends[0], ends[1]) for each, ends in numbers.items()}
                    for topic, numbers in found["topics"].items()
                }
            )
        except (ValueError, KeyError, TypeError, IndexError, AssertionError) as error:
            raise CorruptData(f"{path} is no state of a lake: {error!r}") from None


class Lake:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.inner = root / INNER
        self.staged = self.inner / "staged"
        self.old = self.inner / "old"
        self._state = self.inner / "state.json"
        self._intent = self.inner / "intent.json"

    def make(self) -> None:
        for folder in (self.staged, self.old):
            folder.mkdir(parents=True, exist_ok=True)

    def state(self) -> State:
        """Raises OutOfRange if this is no lake."""
        try:
            return State.from_json(self._state.read_text(), self._state)
        except FileNotFoundError:
            if self.inner.is_dir():
                return State()
            raise OutOfRange(
                f"there is no lake in {self.root}; the pipeline `archive` makes one"
            ) from None

    @contextmanager
    def room(self) -> Iterator[None]:
        """A full disk is said with the lake's name. Raises LakeFull."""
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            raise LakeFull(
                f"the lake {self.root} cannot be written: {os.strerror(error.errno)}. Nothing is "
                "half done; make room, and run it again"
            ) from error

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else changes the lake meanwhile; what a crash left half done is finished first."""
        self.make()
        with (self.inner / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._finish()
            yield

    def files(self, topic: str, partition: int) -> list[LakeFile]:
        """The files of a partition that count, by their offsets."""
        found = []
        for path in self.root.glob(f"date=*/{_escaped(topic)}-{partition}-*.parquet"):
            file = LakeFile.parse(path)
            if file and (file.range.topic, file.range.partition) == (topic, partition):
                found.append(file)
        return sorted(_not_covered(found), key=lambda file: (file.range, file.date))

    # --- changes, under the lock ------------------------------------------------------------------

    def change(self, moves: list[tuple[Path, Path]], retire: list[Path], state: State) -> None:
        """Move files into the lake, take others out of it, and let this be its state."""
        relative = [[self._name(source), self._name(target)] for source, target in moves]
        intent = {
            "moves": relative,
            "retire": [self._name(path) for path in retire],
            "state": state.to_json(),
        }
        write_durably(self._intent, json.dumps(intent))
        self._finish()

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def _finish(self) -> None:
        try:
            intent = json.loads(self._intent.read_text())
        except FileNotFoundError:
            return
        folders = set()
        for source, target in intent["moves"]:
            path = self.root / target
            path.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # it was moved before the crash
                os.replace(self.root / source, path)
            if not path.exists():
                raise CorruptData(f"{path} is missing, and so is {self.root / source}")
            folders.add(path.parent)
        for name in intent["retire"]:
            with suppress(FileNotFoundError):
                os.replace(self.root / name, self.old / Path(name).name)
            folders.add((self.root / name).parent)
        for folder in sorted({*folders, self.root}):
            sync_folder(folder)
        write_durably(self._state, intent["state"])
        self._intent.unlink()


def _escaped(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def _not_covered(files: list[LakeFile]) -> list[LakeFile]:
    """Leave out what was merged into a larger file of the same date, and is about to go."""
    kept: list[LakeFile] = []
    for file in sorted(files, key=lambda each: (each.date, each.range.start, -each.range.end)):
        last = kept[-1] if kept and kept[-1].date == file.date else None
        if last is None or file.range.end > last.range.end:
            kept.append(file)
    return kept


def write_durably(path: Path, text: str) -> None:
    """Put the text in place of the file, so that a crash leaves the old one or the new one."""
    new = path.with_name(path.name + ".new")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
