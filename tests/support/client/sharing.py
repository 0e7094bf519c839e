"""A subscription to a shared index on a stage, and what its tests say often."""

from __future__ import annotations

from typing import Any

from hocket import frames
from hocket.client_core.consuming.attachment import TIDY_US, SubscriptionOptions
from hocket.client_core.consuming.message import Message
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import SharedBatch, SharedMessage
from hocket.frames import packed, unpacked
from tests.support.client.scripted import Stage, stored

LEASE_US = 1_000_000  # several of them pass before the silent broker is suspected


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % n for n in range(start, end)]


def triples(data: bytes) -> list[tuple[int, int, int]]:
    flat = unpacked(data)
    return list(zip(flat[::3], flat[1::3], flat[2::3], strict=True))


def flat(triple_list: Any) -> bytes:
    return packed(number for triple in triple_list for number in triple)


class Sharing:
    def __init__(
        self, *, mode="shared", partitions=(0,), lease_us=LEASE_US, window=None, **options
    ) -> None:
        self.stage = Stage().started()
        self.lease_us = lease_us
        self.core = SharedCore(
            self.stage.session, "t", SubscriptionOptions(index="i", mode=mode, **options),
            message=SharedMessage, batch=SharedBatch,
            arouse=lambda progress: self.core.arouse(progress),
        )  # fmt: skip
        if window is not None:  # as if it had grown
            self.core._window.size = window
        self.core.open()
        self.asked = self.opened(partitions=partitions)

    # --- the broker's side -----------------------------------------------------------------------

    def opened(self, handle=1, partitions=(0,)) -> frames.OpenSubscription:
        asked = self.stage.take(frames.OpenSubscription)
        positions = packed(number for each in partitions for number in (each, 0))
        self.stage.reply(frames.SubscriptionOpened(asked.request, handle, positions, self.lease_us))
        return asked

    def come_back(self, handle=2, partitions=(0,)) -> frames.OpenSubscription:
        self.stage.lose()
        self.stage.come_back()
        return self.opened(handle, partitions)

    def lease(
        self, *runs, base=None, count=None, partition=0, handle=1, continued=False, payload=None,
        keys=None, alone=False,
    ) -> int:  # fmt: skip
        """Messages (start, end, deliveries); by default in one batch that holds just these."""
        if payload is None:
            base = runs[0][0] if base is None else base
            last = runs[-1][1] if count is None else base + count
            columns = {} if keys is None else {"keys": keys}
            payload = b"" if continued else stored(numbers(base, last), base, **columns)
        self.stage.reply(
            frames.Lease(0, handle, partition, 10_000, flat(runs), continued, alone), payload
        )
        return len(payload)

    def settles(self) -> list[frames.Settle]:
        """Those sent so far; other frames are forgotten."""
        return [frame for frame in self.stage.take_all() if isinstance(frame, frames.Settle)]

    def verdicts(self) -> list[tuple[str, list[tuple[int, int, int]]]]:
        return [(frame.action, triples(frame.ranges)) for frame in self.settles()]

    def answer(self, settle: frames.Settle, *refused) -> None:
        self.stage.reply(frames.Settled(settle.request, flat(refused)))

    def move(self, partition=0, offset=0, handle=1, lost=0) -> None:
        self.stage.reply(frames.Moved(0, handle, partition, offset, lost))

    # --- the application's side ------------------------------------------------------------------

    def read(self, count=None) -> list[Message]:
        found: list[Message] = []
        while count is None or len(found) < count:
            message = self.core.next_message()
            if message is None:
                break
            found.append(message)
        return found

    def offsets(self, count=None) -> list[int]:
        return [message.offset for message in self.read(count)]

    def tidy(self) -> list[frames.Frame]:
        self.stage.advance(TIDY_US)
        return self.stage.take_all()

    def told(self) -> list[tuple[str, list[tuple[int, int, int]]]]:
        """What is told within the time that verdicts may gather."""
        self.stage.advance(TIDY_US)
        return self.verdicts()

    def credits(self) -> tuple[int, int]:
        """Given back within that time: bytes and messages."""
        found = [frame for frame in self.tidy() if isinstance(frame, frames.Credit)]
        return sum(each.bytes for each in found), sum(each.messages for each in found)

    def handed(self) -> list[tuple[int, int, int]]:
        """What is told within that time of how far messages were handed out."""
        found = [frame for frame in self.tidy() if isinstance(frame, frames.Credit)]
        return [each for frame in found for each in triples(frame.handed)]

    @property
    def held(self) -> dict[int, int]:
        return self.core.inbound.by_partition[0].held
