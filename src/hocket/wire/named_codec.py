"""Codecs of other packages, by their names: entry points of the group `hocket.codecs`.

Columns that such a codec has compressed begin with its name and that of its package, so that a
reader without it can say what to install:

    length of the name 1 | length of the package's name 1 | the name | the package | packed bytes

Who writes or reads uses every codec that is installed; it is loaded when it is first wanted. A
broker takes batches of those alone that its operator has enabled (`admit`), since it opens small
ones on its own thread. Whatever a codec raises is CorruptData with its name in it.
"""

from __future__ import annotations

import logging
from collections import Counter
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple, Protocol

from hocket.errors import CorruptData

log = logging.getLogger("hocket.codecs")
GROUP = "hocket.codecs"
NAME_BYTES_MAX = 64
_HEAD_BYTES = 2


class BatchCodec(Protocol):
    """What a package offers. Called on several threads at once."""

    def compress(self, raw: bytes) -> bytes: ...

    def decompress(self, packed: memoryview, length: int) -> bytes:
        """The `length` bytes that were compressed. It must not make more of them than that, also
        of bytes that somebody has made up; it raises anything if they do not become as many."""


class Found(NamedTuple):
    name: str
    package: str
    offered: BatchCodec

    def compress(self, raw: bytes) -> bytes:
        try:
            packed = bytes(self.offered.compress(raw))
        except Exception as error:  # noqa: BLE001 - the messages are worth more than their size
            log.warning(
                "codec %r cannot compress a batch, which is sent as it is: %s: %s",
                self.name, type(error).__name__, error,
            )  # fmt: skip
            return raw
        name, package = self.name.encode(), self.package.encode()[:NAME_BYTES_MAX]
        return bytes((len(name), len(package))) + name + package + packed

    def decompress(self, packed: memoryview, length: int) -> bytes:
        _name, _package, rest = split(packed)
        try:
            raw = bytes(self.offered.decompress(rest, length))
        except Exception as error:
            raise CorruptData(
                f"a batch's {self.name} columns do not decompress: {type(error).__name__}: {error}"
            ) from error
        if len(raw) != length:
            raise CorruptData(
                f"a batch's {self.name} columns are {len(raw)} bytes, its prelude says {length}"
            )
        return raw


_found: dict[str, Found] = {}
_admitted: Counter[str] = Counter()  # by name: how many brokers of this process know it


def installed() -> list[str]:
    return sorted({each.name for each in entry_points(group=GROUP)})


def find(name: str) -> Found | None:
    """None: no package that is installed offers it, or it cannot be loaded."""
    if name not in _found:
        for point in entry_points(group=GROUP, name=name):
            loaded = _loaded(point)
            if loaded is not None:
                _found[name] = loaded
                break
    return _found.get(name)


def _loaded(point: EntryPoint) -> Found | None:
    package = "" if point.dist is None else point.dist.name
    try:
        offered = point.load()
        return checked(point.name, offered() if isinstance(offered, type) else offered, package)
    except Exception as error:  # noqa: BLE001 - it is somebody else's
        log.warning("codec %r of %s cannot be used: %s", point.name, package or "?", error)
        return None


def checked(name: str, offered: Any, package: str = "") -> Found:
    """Raises TypeError or ValueError for what is no codec."""
    for method in ("compress", "decompress"):
        if not callable(getattr(offered, method, None)):
            raise TypeError(f"codec {name!r}: a {type(offered).__name__} has no method {method!r}")
    if not 0 < len(name.encode()) <= NAME_BYTES_MAX or not name.isascii():
        raise ValueError(f"a codec's name has 1 to {NAME_BYTES_MAX} ASCII characters, not {name!r}")
    return Found(name, package, offered)


def admit(found: Found) -> None:
    """A broker of this process takes batches of this codec from now on."""
    _found.setdefault(found.name, found)
    _admitted[found.name] += 1


def dismiss(name: str) -> None:
    _admitted[name] -= 1


def split(packed: memoryview) -> tuple[str, str, memoryview]:
    """Name, package, and what the codec has made. Raises CorruptData."""
    if len(packed) < _HEAD_BYTES:
        raise CorruptData("the columns do not begin with the name of their codec")
    name_end = _HEAD_BYTES + packed[0]
    end = name_end + packed[1]
    if not 0 < packed[0] <= NAME_BYTES_MAX or packed[1] > NAME_BYTES_MAX or end > len(packed):
        raise CorruptData("the columns do not begin with the name of their codec")
    try:
        name = str(packed[_HEAD_BYTES:name_end], "ascii")
        package = str(packed[name_end:end], "ascii")
    except UnicodeDecodeError:
        raise CorruptData("the columns do not begin with the name of their codec") from None
    return name, package, packed[end:]


def decompress(packed: memoryview, length: int) -> bytes:
    name, package, _rest = split(packed)
    found = find(name)
    if found is None:
        raise CorruptData(
            f"they are compressed by codec {name!r}, which is not installed here{_of(package)}"
        )
    return found.decompress(packed, length)


def check_admitted(packed: memoryview) -> None:
    name, package, _rest = split(packed)
    if not _admitted[name]:
        raise CorruptData(
            f"codec {name!r} is not enabled on this broker{_of(package)}; start it with the "
            "plug-in that has it (--plugin), or choose another codec"
        )


def _of(package: str) -> str:
    return f" (it is in the package {package!r})" if package else ""
