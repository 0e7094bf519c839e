"""XXH3-64 (seed 0) of a whole column of keys, by numpy wherever that is quicker than key by key.

The algorithm depends on a key's length, so the keys are hashed class by class, and each class in
blocks whose intermediate columns stay in the processor's cache. A number in a key is read through a
view of the data in which an item begins at every byte. A product of 128 bits is made of 32-bit
halves. The hashes must be exactly those of `xxhash`: they decide which partition a key is in.

numpy is an optional dependency: only modules that work on Arrow columns import this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_intdigest

Words: TypeAlias = NDArray[np.uint64]
Positions: TypeAlias = NDArray[np.int64]

BLOCK = 8192  # keys at a time: 64 KiB for each intermediate column, and some eight of those

# The first bytes of the algorithm's secret, from which every class below takes its constants.
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
)
_PRIME64_1 = np.uint64(0x9E3779B185EBCA87)
_PRIME64_2 = np.uint64(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = np.uint64(0x165667B19E3779F9)
_PRIME_MX1 = np.uint64(0x165667919E3779F9)
_PRIME_MX2 = np.uint64(0x9FB21C651E98DF25)
_LOW = np.uint64(0xFFFFFFFF)


def _secret(at: int, size: int = 8) -> int:
    return int.from_bytes(_SECRET[at : at + size], "little")


_FLIP_1_TO_3 = np.uint64(_secret(0, 4) ^ _secret(4, 4))
_FLIP_4_TO_8 = np.uint64(_secret(8) ^ _secret(16))
_FLIP_9_TO_16_NEAR = np.uint64(_secret(24) ^ _secret(32))
_FLIP_9_TO_16_FAR = np.uint64(_secret(40) ^ _secret(48))
_OF_NOTHING = np.uint64(xxh3_64_intdigest(b""))


class Keys:
    """Where keys of one class of lengths lie in `data`.

    With a `stride` the keys lie side by side and are all that long: the quickest case to read.
    """

    def __init__(
        self, data: NDArray[np.uint8], starts: Positions, ends: Positions, stride: int = 0
    ) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends
        self.stride = stride

    def blocks(self) -> Iterator[Keys]:
        for at in range(0, len(self.starts), BLOCK):
            part = slice(at, at + BLOCK)
            yield Keys(self.data, self.starts[part], self.ends[part], self.stride)

    def lengths(self) -> Words:
        return (self.ends - self.starts).astype(np.uint64)

    def near(self, distance: int, kind: str = "<u8") -> Any:
        """The numbers that begin `distance` bytes behind the start of each key."""
        return self._numbers(self.starts, distance, kind)

    def far(self, distance: int, kind: str = "<u8") -> Any:
        """The numbers that begin `distance` bytes before the end of each key."""
        return self._numbers(self.ends, -distance, kind)

    def middle(self) -> Any:
        return self._numbers(self.starts + (self.ends - self.starts) // 2, 0, "u1")

    def _numbers(self, places: Positions, distance: int, kind: str) -> Any:
        items = _items_at_every_byte(self.data, kind)
        if self.stride:
            first, last = int(places[0]) + distance, int(places[-1]) + distance
            return items[first : last + 1 : self.stride]
        return items[places + distance]


def _items_at_every_byte(data: NDArray[np.uint8], kind: str) -> Any:
    size = np.dtype(kind).itemsize
    return np.ndarray((len(data) - size + 1,), kind, buffer=data, strides=(1,))


# --- the algorithm, by length -------------------------------------------------------------------


def _nothing(keys: Keys) -> Words:
    return np.full(len(keys.starts), _OF_NOTHING)


def _hash_1_to_3(keys: Keys) -> Words:
    mixed: Words = keys.near(0, "u1").astype(np.uint64) << np.uint64(16)
    mixed |= keys.middle().astype(np.uint64) << np.uint64(24)
    mixed |= keys.far(1, "u1")
    mixed |= keys.lengths() << np.uint64(8)
    mixed ^= _FLIP_1_TO_3
    mixed ^= mixed >> np.uint64(33)
    mixed *= _PRIME64_2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _PRIME64_3
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _hash_4_to_8(keys: Keys) -> Words:
    mixed: Words = keys.near(0, "<u4").astype(np.uint64) << np.uint64(32)
    mixed += keys.far(4, "<u4")
    mixed ^= _FLIP_4_TO_8
    turned = _turned(mixed, 49)
    turned ^= _turned(mixed, 24)
    mixed ^= turned
    mixed *= _PRIME_MX2
    mixed ^= (mixed >> np.uint64(35)) + keys.lengths()
    mixed *= _PRIME_MX2
    mixed ^= mixed >> np.uint64(28)
    return mixed


def _hash_9_to_16(keys: Keys) -> Words:
    near = keys.near(0) ^ _FLIP_9_TO_16_NEAR
    far = keys.far(8) ^ _FLIP_9_TO_16_FAR
    mixed = _folded_product(near, far)
    mixed += near.byteswap()
    mixed += far
    mixed += keys.lengths()
    return _avalanche(mixed)


def _hash_17_to_64(pairs: int) -> Callable[[Keys], Words]:
    """Mixes `pairs` of 16 bytes each, from both ends of the key inwards."""

    def hashed(keys: Keys) -> Words:
        mixed = keys.lengths() * _PRIME64_1
        for at in range(pairs):
            near, far = 16 * at, 16 * at + 16
            mixed += _mix(keys.near(near), keys.near(near + 8), 32 * at)
            mixed += _mix(keys.far(far), keys.far(far - 8), 32 * at + 16)
        return _avalanche(mixed)

    return hashed


def _mix(low: Words, high: Words, secret: int) -> Words:
    return _folded_product(low ^ np.uint64(_secret(secret)), high ^ np.uint64(_secret(secret + 8)))


def _folded_product(one: Words, other: Words) -> Words:
    """The upper half of the 128-bit product, exclusive-or its lower half."""
    shift = np.uint64(32)
    one_low, one_high = one & _LOW, one >> shift
    other_low, other_high = other & _LOW, other >> shift
    cross = one_low * other_low
    cross >>= shift
    one_low *= other_high
    cross += one_low  # with the next addition it is still below 2**64: no carry is lost
    other_low *= one_high
    cross += other_low & _LOW
    cross >>= shift
    other_low >>= shift
    one_high *= other_high
    one_high += other_low
    one_high += cross
    one_high ^= one * other
    return one_high


def _avalanche(mixed: Words) -> Words:
    mixed ^= mixed >> np.uint64(37)
    mixed *= _PRIME_MX1
    mixed ^= mixed >> np.uint64(32)
    return mixed


def _turned(number: Words, bits: int) -> Words:
    return (number << np.uint64(bits)) | (number >> np.uint64(64 - bits))


class LengthClass(NamedTuple):
    longest: int  # the bytes of its longest key
    hashed: Callable[[Keys], Words]
    worth: int  # fewer keys than this are hashed faster one by one, at 0.1 us each (measured)


# Longer keys are always hashed one by one. Each further 16 bytes cost numpy 12 ns a key, and the
# library 1 ns: at 100 bytes they are equally fast, at 200 numpy is slower.
_CLASSES = (
    LengthClass(0, _nothing, 400),
    LengthClass(3, _hash_1_to_3, 400),
    LengthClass(8, _hash_4_to_8, 400),
    LengthClass(16, _hash_9_to_16, 500),
    LengthClass(32, _hash_17_to_64(1), 1000),
    LengthClass(64, _hash_17_to_64(2), 2500),
)
_LENGTH_MAX = _CLASSES[-1].longest
_FEWEST = min(each.worth for each in _CLASSES)
_CLASS_OF_LENGTH = np.searchsorted(
    [each.longest for each in _CLASSES], np.arange(_LENGTH_MAX + 2)
).astype(np.uint8)


# --- columns ------------------------------------------------------------------------------------


def key_hashes(column: Any) -> Words:
    """The hash of each key of an Arrow array of type binary; 0 for a null."""
    count = len(column)
    _, offsets_buffer, data_buffer = column.buffers()
    if count < _FEWEST or data_buffer is None:
        return _one_by_one(column.to_pylist())
    data = np.frombuffer(data_buffer, np.uint8)
    offsets = np.frombuffer(offsets_buffer, np.int32, count + 1, 4 * column.offset)
    lengths = np.diff(offsets)
    shortest, longest = int(lengths.min()), int(lengths.max())
    only = _class_of(longest)
    if only != _class_of(shortest):
        hashes = _mixed(column, data, offsets.astype(np.int64), _by_class(lengths))
    elif _is_worth_it(only, count):
        places = offsets.astype(np.int64)
        stride = longest if shortest == longest else 0
        hashes = _hashed(only, Keys(data, places[:-1], places[1:], stride))
    else:
        return _one_by_one(column.to_pylist())
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return hashes


def _mixed(
    column: Any, data: NDArray[np.uint8], places: Positions, classes: list[tuple[int, Positions]]
) -> Words:
    worth_it = [each for each in classes if _is_worth_it(each[0], len(each[1]))]
    if 2 * sum(len(rows) for _, rows in worth_it) < len(column):
        return _one_by_one(column.to_pylist())
    hashes = np.empty(len(column), np.uint64)
    for number, rows in classes:
        if _is_worth_it(number, len(rows)):
            hashes[rows] = _hashed(number, Keys(data, places[rows], places[rows + 1]))
        else:
            hashes[rows] = _one_by_one(column.take(rows).to_pylist())
    return hashes


def _hashed(number: int, keys: Keys) -> Words:
    return np.concatenate([_CLASSES[number].hashed(some) for some in keys.blocks()])


def _by_class(lengths: NDArray[np.int32]) -> list[tuple[int, Positions]]:
    """Each class of lengths that occurs, and its rows."""
    classes = _CLASS_OF_LENGTH[np.minimum(lengths, _LENGTH_MAX + 1)]
    order = np.argsort(classes, kind="stable")
    ends = np.cumsum(np.bincount(classes)).tolist()
    return [
        (number, order[start:end])
        for number, (start, end) in enumerate(pairwise([0, *ends]))
        if start < end
    ]


def _class_of(length: int) -> int:
    return int(_CLASS_OF_LENGTH[min(length, _LENGTH_MAX + 1)])


def _is_worth_it(number: int, count: int) -> bool:
    return number < len(_CLASSES) and count >= _CLASSES[number].worth


def _one_by_one(keys: Sequence[bytes | None]) -> Words:
    found = [0 if key is None else xxh3_64_intdigest(key) for key in keys]
    return np.array(found, np.uint64)
