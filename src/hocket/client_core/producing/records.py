"""Records as callers hand them over, checked and made unchangeable before anything is promised.

A record is gathered long before it is encoded. So whatever could still change is copied here, and
whatever is wrong is raised here, from the call that passed it. What leaves this file can be
encoded: one bad record never spoils the batch of which it would have been a part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hocket.errors import MessageTooLarge, OutOfRange, WrongType
from hocket.model import MESSAGE_BYTES_MAX

if TYPE_CHECKING:
    from typing_extensions import Buffer

Headers = Mapping[str, "Buffer | None"] | Sequence[tuple[str, "Buffer | None"]]
Pairs = tuple[tuple[str, bytes | None], ...]
# value, key, headers, timestamp, and what waits for it; a record of a value alone is just bytes
Record = tuple[bytes, bytes | None, Pairs | None, int | None, Any]

RECORD_BYTES = 12  # what a record costs beside its value: a timestamp and an offset
KEYED_BYTES = 2 * RECORD_BYTES  # and beside value and key: a hash and an offset more
_TIMESTAMP_MAX = 2**63 - 1


def as_bytes(data: object, what: str) -> bytes:
    if type(data) is bytes:
        return data
    if isinstance(data, str):
        raise WrongType(f"{what} must be bytes-like, not str: encode it first, as in text.encode()")
    try:
        return memoryview(data).tobytes()  # type: ignore[arg-type]
    except TypeError:
        raise WrongType(f"{what} must be bytes-like, not {type(data).__name__}") from None


def checked(
    value: object,
    key: object,
    headers: object,
    timestamp: object,
    waiter: object = None,
) -> tuple[Record, int]:
    """The record, and its size."""
    plain = as_bytes(value, "a value")
    size = len(plain) + RECORD_BYTES
    if key is not None:
        key = as_bytes(key, "a key")
        size += len(key) + RECORD_BYTES
    pairs = None
    if headers is not None:
        pairs = checked_headers(headers)
        size += headers_size(pairs)
    check_size(size)
    return (plain, key, pairs, check_timestamp(timestamp), waiter), size


def headers_size(pairs: Pairs) -> int:
    return sum([len(name.encode()) + len(data or b"") + RECORD_BYTES for name, data in pairs])


def check_size(size: int) -> None:
    if size > MESSAGE_BYTES_MAX:
        raise MessageTooLarge(
            f"a message of {size} bytes, key and headers included, is more than the "
            f"{MESSAGE_BYTES_MAX} allowed; split it, or store it elsewhere and send where it is"
        )


def checked_headers(headers: object) -> Pairs:
    if isinstance(headers, Mapping):
        items = list(headers.items())
    elif isinstance(headers, Sequence) and not isinstance(headers, str | bytes | bytearray):
        items = list(headers)
    else:
        raise WrongType(
            f"headers must be a mapping or (name, value) pairs, not {type(headers).__name__}"
        )
    return tuple(map(_checked_header, items))


def _checked_header(item: object) -> tuple[str, bytes | None]:
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise WrongType(f"headers must be a mapping or (name, value) pairs; one is {item!r:.80}")
    name, data = item
    if not isinstance(name, str):
        raise WrongType(f"a header's name must be a str, not {type(name).__name__}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise WrongType(
            f"a header's name must be text that UTF-8 can hold, not {name!r}"
        ) from error
    return name, None if data is None else as_bytes(data, f"header {name!r}")


def check_timestamp(timestamp: object) -> int | None:
    if timestamp is None:
        return None
    if isinstance(timestamp, bool) or not isinstance(timestamp, int):
        raise WrongType(
            "a timestamp is an int, microseconds since the epoch (see hocket.model.timestamp_us), "
            f"not {timestamp!r:.80}"
        )
    if not 0 <= timestamp <= _TIMESTAMP_MAX:
        raise OutOfRange(f"a timestamp lies between 0 and 2**63 - 1 microseconds, not {timestamp}")
    return timestamp


def checked_values(values: object) -> list[bytes]:
    """The values of many records; the usual case, all of them bytes, costs a look at the types."""
    items = as_list(values, "values")
    if set(map(type, items)) <= {bytes}:
        return items
    return [as_bytes(item, f"values[{at}]") for at, item in enumerate(items)]


def checked_keys(keys: object, count: int) -> list[bytes | None]:
    items = _as_many(keys, "keys", count)
    if set(map(type, items)) <= {bytes, type(None)}:
        return items
    return [
        None if item is None else as_bytes(item, f"keys[{at}]") for at, item in enumerate(items)
    ]


def checked_header_list(headers: object, count: int) -> list[Pairs | None]:
    return [
        None if item is None else checked_headers(item)
        for item in _as_many(headers, "headers", count)
    ]


def _as_many(items: object, what: str, count: int) -> list[Any]:
    found = as_list(items, what)
    if len(found) != count:
        raise OutOfRange(f"there are {len(found)} {what} for {count} values; pass one for each")
    return found


def as_list(items: object, what: str) -> list[Any]:
    if isinstance(items, str | bytes | bytearray | memoryview | Mapping):
        raise WrongType(f"{what} must be a list, one item for each record, not {items!r:.40}")
    try:
        return items if isinstance(items, list) else list(items)  # type: ignore[call-overload]
    except TypeError:
        raise WrongType(f"{what} must be a list, not {type(items).__name__}") from None
