"""What clients of a cluster have seen, as events, and what must hold of it whatever nodes did.

Each sentence is a function from a history to its breaches, in words. Nothing here knows a clock, a
process or a file but `read` and `Recorder`; events carry the time of the machine's one monotonic
clock, so that those of several processes have an order. A sentence counts what it looked at: one
that looked at nothing says nothing, and `check` fails for it.

A value is sent once under its name, whoever sends it; so a value that stands in two places, or
that is delivered from a place where another one stands, is a fault of the cluster.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import astuple, dataclass, field
from itertools import groupby
from pathlib import Path

Place = tuple[str, int, int]  # topic, partition, offset
Log = tuple[str, int]  # topic, partition
BREACHES_MAX = 5  # of one sentence that are shown


# --- events --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Sent:
    """A producer is about to send it. The events of one sender have the order of its sends."""

    at: int
    by: str
    topic: str
    value: str
    key: str = ""
    transaction: str = ""


@dataclass(slots=True)
class Acknowledged:
    """The cluster has said that it is stored; where, if the client was told (else -1)."""

    at: int
    value: str
    topic: str
    partition: int = -1
    offset: int = -1


@dataclass(slots=True)
class Refused:
    """The client was told that it certainly had no effect."""

    at: int
    value: str


@dataclass(slots=True)
class Decided:
    """How a transaction ended, as its client was told: committed or aborted."""

    at: int
    transaction: str
    outcome: str


@dataclass(slots=True)
class Delivered:
    """A consumer has it in hand. A reader is one subscription from its opening to its close."""

    at: int
    reader: str
    index: str  # empty: it has none
    mode: str
    topic: str
    partition: int
    offset: int
    value: str
    key: str = ""

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


@dataclass(slots=True)
class Settled:
    """It is known to be durable that this need not be delivered again; own: nor what is before.

    Not `sure`: of several that were settled together some were refused, and not told which.
    """

    at: int
    index: str
    mode: str
    topic: str
    partition: int
    offset: int
    sure: bool = True

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


@dataclass(slots=True)
class GivenBack:
    """A consumer of a shared index is about to give it back, or to reject it."""

    at: int
    index: str
    topic: str
    partition: int
    offset: int
    rejected: bool = False

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


@dataclass(slots=True)
class Buried:
    """A dead letter that stands in the logs at the end, and the message that it was."""

    at: int
    index: str
    topic: str
    partition: int
    offset: int

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


@dataclass(slots=True)
class Stored:
    """What stands in the logs at the end."""

    at: int
    topic: str
    partition: int
    offset: int
    value: str

    @property
    def place(self) -> Place:
        return self.topic, self.partition, self.offset


Event = Sent | Acknowledged | Refused | Decided | Delivered | Settled | GivenBack | Buried | Stored
KINDS = {
    each.__name__: each
    for each in (
        Sent,
        Acknowledged,
        Refused,
        Decided,
        Delivered,
        Settled,
        GivenBack,
        Buried,
        Stored,
    )
}


class Recorder:
    """Writes events of one client, a line each, in their order."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)

    def __call__(self, event: Event) -> None:
        self._file.write(json.dumps([type(event).__name__, *astuple(event)]) + "\n")

    def close(self) -> None:
        self._file.close()


def now() -> int:
    return time.monotonic_ns()


def read(paths: Iterable[Path]) -> list[Event]:
    events: list[Event] = []
    for path in paths:
        for line in path.read_text().splitlines():
            kind, *fields = json.loads(line)
            events.append(KINDS[kind](*fields))
    return events


# --- a history -----------------------------------------------------------------------------------


