"""The words of traces for subscriptions: what a broker delivers, and what is read and said of it.

A place is written as people say it: `3` and `0-5` are offsets of partition 0, `1/7` is one of
partition 1, and `7x2` a message that is delivered for the second time. Unless a trace says
otherwise the value of a message is its offset, so that `s takes 0-5` tells all. `a> delivers 0-1
2-4` are two batches in one delivery; `a> leases 1-3 8x2 batches=0-4,5-9` leases some messages of
two batches. `being=damaged` and the like say what is wrong with a batch.

`reading s` and `sharing s` stand for a client of node a with an open subscription s to topic t, and
`relink a` for a link that breaks and comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from hocket import frames
from hocket.client.engines import timeouts
from hocket.client_core.consuming.attachment import SubscriptionOptions
from hocket.client_core.consuming.core import SubscriptionCore
from hocket.client_core.consuming.message import Message, MessageBatch
from hocket.client_core.consuming.parts import Parted
from hocket.client_core.session.router import Router
from hocket.client_core.sharing.core import SharedCore
from hocket.client_core.sharing.message import SharedBatch, SharedMessage
from hocket.core.session.session import CONSUMER_BYTES
from hocket.errors import HocketError
from hocket.frames import Frame, packed
from hocket.model import Start
from tests.support.client.scripted import placed, stored
from tests.support.wire.batches import with_fallen_offset, with_false_raw_length, with_foreign_name

END = 10_000  # of each partition, unless a trace says otherwise


class Place(NamedTuple):
    partition: int
    start: int
    end: int
    count: int = 1

    @classmethod
    def read(cls, text: str) -> Place:
        text, _, count = text.partition("x")
        partition, slash, offsets = text.rpartition("/")
        start, _, last = offsets.partition("-")
        return cls(
            int(partition) if slash else 0, int(start), int(last or start) + 1, int(count or 1)
        )

    def __str__(self) -> str:
        last = f"-{self.end - 1}" if self.end > self.start + 1 else ""
        count = f"x{self.count}" if self.count > 1 else ""
        return (f"{self.partition}/" if self.partition else "") + f"{self.start}{last}{count}"


def places(messages: Iterable[Message]) -> str:
    """Messages in the order in which they stand here, as places; with values that are unusual."""
    found: list[str] = []
    for (partition, count, _), run in groupby(
        enumerate(messages),
        lambda each: (each[1].partition, each[1].delivery_count, each[1].offset - each[0]),
    ):
        there = [message for _, message in run]
        found.append(str(Place(partition, there[0].offset, there[-1].offset + 1, count)))
        odd = [message.value for message in there if message.value != b"%d" % message.offset]
        found += [f"[{b' '.join(odd).decode()}]"] if odd else []
    return " ".join(found)


def numbers(place: Place) -> list[bytes]:
    return [b"%d" % offset for offset in range(place.start, place.end)]


def batch_of(place: Place, being: str, keys: str) -> bytes:
    """One batch; `being` says what is wrong with it, at which record where that matters."""
    what, _, at = being.partition("@")
    values = numbers(place)
    match what:
        case "nonsense":
            return b"not an entry" * 10
        case "unopenable":
            values = [b"as long as it need be, " + value for value in values]
            return placed(with_false_raw_length(values), place.start)
        case "fallen":
            return placed(with_fallen_offset(values, at=int(at)), place.start)
        case "foreign":
            return placed(with_foreign_name(values, at=int(at)), place.start)
    columns = {"keys": [key.encode() if key != "-" else None for key in keys]} if keys else {}
    entry = bytearray(stored(values, place.start, **columns))
    if what == "damaged":
        entry[-12] ^= 1
    return bytes(entry)


def subscription_options(said: dict[str, str]) -> SubscriptionOptions:
    made: dict[str, Any] = {}
    kinds = {each.name: str(each.type) for each in fields(SubscriptionOptions)}
    for name, text in said.items():
        if name == "start":
            made[name] = Start("offset", int(text)) if text.isdigit() else Start(text)  # type: ignore[arg-type]
        elif kinds[name].startswith("tuple"):
            made[name] = tuple(int(number) for number in text.split(","))
        elif kinds[name] == "bool":
            made[name] = text == "yes"
        else:
            made[name] = int(text) if kinds[name] == "int" else text
    return SubscriptionOptions(**made)


class ConsumerWords:
    # What the stage has (see `words.ClientWords`).
    router: Router
    cores: dict[str, Any]
    asked: dict[str, Any]
    lines: list[str]
    links: dict[int, Any]
    carry_on: Callable[..., None]

    def __init__(self) -> None:
        self.hands: dict[str, list[Message]] = {}  # what was taken, the last one last
        self.batches: dict[str, MessageBatch] = {}  # the last one that was taken
        self.handle = 0  # of the subscription that was opened last
        self.opening: dict[str, str] = {}  # how that was answered first
        self.consumers: list[bytes] = []  # the ids of consumers of shared indexes

    # --- what a broker delivers ------------------------------------------------------------------

    def opens(self, handle: str, **said: str) -> Frame:
        self.handle = int(handle)
        self.opening = {**self.opening, **said}
        positions = packed(int(each) for each in self.opening["positions"].split(","))
        return frames.SubscriptionOpened(
            0, self.handle, positions, int(self.opening["lease_us"]),
            self.opening.get("index_is_new") == "yes",
        )  # fmt: skip

    def delivers(
        self, *batches: str, first: str = "", end: str = "", being: str = "", handle: str = ""
    ) -> tuple[Frame, bytes]:
        there = [Place.read(each) for each in batches]
        payload = b"".join(batch_of(each, being, "") for each in there)
        offset = int(first) if first else there[0].start
        partition_end = int(end) if end else there[-1].end
        frame = frames.Deliver(
            0, int(handle or self.handle), there[0].partition, offset, partition_end
        )
        return frame, payload

    def leases(
        self, *runs: str, batches: str = "", keys: str = "", being: str = "", handle: str = "",
        continued: str = "no", alone: str = "no",
    ) -> tuple[Frame, bytes]:  # fmt: skip
        there = [Place.read(each) for each in runs]
        if batches:
            held = [Place.read(each) for each in batches.split(",")]
        else:  # one that holds just these
            held = [Place(0, there[0].start, there[-1].end)] if continued == "no" else []
        payload = b"".join(batch_of(each, being, keys) for each in held)
        ranges = packed(number for each in there for number in (each.start, each.end, each.count))
        frame = frames.Lease(
            0, int(handle or self.handle), there[0].partition, END, ranges, continued == "yes",
            alone == "yes",
        )  # fmt: skip
        return frame, payload

    def consumer_words(self, consumer: bytes) -> str:
        """Nothing if it is the first one, as it ever was, or an own index, which has none."""
        if consumer not in self.consumers:
            self.consumers.append(consumer)
        named = [each for each in self.consumers if each]
        if consumer == b"" or (consumer == named[0] and len(consumer) == CONSUMER_BYTES):
            return ""
        return f" consumer={named.index(consumer) + 1} of {len(consumer)} bytes"

    # --- opening ---------------------------------------------------------------------------------

    def do_subscribe(self, name: str, topic: str, index: str = "", **options: str) -> None:
        self._open(name, topic, SubscriptionCore, Message, MessageBatch, index=index, **options)

    def do_share(self, name: str, topic: str, index: str = "i", **options: str) -> None:
        options = {"mode": "shared", **options}
        self._open(name, topic, SharedCore, SharedMessage, SharedBatch, index=index, **options)

    def _open(
        self, name: str, topic: str, kind: Any, message: Any, batch: Any, **options: str
    ) -> None:
        def part(options: SubscriptionOptions) -> Any:
            return kind(
                self.router.first, topic, options, message=message, batch=batch,
                arouse=lambda progress: core.arouse(progress),
            )  # fmt: skip

        core: Parted[Any, Any] = Parted(
            self.router.first, topic, subscription_options(options), part
        )
        self.cores[name] = core
        core.open()

    def do_reading(
        self, name: str, positions: str = "0,0", index: str = "i", **options: str
    ) -> None:
        self._opened("subscribe", name, positions, "0", index=index, **options)

    def do_sharing(
        self, name: str, positions: str = "0,0", lease_us: str = "1000000", **options: str
    ) -> None:
        self._opened("share", name, positions, lease_us, **options)

    def _opened(self, verb: str, name: str, positions: str, lease_us: str, **options: str) -> None:
        said = " ".join(f"{key}={value}" for key, value in options.items())
        self.opening = {"positions": positions, "lease_us": lease_us}
        self.carry_on("client a", "up a", f"{verb} {name} t {said}", "a> opens 1")
        self.lines[:] = [line for line in self.lines if "OpenSubscription" in line]

    def do_spread(self, name: str, *leaders: str, verb: str = "subscribe", **options: str) -> None:
        """A client of node a with an open subscription to topic t, over the nodes that lead it.

        Its handle at node a has the number 1, at b 2, and so on.
        """
        said = " ".join(f"{key}={value}" for key, value in options.items())
        nodes = list(dict.fromkeys(leaders))
        lease_us = "1000000" if verb == "share" else "0"
        self.carry_on("client a", "up a", f"{verb} {name} t {said}", "a> severalNodes")
        self.carry_on(f"a> leaders {','.join(leaders)}")
        self.carry_on(*(f"up {node}" for node in nodes if node != "a"))
        for node in nodes:
            there = [f"{each},0" for each, leader in enumerate(leaders) if leader == node]
            handle = "abc".index(node) + 1
            self.carry_on(f"{node}> opens {handle} positions={','.join(there)} lease_us={lease_us}")
        self.lines[:] = [line for line in self.lines if "OpenSubscription" in line]

    def do_relink(self, node: str) -> None:
        """The link breaks and comes back; what comes of that, but for the link itself."""
        if any(link.node == node for link in self.links.values()):
            self.carry_on(f"lose {node}")
        while not any(link.node == node for link in self.links.values()):
            self.carry_on("wait 10ms")
        self.carry_on(f"up {node}")
        link = ("dial ", "in ", "warning: lost the connection")
        self.lines[:] = [line for line in self.lines if not line.startswith(link)]

    # --- reading ---------------------------------------------------------------------------------

    def do_read(self, name: str, *, ack: str = "no") -> None:
        for message in self._taken(name):
            self.lines.append(f"{name} reads {message.value.decode()} at {message.offset}")
            if ack == "yes":
                message.ack()

    def _taken(self, name: str, most: int | None = None) -> Iterator[Message]:
        core = self.cores[name]
        count = 0
        while count != most and (message := core.next_message()) is not None:
            self.hands.setdefault(name, []).append(message)
            count += 1
            yield message

    def do_take(self, name: str, count: str = "") -> None:
        taken: list[Message] = []
        try:
            taken.extend(self._taken(name, int(count) if count else None))
        finally:
            if taken:
                self.lines.append(f"{name} takes {places(taken)}")
        if not taken:
            self.lines.append(f"{name} finds nothing")

    def do_take_batch(self, name: str) -> None:
        batch = self.cores[name].next_batch()
        if batch is None:
            self.lines.append(f"{name} finds nothing")
            return
        self.batches[name] = batch
        there = Place(batch.partition, batch.offset, batch.end, batch.delivery_count)
        self.lines.append(f"{name} takes the batch {there} of {batch.topic}")
        messages = batch.messages()
        assert [each.value for each in messages] == list(batch.values())
        assert (batch.count, places(messages)) == (there.end - there.start, str(there))
        self.hands.setdefault(name, []).extend(messages)

    # --- what is said of messages ----------------------------------------------------------------

    def do_ack(self, name: str, *which: str) -> None:
        self._say("ack", name, which)

    def do_nack(self, name: str, *which: str, delay: str = "") -> None:
        self._say("nack", name, which, *([_duration(delay)] if delay else []))

    def do_extend(self, name: str, *which: str, seconds: str = "") -> None:
        self._say("extend", name, which, *([_duration(seconds)] if seconds else []))

    def do_reject(self, name: str, *which: str, reason: str = "") -> None:
        self._say("reject", name, which, *([reason] if reason else []))

    def _say(self, verdict: str, name: str, which: tuple[str, ...], *arguments: object) -> None:
        for each in which:
            for one in [self.batches[name]] if each == "batch" else self._in_hand(name, each):
                getattr(one, verdict)(*arguments)

    def _in_hand(self, name: str, text: str) -> list[Message]:
        """The messages at a place; with a count that delivery of it, else the last one."""
        place = Place.read(text)
        return [
            next(
                message
                for message in reversed(self.hands[name])
                if (message.partition, message.offset) == (place.partition, offset)
                and ("x" not in text or message.delivery_count == place.count)
            )
            for offset in range(place.start, place.end)
        ]

    def do_commit(self, name: str, thread: str = "") -> None:
        core = self.cores[name]
        core.check_has_index()
        self.asked[f"commit of {name}{thread}"] = core, core.acked_so_far()

    def do_committed(self, name: str, thread: str = "") -> None:
        core, acked = self.asked[f"commit of {name}{thread}"]
        words = {True: "committed", False: "not committed yet"}
        self.lines.append(words[core.are_committed(acked)])

    def do_late(self, name: str, what: str, partition: str = "0") -> None:
        """The time of who waits for it is over: what is raised."""
        core = self.cores[name]
        if what == "commit":
            error = timeouts.not_committed(*self.asked[f"commit of {name}"], 5.0)
        elif what == "seek":
            error = timeouts.not_sought(core, int(partition), 5.0)
        else:
            error = timeouts.no_message(core, 5.0)
        self.lines.append(f"{type(error).__name__}: {error}")

    def do_await(self, name: str, what: str) -> None:
        """Somebody waits for deliveries, or for commits."""
        getattr(self.cores[name], what).add(
            lambda: self.lines.append(f"who waits for {what} of {name} is woken")
        )

    # --- what is known ---------------------------------------------------------------------------

    def do_seek(self, name: str, offset: str, partition: str = "0") -> None:
        self.cores[name].seek(int(partition), int(offset), partial(self._answered, name))

    def do_position(self, name: str, partition: str = "0") -> None:
        self.lines.append(f"{name} is at {self.cores[name].position(int(partition))}")

    def do_lag(self, name: str) -> None:
        self.lines.append(f"{name} has {self.cores[name].lag()} before it")

    def do_tell(self, name: str) -> None:
        """What a subscription knows of itself."""
        core = self.cores[name]
        said = "open" if core.is_open else "not open"
        said += f"; partitions {', '.join(map(str, core.partitions()))}"
        said += f"; {core.lost} lost, {core.refused} refused"
        said += "".join(f"; it has made the index in {topic}" for topic in core.new_indexes())
        self.lines.append(said)

    def do_held(self, name: str) -> None:
        """What the client takes for the application's."""
        held = [
            str(Place(progress.partition, offset, offset + 1, count))
            for part in self.cores[name].parts()
            for progress in part.inbound.by_partition.values()
            for offset, count in sorted(progress.held.items())
        ]
        self.lines.append(f"{name} holds {' '.join(held) or 'nothing'}")

    def do_leave(self, name: str) -> None:
        self.cores[name].wind_up()
        self.cores[name].close(partial(self._answered, name))

    def do_wind_up(self, name: str) -> None:
        self.cores[name].wind_up()

    def _answered(self, name: str, answer: Frame | HocketError) -> None:
        raise NotImplementedError


def _duration(text: str) -> float | str:
    return float(text) if text.lstrip("-").isdigit() else text
