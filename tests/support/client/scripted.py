"""A session with a scripted far end: no thread, no socket, and a clock that is moved by hand.

`Stage` is for tests that say every frame; `ModelBroker` answers by itself, as simply as a broker
can, and is what the property tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from hocket import frames
from hocket.addresses import Address
from hocket.client.engines.driver import Driver, LinkEnd
from hocket.errors import HocketError, NoConnection
from hocket.frames import Frame, packed, unpacked
from hocket.model import Limits
from hocket.wire.batch import check_entries, encode, parse
from hocket.wire.entry import pack_header, unpack_header

F = TypeVar("F")
T = TypeVar("T")
NOTHING = memoryview(b"")


class ManualClock:
    def __init__(self) -> None:
        self.ticks = 1_000_000
        self.wall = 1_700_000_000_000_000

    def now_us(self) -> int:
        return self.wall

    def ticks_us(self) -> int:
        return self.ticks


class ScriptedLink:
    """The far end is the test's. Looking at what was sent carries out what the cores want done."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._sent: list[tuple[Frame, bytes]] = []
        self._closed = False
        self.arrivals = 0

    @property
    def sent(self) -> list[tuple[Frame, bytes]]:
        self._stage.carry_out()
        return self._sent

    @sent.setter
    def sent(self, sent: list[tuple[Frame, bytes]]) -> None:
        self._sent = sent

    @property
    def closed(self) -> bool:
        self._stage.carry_out()
        return self._closed

    def send(self, frame: Frame, payload: Any = ()) -> None:
        assert not self._closed, f"{frame} was sent on a link that is closed"
        self._sent.append((frame, b"".join(payload)))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self._closed = True

    def heard(self) -> int:
        return self.arrivals


class ScriptedConnector:
    """Opens nothing: the test says what becomes of each link."""

    target = "hocket://scripted:1"
    watched = True

    def __init__(self, address_count: int = 1) -> None:
        self.addresses = tuple(Address("scripted", each + 1) for each in range(address_count))
        self.dialled: list[tuple[Address, LinkEnd]] = []

    def open(self, address: Address, end: LinkEnd) -> None:
        self.dialled.append((address, end))

    def close(self) -> None:
        pass

    def forked(self) -> None:
        pass

    def for_threads(self) -> ScriptedConnector:
        return self


class Stage(Driver):
    """One session, and the broker's side of it in the hands of the test.

    What the test asks of a core directly is carried out as soon as the test looks at anything.
    """

    def __init__(
        self,
        *,
        limits: Limits | None = None,
        address_count: int = 1,
        seed: int = 0,
        features: tuple[str, ...] = (),
    ) -> None:
        self.connector = ScriptedConnector(address_count)
        super().__init__(
            self.connector,
            lambda: None,
            name="a test",
            token="secret",
            clock=ManualClock(),
            random=Random(seed),
        )
        self.limits = limits or Limits()
        self.features = features
        self.link: ScriptedLink | None = None
        self.end: LinkEnd | None = None  # of the link

        self.begin_turn()

    @property
    def opens(self) -> list[int]:
        """The numbers of the addresses that were dialled."""
        self.carry_out()
        return [address.port - 1 for address, _ in self.connector.dialled]

    def defer(self, job: Callable[[], None]) -> None:
        job()

    # --- what links tell (see Driver) -------------------------------------------------------------

    def do(self, act: Callable[..., T], *args: Any) -> T:
        self.carry_out()
        self.begin_turn()
        try:
            return act(*args)
        finally:
            self.carry_out()

    def opened(self, end: LinkEnd) -> None:
        self.do(self.tell_opened, end)

    def received(self, end: LinkEnd, frames: Any) -> None:
        self.do(self.tell_received, end, frames)

    def lost(self, end: LinkEnd, error: HocketError) -> None:
        self.do(self.tell_lost, end, error)

    received_outside, lost_outside = received, lost

    # --- links -----------------------------------------------------------------------------------

    def open(self) -> ScriptedLink:
        """The link that was asked for comes about; the client has said Hello."""
        self.carry_out()
        _, self.end = self.connector.dialled[-1]
        self.link = ScriptedLink(self)
        self.end.opened(self.link)
        return self.link

    def welcome(self) -> ScriptedLink:
        link = self.open()
        hello = self.take(frames.Hello)
        self.reply(frames.Welcome(hello.request, 1, "node", "software", self.features, self.limits))
        return link

    def started(self) -> Stage:
        self.session.start()
        self.welcome()
        return self

    def lose(self, reason: str = "cut") -> None:
        link, self.link = self.link, None
        assert self.end is not None
        self.end.lost(link, NoConnection(reason))

    def come_back(self) -> None:
        """After a loss: wait until the next link is opened, and open it."""
        before = len(self.opens)
        self.advance(10_000_000)
        assert len(self.opens) == before + 1
        self.welcome()

    def fail_to_open(self, reason: str | HocketError = "refused") -> None:
        self.carry_out()
        error = NoConnection(reason) if isinstance(reason, str) else reason
        self.connector.dialled[-1][1].lost(None, error)

    # --- frames ----------------------------------------------------------------------------------

    def reply(self, frame: Frame, payload: bytes = b"") -> None:
        assert self.link is not None
        assert self.end is not None
        self.link.arrivals += 1
        self.end.received(self.link, [(frame, memoryview(payload))])

    def sent(self) -> list[Frame]:
        return [] if self.link is None else [frame for frame, _ in self.link.sent]

    def kinds(self) -> list[str]:
        return [type(frame).__name__ for frame in self.sent()]

    def take(self, kind: type[F]) -> F:
        """The next frame that was sent, which has to be of this kind."""
        return self.take_with_payload(kind)[0]

    def take_with_payload(self, kind: type[F]) -> tuple[F, bytes]:
        assert self.link is not None
        assert self.link.sent, f"nothing was sent, {kind.__name__} was expected"
        frame, payload = self.link.sent.pop(0)
        assert type(frame) is kind, f"{frame} was sent, {kind.__name__} was expected"
        return frame, payload

    def take_all(self) -> list[Frame]:
        assert self.link is not None
        sent, self.link.sent = self.link.sent, []
        return [frame for frame, _ in sent]

    def advance(self, microseconds: int) -> None:
        """Let time pass, doing what falls due at the moment it does."""
        self.carry_out()
        end = self.clock.ticks + microseconds
        while (delay := self.timers.delay_us()) is not None and self.clock.ticks + delay <= end:
            self._pass(delay)
            self.run_due()
        self._pass(end - self.clock.ticks)
        self.begin_turn()

    def _pass(self, microseconds: int) -> None:
        self.clock.ticks += microseconds
        self.clock.wall += microseconds