class History:
    """The events by kind, each in the order of time, and the logs as they were at the end."""

    def __init__(self, events: Iterable[Event]) -> None:
        ordered = sorted(events, key=lambda each: each.at)
        self.sent = [each for each in ordered if isinstance(each, Sent)]
        self.acknowledged = [each for each in ordered if isinstance(each, Acknowledged)]
        self.refused = [each for each in ordered if isinstance(each, Refused)]
        self.decided = [each for each in ordered if isinstance(each, Decided)]
        self.delivered = [each for each in ordered if isinstance(each, Delivered)]
        self.settled = [each for each in ordered if isinstance(each, Settled)]
        self.given_back = [each for each in ordered if isinstance(each, GivenBack)]
        self.buried = [each for each in ordered if isinstance(each, Buried)]
        self.stored = [each for each in ordered if isinstance(each, Stored)]
        self.at_place = {each.place: each.value for each in self.stored}
        self.places: dict[str, list[Place]] = defaultdict(list)
        for each in self.stored:
            self.places[each.value].append(each.place)

    def logs(self) -> Iterator[tuple[Log, list[str]]]:
        """The values of each partition, by offset."""
        in_order = sorted(self.stored, key=lambda each: each.place)
        for log, records in groupby(in_order, key=lambda each: each.place[:2]):
            yield log, [each.value for each in records]


@dataclass(slots=True)
class Found:
    """What one sentence looked at, and what breaks it."""

    looked_at: int = 0
    breaches: list[str] = field(default_factory=list)

    def expect(self, holds: bool, breach: str) -> None:
        self.looked_at += 1
        if not holds:
            self.breaches.append(breach)


# --- what must hold of logs ----------------------------------------------------------------------


def acknowledged_is_stored(history: History) -> Found:
    found = Found()
    for each in history.acknowledged:
        if each.offset < 0:
            is_there = any(place[0] == each.topic for place in history.places[each.value])
        else:
            place = (each.topic, each.partition, each.offset)
            is_there = history.at_place.get(place) == each.value
        found.expect(is_there, f"{each} is not there: {history.places[each.value]}")
    return found


def stored_once(history: History) -> Found:
    found = Found()
    for value, places in history.places.items():
        if places:
            found.expect(len(places) == 1, f"{value} is stored at {places}")
    return found


def stored_was_sent(history: History) -> Found:
    found = Found()
    sent = {(each.topic, each.value) for each in history.sent}
    for each in history.stored:
        found.expect((each.topic, each.value) in sent, f"nobody has sent {each}")
    return found


def logs_have_no_gap(history: History) -> Found:
    found = Found()
    ends: dict[Log, int] = defaultdict(int)
    for topic, partition, offset in sorted(each.place for each in history.stored):
        expected = ends[topic, partition]
        found.expect(offset == expected, f"{topic}[{partition}] has {offset} at {expected}")
        ends[topic, partition] = offset + 1
    return found


def refused_is_not_stored(history: History) -> Found:
    found = Found()
    for each in history.refused:
        places = history.places[each.value]
        found.expect(not places, f"{each} had no effect, and is at {places}")
    return found


def a_sender_is_stored_in_order(history: History) -> Found:
    """In each partition by itself: between partitions there is no order."""
    found = Found()
    numbers = {each.value: (each.by, number) for number, each in enumerate(history.sent)}
    for log, values in history.logs():
        last: dict[str, int] = {}
        for value in values:
            if value not in numbers:
                continue  # another sentence says that
            by, number = numbers[value]
            found.expect(number > last.get(by, -1), f"{log}: {value} is behind what came later")
            last[by] = number
    return found


def a_key_stays_in_its_partition(history: History) -> Found:
    found = Found()
    homes: dict[tuple[str, str], int] = {}
    for each in history.sent:
        if each.key:
            for topic, partition, _ in history.places[each.value]:
                home = homes.setdefault((topic, each.key), partition)
                found.expect(home == partition, f"{each} is in {partition}, its key in {home}")
    return found


