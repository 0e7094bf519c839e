"""The options of producers and subscriptions, checked, from what users write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hocket.client_core.calls.topics import StartLike, check_int, checked_start
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.typed import Decoding
from hocket.client_core.producing.encoding import coder_for
from hocket.client_core.producing.fates import ProducerOptions
from hocket.client_core.sharing.verdict import Duration, lease_us
from hocket.client_core.timeout import seconds_us
from hocket.core.session.session import DELIVERIES_MAX, PREFETCH_MAX
from hocket.errors import BadName, OutOfRange, WrongType
from hocket.model import (
    CREDIT_BYTES_DEFAULT,
    MESSAGE_BYTES_MAX,
    PARTITIONS_MAX,
    PREFETCH_DEFAULT,
    Failover,
    check_name,
    size_bytes,
)
from hocket.wire import codec as codecs

_OFFSET_MAX = 2**63 - 1


def producer_options(
    *,
    linger: float,
    batch_bytes: int | str,
    window_bytes: int | str,
    codec: str,
    delivery_timeout: float | None,
) -> ProducerOptions:
    if not isinstance(codec, str):
        raise WrongType(f"codec must be a str, not {type(codec).__name__}")
    codecs.by_name(codec)
    size = size_bytes(batch_bytes, "batch_bytes")
    if not 1 <= size <= MESSAGE_BYTES_MAX:
        raise OutOfRange(f"batch_bytes must lie between 1 and {MESSAGE_BYTES_MAX}, not {size}")
    window = size_bytes(window_bytes, "window_bytes")
    if window < 1:
        raise OutOfRange(f"window_bytes must be 1 or more, not {window}")
    delivery_us = seconds_us(delivery_timeout, "delivery_timeout")
    if not delivery_us:
        raise OutOfRange("delivery_timeout must be more than 0 seconds: nothing is delivered in 0")
    return ProducerOptions(
        linger_us=seconds_us(linger, "linger"),
        batch_bytes=size,
        window_bytes=window,
        codec=codec,
        delivery_us=delivery_us,
    )


def subscription_options(
    *,
    index: str | None,
    mode: str,
    start: StartLike,
    partitions: Iterable[int] | None,
    positions: Mapping[int, int] | None,
    hold_retention: bool,
    credit_bytes: int | str | None,
    lease: Duration | None,
    max_deliveries: int | None,
    prefetch: int | None,
    failover: str,
    create: bool = True,
    value: Any = None,
) -> SubscriptionOptions:
    if index is not None:
        check_name(index, "an index's name")
    if mode not in ("own", "shared", "key_shared"):
        raise OutOfRange(f"mode must be 'own', 'shared' or 'key_shared', not {mode!r}")
    if mode != "own" and index is None:
        raise BadName(f"mode {mode!r} needs an index for its consumers to share: index='a name'")
    if mode != "own" and positions is not None:
        raise OutOfRange(
            "positions are for reading without an index; see client.seek for shared ones"
        )
    if mode == "own" and (lease is not None or max_deliveries is not None):
        raise OutOfRange("lease and max_deliveries are for shared indexes: add mode='shared'")
    if hold_retention and index is None:
        raise BadName("only an index holds retention back: give it a name with index=")
    if not create and index is None:
        raise BadName("create=False is about an index: give its name with index=")
    credit = (
        CREDIT_BYTES_DEFAULT if credit_bytes is None else size_bytes(credit_bytes, "credit_bytes")
    )
    if credit < 1:
        raise OutOfRange(f"credit_bytes must be 1 or more, not {credit}")
    if positions is not None and not isinstance(positions, Mapping):
        raise WrongType(f"positions must map partitions to offsets, not be {positions!r:.80}")
    coder = coder_for(value)
    return SubscriptionOptions(
        index=index or "",
        mode=mode,  # type: ignore[arg-type]
        start=checked_start(start),
        partitions=() if partitions is None else _partitions(partitions),
        positions=tuple(
            (
                check_int(p, "a partition", 0, PARTITIONS_MAX - 1),
                check_int(at, "a position", 0, _OFFSET_MAX),
            )
            for p, at in (positions or {}).items()
        ),
        hold_retention=bool(hold_retention),
        credit_bytes=credit,
        credit_each_node=credit_bytes is None,
        prefetch=PREFETCH_DEFAULT
        if prefetch is None
        else check_int(prefetch, "prefetch", 1, PREFETCH_MAX),
        prefetch_each_node=prefetch is None,
        lease_us=0 if lease is None else lease_us(lease, "lease"),
        max_deliveries=0
        if max_deliveries is None
        else check_int(max_deliveries, "max_deliveries", 1, DELIVERIES_MAX),
        failover=_failover(failover),
        create=bool(create),
        decoding=None if coder is None else Decoding(coder),
    )


def _failover(failover: object) -> Failover:
    if failover not in ("safe", "fast"):
        raise OutOfRange(f"failover must be 'safe' or 'fast', not {failover!r}")
    return failover


def _partitions(partitions: Iterable[int]) -> tuple[int, ...]:
    try:
        found = tuple(partitions)
    except TypeError:
        raise WrongType(f"partitions must be a list of numbers, not {partitions!r:.80}") from None
    if not found:
        raise OutOfRange("partitions is an empty list; leave it out to read all of them")
    return tuple(check_int(each, "a partition", 0, PARTITIONS_MAX - 1) for each in found)


def check_callback(callback: object, what: str) -> None:
    if callback is not None and not callable(callback):
        raise WrongType(f"{what} must be a function or None, not {callback!r:.80}")


def check_offset(offset: object) -> int:
    return check_int(offset, "an offset", 0, _OFFSET_MAX)


def check_number(number: object) -> int:
    return check_int(number, "a transaction's number", 0, _OFFSET_MAX)