class Answers(list[Any]):
    """Collects what a request was answered."""

    def __call__(self, answer: Frame | HocketError) -> None:
        self.append(answer)


# --- batches -------------------------------------------------------------------------------------


def placed(entry: bytes, offset: int) -> bytes:
    """An entry as the broker stamps it."""
    header = unpack_header(entry)
    stamped = pack_header(
        length=header.length,
        kind=header.kind,
        codec=header.codec,
        flags=header.flags,
        count=header.count,
        base_offset=offset,
        body_crc=header.body_crc,
        max_timestamp=header.max_timestamp,
    )
    return stamped + entry[len(stamped) :]


def stored(values: list[bytes], offset: int, **columns: Any) -> bytes:
    """A batch as a broker delivers it."""
    return placed(encode(values, timestamps=columns.pop("timestamps", 7), **columns), offset)


def values_in(payload: bytes) -> list[bytes]:
    found: list[bytes] = []
    for info in check_entries(payload):
        found += parse(payload, info.position).values()
    return found


def stamps_in(payload: bytes) -> list[tuple[bytes, int, int]]:
    return [(i.producer_id, i.epoch, i.sequence) for i in check_entries(payload)]


# --- a broker ------------------------------------------------------------------------------------


@dataclass
class Log:
    """One partition: its entries, and what is known of producers."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)  # offset, entry
    values: list[bytes] = field(default_factory=list)
    known: dict[bytes, list[int]] = field(default_factory=dict)  # id -> offset of each sequence

    def store(self, entry: bytes, info: Any) -> int | None:
        """The offset; None: its predecessor is missing."""
        known = self.known.setdefault(info.producer_id, [])
        if info.sequence < len(known):
            return known[info.sequence]
        if info.sequence > len(known):
            return None
        offset = len(self.values)
        known.append(offset)
        self.entries.append((offset, placed(entry, offset)))
        self.values += parse(entry).values()
        return offset


class ModelBroker:
    """Stores what it is sent. `refuse` may be set to a code, to refuse everything for a while."""

    def __init__(self, partitions: int = 1) -> None:
        self.logs = [Log() for _ in range(partitions)]
        self.refuse: str | None = None
        self.ids = 0
        self.handles = 0
        self.pushes = 0

    def answer(self, frame: Frame, payload: bytes) -> list[Frame]:
        if isinstance(frame, frames.OpenProducer):
            return [self._open(frame)]
        if isinstance(frame, frames.CloseHandle | frames.Ping):
            return [frames.Done(frame.request)]
        if isinstance(frame, frames.Push | frames.Publish):
            return [self._store(frame, payload)]
        raise AssertionError(f"the model does not know {frame}")

    def _open(self, frame: frames.OpenProducer) -> Frame:
        producer_id = frame.producer_id
        if not producer_id:
            self.ids += 1
            producer_id = self.ids.to_bytes(16, "big")
        self.handles += 1
        sequences = [len(log.known.get(producer_id, ())) for log in self.logs]
        return frames.ProducerOpened(
            frame.request, self.handles, producer_id, frame.epoch, len(self.logs), packed(sequences)
        )

    def _store(self, frame: frames.Push | frames.Publish, payload: bytes) -> Frame:
        self.pushes += 1
        (info,) = check_entries(payload)
        code, message = self.refuse, "not now"
        if code is None:
            offset = self.logs[frame.partition].store(payload, info)
            if offset is not None:
                return self._stored(frame, info, offset)
            code, message = "sequenceGap", "one is missing"
        if isinstance(frame, frames.Publish):
            return frames.Failure(frame.request, code, message)
        return frames.PushRefused(0, frame.handle, frame.partition, info.sequence, code, message)

    def _stored(self, frame: frames.Push | frames.Publish, info: Any, offset: int) -> Frame:
        if isinstance(frame, frames.Publish):
            return frames.Published(frame.request, frame.partition, offset)
        return frames.PushAcked(0, frame.handle, frame.partition, info.sequence, packed([offset]))


def pairs(data: bytes) -> dict[int, int]:
    numbers = unpacked(data)
    return dict(zip(numbers[::2], numbers[1::2], strict=True))