def transactions_are_whole(history: History) -> Found:
    """Committed: all of it is there. Aborted: nothing. Neither was told: all or nothing."""
    found = Found()
    parts: dict[str, list[str]] = defaultdict(list)
    for each in history.sent:
        if each.transaction:
            parts[each.transaction].append(each.value)
    outcomes = {each.transaction: each.outcome for each in history.decided}
    for transaction, values in parts.items():
        there = sum(bool(history.places[value]) for value in values)
        allowed = {"committed": {len(values)}, "aborted": {0}}.get(
            outcomes.get(transaction, ""), {0, len(values)}
        )
        told = outcomes.get(transaction, "of unknown outcome")
        found.expect(there in allowed, f"{transaction}, {told}: {there} of {len(values)} are there")
    return found


# --- what must hold of consumers -----------------------------------------------------------------


def delivered_is_stored(history: History) -> Found:
    found = Found()
    for each in history.delivered:
        stored = history.at_place.get(each.place)
        found.expect(stored == each.value, f"{each}, and there stands {stored}")
    return found


def a_reader_skips_and_repeats_nothing(history: History) -> Found:
    """Of own indexes and of none.

    Offsets follow each other within a reader. The first reader of an index, and one without an
    index, begins at the beginning; a later one between what is settled and what was delivered.
    """
    found = Found()
    nexts: dict[tuple[str, Log], int] = defaultdict(int)  # by reader
    reached: dict[tuple[str, Log], int] = defaultdict(int)  # by index: behind the last delivered
    settled = _settled_before(history)
    for each in history.delivered:
        if each.mode != "own":
            continue
        log = each.place[:2]
        mine, shared = (each.reader, log), (each.index or each.reader, log)
        if mine in nexts:
            right = each.offset == nexts[mine]
            found.expect(right, f"{each}, and {nexts[mine]} was next")
        else:
            least = settled(each.index, log, each.at) if each.index else 0
            right = least <= each.offset <= reached[shared]
            found.expect(right, f"{each} is first, and {least} to {reached[shared]} may be")
        nexts[mine] = each.offset + 1
        reached[shared] = max(reached[shared], each.offset + 1)
    return found


def _settled_before(history: History) -> Callable[[str, Log, int], int]:
    """Of an own index: behind what was settled at a time."""
    by_log: dict[tuple[str, Log], list[tuple[int, int]]] = defaultdict(list)
    for each in history.settled:
        if each.mode == "own":
            by_log[each.index, each.place[:2]].append((each.at, each.offset + 1))

    def settled(index: str, log: Log, at: int) -> int:
        return max((end for when, end in by_log[index, log] if when < at), default=0)

    return settled


def settled_is_not_delivered_again(history: History) -> Found:
    """Of shared indexes; for own ones see where a reader begins."""
    found = Found()
    settled: dict[tuple[str, Place], int] = {}
    for each in history.settled:
        if each.mode != "own" and each.sure:
            settled.setdefault((each.index, each.place), each.at)
    for one in history.delivered:
        if one.mode != "own":
            when = settled.get((one.index, one.place))
            found.expect(when is None or one.at < when, f"{one} was settled before, at {when}")
    return found


def everything_is_delivered(history: History) -> Found:
    """To every index, and to whoever has none; to shared indexes it is even settled."""
    found = Found()
    delivered: dict[str, set[Place]] = defaultdict(set)
    topics: dict[str, set[str]] = defaultdict(set)
    shared: set[str] = set()
    for each in history.delivered:
        name = each.index or each.reader
        topics[name].add(each.topic)
        delivered[name].add(each.place)
        if each.mode != "own":
            shared.add(name)
    for name in shared:
        delivered[name] = {each.place for each in history.settled if each.index == name}
    for name, places in delivered.items():
        for stored in history.stored:
            if stored.topic in topics[name]:
                what = "settled" if name in shared else "delivered"
                found.expect(stored.place in places, f"{name}: {stored} was never {what}")
    return found


