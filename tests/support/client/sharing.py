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
    def __init__(self, *, window=None, **options) -> None:
        self.stage = Stage().started()
        self.core = SharedCore(
            self.stage.session, "t", SubscriptionOptions(index="i", mode="shared", **options),
            message=SharedMessage, batch=SharedBatch,
            arouse=lambda progress: self.core.arouse(progress),
        )  # fmt: skip
        if window is not None:  # as if it had grown
            self.core._window.size = window
        self.core.open()
        request = self.stage.take(frames.OpenSubscription).request
        self.stage.reply(frames.SubscriptionOpened(request, 1, packed([0, 0]), LEASE_US))

    # --- the broker's side -----------------------------------------------------------------------

    def lease(self, *runs, base=None, count=None, keys=None) -> None:
        """Messages (start, end, deliveries); by default in one batch that holds just these."""
        base = runs[0][0] if base is None else base
        last = runs[-1][1] if count is None else base + count
        columns = {} if keys is None else {"keys": keys}
        self.stage.reply(
            frames.Lease(0, 1, 0, 10_000, flat(runs)), stored(numbers(base, last), base, **columns)
        )

    def settles(self) -> list[frames.Settle]:
        """Those sent so far; other frames are forgotten."""
        return [frame for frame in self.stage.take_all() if isinstance(frame, frames.Settle)]

    def verdicts(self) -> list[tuple[str, list[tuple[int, int, int]]]]:
        return [(frame.action, triples(frame.ranges)) for frame in self.settles()]

    def answer(self, settle: frames.Settle) -> None:
        self.stage.reply(frames.Settled(settle.request, b""))

    # --- the application's side ------------------------------------------------------------------

    def read(self, count=None) -> list[Message]:
        found: list[Message] = []
        while count is None or len(found) < count:
            message = self.core.next_message()
            if message is None:
                break
            found.append(message)
        return found

    def told(self) -> list[tuple[str, list[tuple[int, int, int]]]]:
        """What is told within the time that verdicts may gather."""
        self.stage.advance(TIDY_US)
        return self.verdicts()

    @property
    def held(self) -> dict[int, int]:
        return self.core.inbound.by_partition[0].held
