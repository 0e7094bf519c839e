"""Settling messages by their partition and offsets.

Other clients settle message objects, which know whether they are still held. Over RPC there are
only numbers. So the numbers are compared here with what was delivered, and offsets that the client
does not hold (it never did, or does not any more) are refused at once.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Protocol

from hocket.client.faces.aio.subscription import AsyncSubscription
from hocket.client_core.consuming.inbound import Inbound
from hocket.client_core.consuming.message import MessageBatch
from hocket.client_core.consuming.parts import Parted
from hocket.client_core.sharing.leases import Leases
from hocket.client_core.sharing.message import hash_of
from hocket.client_core.sharing.progress import SharedProgress
from hocket.client_core.sharing.ranges import in_words, ranges_of
from hocket.client_core.sharing.verdict import (
    ACK,
    RELEASE,
    Note,
    Verdict,
    extension,
    refusal,
    rejection,
)
from hocket.errors import LeaseLost, OutOfRange, UnknownPartition, WrongKind
from hocket.model import SECOND_US, Settlement

SPARE_HASHES = 1000  # kept of messages that are not held any more, before they are cleaned out


def verdict_of(action: Settlement, duration_us: int, reason: str) -> Verdict:
    """Raises OutOfRange for a duration that is not allowed."""
    seconds = duration_us / SECOND_US
    if action == "nack":
        return refusal(seconds)
    if action == "extend":
        return extension(seconds or None)
    if action == "reject":
        return rejection(reason)
    return ACK if action == "ack" else RELEASE


class Settling(Protocol):
    def delivered(self, batch: MessageBatch) -> None: ...

    def settle(self, verdict: Verdict, partition: int, start: int, end: int) -> None: ...


def settling(subscription: AsyncSubscription) -> Settling:
    core = subscription._core
    assert isinstance(core, Parted), "over RPC a subscription is of one topic"
    return OwnSettling(core) if core.options.mode == "own" else SharedSettling(core)


def _inbound_of(core: Parted[Any, Any], partition: int) -> Any:
    """What the part has that reads this partition; of one that is not read, any part's."""
    inbounds: list[Any] = [part.inbound for part in core.parts()]
    return next((each for each in inbounds if partition in each.by_partition), inbounds[0])


class OwnSettling:
    """Settling on an own index: an ack is for everything up to an offset."""

    def __init__(self, core: Parted[Any, Any]) -> None:
        self._core = core

    def delivered(self, batch: MessageBatch) -> None:
        """Nothing to note: `Progress` knows how far the partition is delivered."""

    def settle(self, verdict: Verdict, partition: int, start: int, end: int) -> None:
        if verdict is not ACK:
            raise WrongKind(
                f"{verdict.action} is for messages of a shared index; messages of an own index are "
                "delivered again by seeking back to them, and skipped by acknowledging them"
            )
        inbound: Inbound = _inbound_of(self._core, partition)
        delivered = inbound.position(partition)
        if not start < end <= delivered:
            raise OutOfRange(
                f"an ack of offsets {start} to {end} of partition {partition}: it must name one at "
                f"least, and only those before {delivered} were delivered"
            )
        inbound.progress_in(partition).ack(end - 1)


class SharedSettling:
    """Settling on a shared index: each message by itself."""

    def __init__(self, core: Parted[Any, Any]) -> None:
        self._core = core
        # Key hashes of messages whose key has an order, by partition and offset: a nack names them.
        self._hashes: dict[int, dict[int, int]] = {}

    def delivered(self, batch: MessageBatch) -> None:
        progress = self._progress_in(batch.partition)
        if progress.keyed:
            hashes = self._hashes.setdefault(batch.partition, {})
            hashes.update(
                zip(range(batch.offset, batch.end), map(hash_of, batch.keys()), strict=True)
            )
            if len(hashes) > 2 * len(progress.held) + SPARE_HASHES:
                self._hashes[batch.partition] = {
                    offset: hashes[offset] for offset in progress.held if offset in hashes
                }

    def settle(self, verdict: Verdict, partition: int, start: int, end: int) -> None:
        """Settle those offsets that are held; then raise LeaseLost if there are others."""
        progress = self._progress_in(partition)
        held = progress.held
        if not start < end:
            raise OutOfRange(f"offsets {start} to {end} of partition {partition}: an empty range")
        if end - start > len(held):  # the range may be of any length
            offsets = sorted(offset for offset in held if start <= offset < end)
        else:
            offsets = [offset for offset in range(start, end) if offset in held]
        for run_start, run_end in ranges_of(offsets):
            self._say(verdict, progress, run_start, run_end)
        if len(offsets) < end - start:
            raise LeaseLost(self._refused(partition, start, end, offsets))

    def _say(self, verdict: Verdict, progress: SharedProgress, start: int, end: int) -> None:
        hashes = self._hashes.get(progress.partition, {})
        for count, run in groupby(range(start, end), progress.held.__getitem__):
            offsets = list(run)
            keys = tuple(hashes.get(offset, 0) for offset in offsets)
            progress.say(Note(verdict, offsets[0], offsets[-1] + 1, count, keys))

    def _progress_in(self, partition: int) -> SharedProgress:
        leases: Leases = _inbound_of(self._core, partition)
        progress = leases.by_partition.get(partition)
        if progress is None:
            raise UnknownPartition(f"nothing of partition {partition} was delivered")
        return progress

    def _refused(self, partition: int, start: int, end: int, settled: list[int]) -> str:
        named = in_words(ranges_of(settled)) if settled else "none"
        return (
            f"of the offsets {start} to {end} of partition {partition} this consumer held {named}; "
            "the others were settled before, or their lease has ended, or they never came here"
        )