def a_key_is_delivered_in_order(history: History) -> Found:
    """Of indexes shared by key: of two messages of a key the first comes first for the first time.

    Whether they go to one consumer or, when keys move, to two.
    """
    found = Found()
    last: dict[tuple[str, Log, str], int] = {}
    seen: set[tuple[str, Place]] = set()
    for each in history.delivered:
        if each.mode != "key_shared" or not each.key or (each.index, each.place) in seen:
            continue
        seen.add((each.index, each.place))
        key = (each.index, each.place[:2], each.key)
        found.expect(each.offset > last.get(key, -1), f"{each} came behind {last.get(key)}")
        last[key] = each.offset
    return found


# --- what must hold of shared indexes of topics with several replicas ----------------------------


def one_consumer_at_a_time(history: History, seconds: float) -> Found:
    """Nobody is handed a message so soon after somebody else who has not given it back.

    `seconds` is less than what is left of a lease when a message is handed out. With one replica
    this may happen, after a broker was away.
    """
    found = Found()
    given_back: dict[tuple[str, Place], list[int]] = defaultdict(list)
    for gone in history.given_back:
        given_back[gone.index, gone.place].append(gone.at)
    last: dict[tuple[str, Place], Delivered] = {}
    for each in history.delivered:
        if each.mode == "own":
            continue
        key = each.index, each.place
        former, last[key] = last.get(key), each
        if former is None or former.reader == each.reader:
            found.looked_at += 1
            continue
        is_free = any(former.at < at < each.at for at in given_back[key])
        is_over = each.at - former.at > seconds * 1e9
        found.expect(is_free or is_over, f"{each}, and {former} had it")
    return found


def the_rejected_are_buried_once(history: History) -> Found:
    """Each message that was rejected has one dead letter, and no other has."""
    found = Found()
    letters: dict[tuple[str, Place], int] = defaultdict(int)
    for each in history.buried:
        letters[each.index, each.place] += 1
    rejected = {(each.index, each.place) for each in history.given_back if each.rejected}
    for key in sorted(rejected):
        found.expect(letters[key] == 1, f"{key} was rejected, and has {letters[key]} dead letters")
    for key, count in letters.items():
        found.expect(key in rejected, f"{key} has {count} dead letters, and nobody rejected it")
    return found


# --- all of it -----------------------------------------------------------------------------------

SENTENCES: tuple[Callable[[History], Found], ...] = (
    acknowledged_is_stored,
    stored_once,
    stored_was_sent,
    logs_have_no_gap,
    refused_is_not_stored,
    a_sender_is_stored_in_order,
    a_key_stays_in_its_partition,
    transactions_are_whole,
    delivered_is_stored,
    a_reader_skips_and_repeats_nothing,
    settled_is_not_delivered_again,
    everything_is_delivered,
    a_key_is_delivered_in_order,
)
MAY_BE_IDLE = {"refused_is_not_stored"}  # a run in which nothing was refused is a good one


def breaches(events: Iterable[Event], idle: Iterable[str] = ()) -> dict[str, list[str]]:
    """Of each sentence that does not hold, or that looked at nothing and is not to be `idle`."""
    may_be_idle = {*MAY_BE_IDLE, *idle}
    history = History(events)
    found = {sentence.__name__: sentence(history) for sentence in SENTENCES}
    return {
        name: each.breaches or ["nothing was looked at"]
        for name, each in found.items()
        if each.breaches or (not each.looked_at and name not in may_be_idle)
    }


def check(events: Iterable[Event], idle: Iterable[str] = ()) -> dict[str, int]:
    """Fail with what does not hold; else how much each sentence has looked at."""
    events = list(events)
    broken = breaches(events, idle)
    text = "\n".join(
        f"{name}: {len(each)} breaches\n  " + "\n  ".join(each[:BREACHES_MAX])
        for name, each in broken.items()
    )
    assert not broken, text
    history = History(events)
    return {sentence.__name__: sentence(history).looked_at for sentence in SENTENCES}
