"""The checker of histories finds every error that is planted into a good one, and says which."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.support.cluster.history import (
    SENTENCES,
    Acknowledged,
    Buried,
    Decided,
    Delivered,
    Event,
    GivenBack,
    History,
    Recorder,
    Refused,
    Sent,
    Settled,
    Stored,
    breaches,
    check,
    one_consumer_at_a_time,
    read,
    the_rejected_are_buried_once,
)

PARTITIONS = 2
END = 13  # of the log of partition 0
Plant = Callable[[list[Event]], list[Event]]


def good() -> list[Event]:
    """Two producers, a transaction that commits and one that aborts, and consumers of all kinds."""
    events: list[Event] = []
    clock = iter(range(1_000_000))
    log: dict[int, list[tuple[str, str]]] = {number: [] for number in range(PARTITIONS)}

    def send(by: str, number: int, partition: int, transaction: str = "", told: bool = True) -> str:
        value, key = f"{by}:{number}", f"{by}/{partition}"
        events.append(Sent(next(clock), by, "t", value, key, transaction))
        if told:
            events.append(
                Acknowledged(next(clock), value, "t", partition, len(log[partition]))
                if by == "a"
                else Acknowledged(next(clock), value, "t")
            )
            log[partition].append((value, key))
        return value

    for number in range(10):
        send("a", number, number % PARTITIONS)
        send("b", number, number // 2 % PARTITIONS)
    for number in range(4):
        send("x", number, number % PARTITIONS, "x 0")
    events.append(Decided(next(clock), "x 0", "committed"))
    for number in range(4, 8):
        send("x", number, 0, "x 1", told=False)
    events.append(Decided(next(clock), "x 1", "aborted"))
    events.append(Refused(next(clock), send("a", 99, 0, told=False)))

    def deliver(reader: str, index: str, mode: str, partition: int, offset: int) -> None:
        value, key = log[partition][offset]
        place = "t", partition, offset
        events.append(Delivered(next(clock), reader, index, mode, *place, value, key))

    for partition, records in log.items():
        for offset in range(len(records)):
            deliver("p", "", "own", partition, offset)
        for offset in range(8):
            deliver("o 1", "o", "own", partition, offset)
        events.append(Settled(next(clock), "o", "own", "t", partition, 4))
        for offset in range(6, len(records)):  # 6 and 7 again, and not what is settled
            deliver("o 2", "o", "own", partition, offset)
        for mode in ("shared", "key_shared"):
            for offset in range(len(records)):
                deliver("s 1", mode, mode, partition, offset)
                if offset == 3:
                    deliver("s 2", mode, mode, partition, offset)  # its lease had ended
                events.append(Settled(next(clock), mode, mode, "t", partition, offset))
    for partition, records in log.items():
        for offset, (value, _) in enumerate(records):
            events.append(Stored(next(clock), "t", partition, offset, value))
    return events


def place_of(events: list[Event], kind: type, **fields: object) -> int:
    """Where the first event of a kind with these fields stands."""
    return next(
        number
        for number, each in enumerate(events)
        if isinstance(each, kind)
        and all(getattr(each, name) == value for name, value in fields.items())
    )


def drop(kind: type, **fields: object) -> Plant:
    def plant(events: list[Event]) -> list[Event]:
        del events[place_of(events, kind, **fields)]
        return events

    return plant


def change(kind: type, change: dict[str, object], **fields: object) -> Plant:
    def plant(events: list[Event]) -> list[Event]:
        where = place_of(events, kind, **fields)
        events[where] = replace(events[where], **change)  # type: ignore[arg-type]
        return events

    return plant


def add(event: Event) -> Plant:
    return lambda events: [*events, event]


def swap_stored(events: list[Event]) -> list[Event]:
    """Two records of one sender change places, for everybody who looks."""
    new = {"b:0": "b:1", "b:1": "b:0"}
    return [
        replace(each, value=new.get(each.value, each.value))
        if isinstance(each, Stored | Delivered)
        else each
        for each in events
    ]


def swap_delivered(mode: str, first: int, second: int) -> Plant:
    """Two deliveries of one reader change places."""

    def plant(events: list[Event]) -> list[Event]:
        of = {"mode": mode, "partition": 0, "index": mode if mode != "own" else ""}
        one = place_of(events, Delivered, offset=first, **of)
        other = place_of(events, Delivered, offset=second, **of)
        a, b = events[one], events[other]
        events[one], events[other] = replace(b, at=a.at), replace(a, at=b.at)
        return events

    return plant


def only_sent_of_x(events: list[Event]) -> list[Event]:
    """The outcome of a transaction is not told, and half of it is there."""
    events = drop(Decided, transaction="x 1")(events)
    return [*events, Stored(10**6, "t", 0, END, "x:4")]


LATE = 10**6
PLANTED: dict[str, tuple[Plant, set[str]]] = {
    "an acknowledged record is lost": (
        drop(Stored, value="a:8"),
        {"acknowledged_is_stored", "delivered_is_stored", "logs_have_no_gap"},
    ),
    "one that was acknowledged without a position is lost": (
        drop(Stored, partition=1, value="x:3"),
        {"acknowledged_is_stored", "delivered_is_stored", "transactions_are_whole"},
    ),
    "one stands elsewhere than was told": (
        change(Acknowledged, {"offset": 5}, value="a:2"),
        {"acknowledged_is_stored"},
    ),
    "one is stored twice": (
        add(Stored(LATE, "t", 0, END, "a:0")),
        {"stored_once", "a_sender_is_stored_in_order", "everything_is_delivered"},
    ),
    "one that nobody has sent is stored": (
        add(Stored(LATE, "t", 0, END, "ghost")),
        {"stored_was_sent", "everything_is_delivered"},
    ),
    "a log has a gap": (
        add(Stored(LATE, "t", 0, 40, "a:99")),
        {"logs_have_no_gap", "refused_is_not_stored", "everything_is_delivered"},
    ),
    "one that was refused is stored": (
        add(Stored(LATE, "t", 0, END, "a:99")),
        {"refused_is_not_stored", "everything_is_delivered"},
    ),
    "two of a sender are swapped": (swap_stored, {"a_sender_is_stored_in_order"}),
    "a key is in two partitions": (
        change(Sent, {"key": "a/1"}, value="a:2"),
        {"a_key_stays_in_its_partition"},
    ),
    "a committed transaction is torn": (
        lambda events: drop(Acknowledged, value="x:3")(drop(Stored, value="x:3")(events)),
        {"transactions_are_whole", "delivered_is_stored"},
    ),
    "an aborted transaction is there": (
        add(Stored(LATE, "t", 0, END, "x:4")),
        {"transactions_are_whole", "everything_is_delivered"},
    ),
    "a transaction of unknown outcome is torn": (
        only_sent_of_x,
        {"transactions_are_whole", "everything_is_delivered"},
    ),
    "another value is delivered than is stored": (
        change(Delivered, {"value": "a:1"}, value="a:0", mode="shared"),
        {"delivered_is_stored"},
    ),
    "a reader misses one": (
        drop(Delivered, reader="p", offset=5),
        {"a_reader_skips_and_repeats_nothing", "everything_is_delivered"},
    ),
    "a reader gets one twice": (
        change(Delivered, {"offset": 4, "value": "a:4"}, reader="p", partition=0, offset=5),
        {"a_reader_skips_and_repeats_nothing", "everything_is_delivered"},
    ),
    "a reader gets two in the wrong order": (
        swap_delivered("own", 5, 6),
        {"a_reader_skips_and_repeats_nothing"},
    ),
    "the first reader of an index begins behind the beginning": (
        drop(Delivered, reader="o 1", offset=0),
        {"a_reader_skips_and_repeats_nothing", "everything_is_delivered"},
    ),
    "what an own index has settled comes again": (
        change(Settled, {"offset": 6}, mode="own", partition=0),
        {"a_reader_skips_and_repeats_nothing"},
    ),
    "a later reader of an index begins behind what was delivered": (
        lambda events: [
            each
            for each in events
            if not (isinstance(each, Delivered) and each.reader == "o 2" and each.offset < 9)
        ],
        {"a_reader_skips_and_repeats_nothing", "everything_is_delivered"},
    ),
    "what a shared index has settled comes again": (
        add(Delivered(LATE, "s 2", "shared", "shared", "t", 0, 0, "a:0", "a/0")),
        {"settled_is_not_delivered_again"},
    ),
    "a shared index never settles one": (
        drop(Settled, index="shared", offset=2),
        {"everything_is_delivered"},
    ),
    "an index never gets one": (
        lambda events: [
            each
            for each in events
            if not (
                isinstance(each, Delivered | Settled)
                and each.mode == "key_shared"
                and each.place == ("t", 1, 10)
            )
        ],
        {"everything_is_delivered"},
    ),
    "two of a key are delivered in the wrong order": (
        swap_delivered("key_shared", 0, 3),
        {"a_key_is_delivered_in_order", "settled_is_not_delivered_again"},
    ),
}


def test_a_good_history_is_found_good():
    looked_at = check(good())
    assert set(looked_at) == {each.__name__ for each in SENTENCES}
    assert all(looked_at.values())


@pytest.mark.parametrize("error", PLANTED)
def test_a_planted_error_is_found(error: str):
    plant, broken = PLANTED[error]
    assert set(breaches(plant(good()))) == broken
    with pytest.raises(AssertionError, match=next(iter(sorted(broken)))):
        check(plant(good()))


def test_every_sentence_is_broken_by_some_planted_error():
    assert set().union(*(broken for _, broken in PLANTED.values())) == {
        each.__name__ for each in SENTENCES
    }


def test_an_empty_history_is_no_good_history():
    assert set(breaches([])) == {each.__name__ for each in SENTENCES} - {"refused_is_not_stored"}


def test_what_was_recorded_is_read_again(tmp_path):
    events = good()
    recorder = Recorder(tmp_path / "a")
    for each in events:
        recorder(each)
    recorder.close()
    assert read([tmp_path / "a"]) == events


# --- of topics with several replicas -------------------------------------------------------------

SECOND = 1_000_000_000
PLACE = ("t", 0, 5)


def handed(at: int, reader: str) -> Delivered:
    return Delivered(at * SECOND, reader, "i", "shared", *PLACE, "v")


def test_who_is_handed_what_another_one_has():
    soon = [handed(1, "a"), handed(3, "b")]
    found = one_consumer_at_a_time(History(soon), 4)
    assert (found.looked_at, len(found.breaches)) == (2, 1)
    stood_still = [replace(handed(1, "a"), offset=4), handed(9, "a"), handed(10, "b")]
    assert one_consumer_at_a_time(History(stood_still), 4).breaches
    given_back = GivenBack(2 * SECOND, "i", *PLACE)
    for fine in (
        [*soon, given_back],
        [handed(1, "a"), handed(6, "b")],
        [handed(1, "a"), handed(2, "a")],
        [handed(1, "a"), Delivered(2, "b", "j", "own", *PLACE, "v")],
    ):
        found = one_consumer_at_a_time(History(fine), 4)
        assert found.looked_at
        assert not found.breaches


def test_a_message_that_was_rejected_has_one_dead_letter():
    rejected = GivenBack(1, "i", *PLACE, rejected=True)
    letter = Buried(2, "i", *PLACE)
    assert not the_rejected_are_buried_once(History([rejected, letter])).breaches
    for wrong in (
        [rejected],
        [rejected, letter, letter],
        [letter],
        [GivenBack(1, "i", *PLACE), letter],
    ):
        assert the_rejected_are_buried_once(History(wrong)).breaches
