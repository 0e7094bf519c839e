"""The codecs that a batch's columns may be compressed with.

Rule 1: a codec's number stands in stored entries for ever; codecs are added, never renumbered.
Rule 2: the caller has checked the length that a sender claims, and nothing here allocates more than
that length, whatever the compressed bytes say.
Rule 3: `check` looks at what a codec itself says of its bytes, and decompresses nothing.

Beside ours there are those of other packages (`named_codec`). They share one number, and the bytes
begin with the name: so no two packages can want the same number.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

import lz4.block  # type: ignore[import-untyped]
import zstandard

from hocket.errors import CorruptData, OutOfRange
from hocket.wire import named_codec

_LZ4_RATIO_MAX = 255
_contexts = threading.local()  # those of zstd are not thread-safe, and cost more than a small batch


class Codec(NamedTuple):
    name: str
    number: int
    compress: Callable[[bytes], bytes]
    decompress: Callable[[memoryview, int], bytes]  # with the length that must come out
    check: Callable[[memoryview, int], None]  # raises if that length cannot come out


def _lz4_compress(raw: bytes) -> bytes:
    return bytes(lz4.block.compress(raw, store_size=False))


def _lz4_decompress(packed: memoryview, length: int) -> bytes:
    return bytes(lz4.block.decompress(packed, uncompressed_size=length))


def _lz4_check(packed: memoryview, length: int) -> None:
    # A block has no header. But a byte of it stands for 255 bytes at most, and bytes that cannot be
    # compressed become longer by one in 255, and 16, at most.
    if length > _LZ4_RATIO_MAX * len(packed) or len(packed) > length + length // 255 + 16:
        raise CorruptData(f"{len(packed)} bytes of lz4 cannot stand for {length}")


def _zstd_compress(raw: bytes) -> bytes:
    # A context per call: contexts are not thread-safe, and one costs some 10 us per batch.
    return zstandard.ZstdCompressor().compress(raw)


def _zstd_check(packed: memoryview, length: int) -> None:
    declared = zstandard.frame_content_size(packed)
    if declared != length:
        raise CorruptData(f"a zstd frame declares {declared} bytes, its batch says {length}")


def _zstd_decompress(packed: memoryview, length: int) -> bytes:
    _zstd_check(packed, length)  # the library allocates what the frame itself declares
    try:
        context = _contexts.zstd
    except AttributeError:
        context = _contexts.zstd = zstandard.ZstdDecompressor()
    return bytes(context.decompress(packed, max_output_size=length, allow_extra_data=False))


NONE = 0  # the number of columns that are stored as they are

_CODECS = (
    # The block format, without a stored size.
    Codec("lz4", 1, _lz4_compress, _lz4_decompress, _lz4_check),
    Codec("zstd", 2, _zstd_compress, _zstd_decompress, _zstd_check),
)
_BY_NAME: dict[str, Codec | None] = {"none": None, **{codec.name: codec for codec in _CODECS}}
_BY_NUMBER = {codec.number: codec for codec in _CODECS}
NAMED = 255  # those of other packages, all of them
NUMBERS = frozenset({NONE, *_BY_NUMBER, NAMED})


def by_name(name: str) -> Codec | None:
    """The codec of this name; None for "none"."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    found = named_codec.find(name)
    if found is None:
        names = ", ".join([*_BY_NAME, *named_codec.installed()])
        raise OutOfRange(f"codec must be one of {names}, not {name!r}")
    return Codec(name, NAMED, found.compress, found.decompress, lambda _packed, _length: None)


def name_of(number: int, packed: memoryview) -> str:
    """The name of the codec with this number, which is known."""
    if number == NAMED:
        return named_codec.split(packed)[0]
    return "none" if number == NONE else _BY_NUMBER[number].name


def check_admitted(number: int, packed: memoryview) -> None:
    """Raises CorruptData for a codec of another package that this broker was not told to know."""
    if number == NAMED:
        named_codec.check_admitted(packed)


def check(number: int, packed: memoryview, length: int) -> None:
    """Raises CorruptData if the bytes say of themselves that `length` bytes cannot come out."""
    if number == NAMED:
        return  # such a codec has nothing to say before it is opened
    codec = _BY_NUMBER[number]
    try:
        codec.check(packed, length)
    except zstandard.ZstdError as error:
        raise CorruptData(f"a batch's {codec.name} columns do not decompress: {error}") from error


def decompress(number: int, packed: memoryview, length: int) -> bytes:
    """Exactly `length` bytes, or CorruptData."""
    if number == NAMED:
        return named_codec.decompress(packed, length)
    codec = _BY_NUMBER[number]
    try:
        raw = codec.decompress(packed, length)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError) as error:
        raise CorruptData(f"a batch's {codec.name} columns do not decompress: {error}") from error
    if len(raw) != length:
        raise CorruptData(
            f"a batch's {codec.name} columns are {len(raw)} bytes, its prelude says {length}"
        )
    return raw
