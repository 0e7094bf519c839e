"""The dispatcher of shared indexes by examples; all of its behaviour: test_dispatcher_model.py."""

from __future__ import annotations

from collections import Counter, deque

import pytest

from hocket.core.sharing import absence, handing
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.events import (
    Advanced,
    Answer,
    Closing,
    CreditGiven,
    Effect,
    Event,
    Fetch,
    FetchDamaged,
    Fetched,
    FetchFailed,
    Joined,
    Left,
    PartitionAdded,
    Record,
    Refunded,
    Reset,
    Scan,
    ScanFailed,
    Scanned,
    Send,
    SettingsChanged,
    Settle,
    Tick,
    Widened,
)
from hocket.core.sharing.leases import GRACE_US, Leases
from hocket.core.sharing.state import ShareChange, ShareSettings, ShareState

LEASE_US = 1_000_000
SETTINGS = ShareSettings(LEASE_US, max_deliveries=5)


class Index:
    """One dispatcher whose reads are answered at once, and what its consumers have received."""

    def __init__(self, mode: str = "shared", *, records: int = 0, partitions: int = 1) -> None:
        self.sharing = Dispatcher(mode)
        self.keys = [0] * records
        self.now_us = 0
        self.received: dict[int, list[tuple[int, int]]] = {}
        self.token = 0
        self.fetches: list[Fetch] = []
        for number in range(partitions):
            leases = Leases(ShareState(0, SETTINGS), end=records, now_us=0)
            self.do(PartitionAdded(number, leases))

    def do(self, event: Event) -> list[Effect]:
        todo, done = deque(self.sharing.step(event)), []
        while todo:
            effect = todo.popleft()
            done.append(effect)
            if isinstance(effect, Fetch):
                self.fetches.append(effect)
                todo.extend(self.sharing.step(Fetched(effect.fetch, effect.end, 100, self.now_us)))
            elif isinstance(effect, Scan):
                hashes = self.keys[effect.start : effect.end]
                todo.extend(self.sharing.step(Scanned(effect.partition, effect.start, hashes)))
            elif isinstance(effect, Send):
                self.received.setdefault(effect.consumer, []).extend(
                    (effect.partition, offset)
                    for start, end, _ in effect.ranges
                    for offset in range(start, end)
                )
        return done

    def join(self, consumer: int, messages: int = 10, partitions=(0,), size: int = 10**6) -> None:
        identity = bytes([consumer]) * 16
        self.do(Joined(consumer, identity, partitions, size, messages, [], self.now_us))

    def work(self, consumer: int) -> int:
        """Ack all it has received, and give the credit back."""
        done = self.received.pop(consumer, [])
        self.token += 1
        ranges = [(partition, offset, offset + 1) for partition, offset in done]
        self.do(Settle(consumer, self.token, "ack", ranges, 0, "", self.now_us))
        self.do(CreditGiven(consumer, 100 * len(done), len(done), self.now_us))
        return len(done)

    def tick(self, passed_us: int) -> None:
        self.now_us += passed_us
        self.do(Tick(self.now_us))

    @property
    def leases(self) -> Leases:
        return self.sharing._leases[0]


# --- fairness ------------------------------------------------------------------------------------


def test_a_stuck_consumer_does_not_starve_the_others():
    index = Index(records=10_000)
    for consumer in (1, 2, 3):
        index.join(consumer, messages=50)
    done: Counter[int] = Counter()
    for _ in range(2_000):
        for consumer in (1, 2):
            done[consumer] += index.work(consumer)
        index.tick(LEASE_US // 10)
        if index.leases.start == 10_000:
            break
    assert index.leases.start == 10_000
    assert abs(done[1] - done[2]) < 200
    assert len(index.received[3]) <= 50, "he was not given more while others were ready"


def test_who_is_quick_gets_more():
    index = Index(records=5_000)
    index.join(1, messages=20)
    index.join(2, messages=20)
    done: Counter[int] = Counter()
    for turn in range(400):
        done[1] += index.work(1)
        if turn % 4 == 0:
            done[2] += index.work(2)
    assert 3.5 < done[1] / done[2] < 4.5


def test_a_stalled_one_alone_is_not_starved():
    index = Index(records=3)
    index.join(1, messages=100)
    index.received.clear()
    seen = []
    for _ in range(4):
        index.tick(LEASE_US)
        seen.append(index.received.pop(1))
    assert seen == [[(0, 0)]] * 4
    index.tick(LEASE_US)
    assert index.received.pop(1) == [(0, 1)], "the first has been delivered five times"


def test_a_stalled_one_gets_nothing_more_while_it_has_something():
    index = Index(records=1)
    index.join(1, messages=5)
    index.tick(LEASE_US // 2)
    index.do(Advanced(0, 0, 2))
    index.join(2, messages=1)
    index.tick(LEASE_US // 2)  # the first lease runs out
    assert index.received.pop(1) == [(0, 0), (0, 1)]
    assert index.received.pop(2) == [(0, 0)]
    index.do(Settle(2, 7, "ack", [(0, 0, 1)], 0, "", index.now_us))
    index.do(Advanced(0, 0, 3))
    assert index.received == {}
    index.do(CreditGiven(1, 0, 0, index.now_us))
    assert index.received == {1: [(0, 2)]}, "it has shown that it lives"


def test_slots_leave_a_stalled_consumer_and_return_with_its_life():
    index = Index("key_shared", records=8)
    index.keys = [1, 60_000] * 4
    index.join(1, messages=2)
    assert index.received.pop(1) == [(0, 0), (0, 1)]
    index.do(CreditGiven(1, 0, 1, 0))
    index.received.clear()
    index.tick(LEASE_US // 2)
    index.join(2, messages=20)
    assert 2 not in index.received, "what is in flight has to be drained"
    index.tick(LEASE_US // 2)
    for suspect in (0, 1, 2):  # one of them may be what has stopped the first consumer
        assert index.received[2] == [(0, suspect)]
        index.work(2)
    first = index.received.pop(2)
    assert first == [(0, offset) for offset in range(3, 8)], "all keys are his now"
    index.do(CreditGiven(1, 100, 10, index.now_us))
    assert 1 not in index.received, "half of them are the first one's again, when they are drained"
    index.received[2] = first
    index.work(2)
    index.keys += [1, 60_000]
    index.do(Advanced(0, 0, 10))
    assert index.received == {1: [(0, 9)], 2: [(0, 8)]}


# --- credit --------------------------------------------------------------------------------------


def test_bytes_may_be_overdrawn_by_one_read_and_the_debt_is_paid_first():
    index = Index(records=3)
    index.join(1, messages=1, size=30)
    assert index.received.pop(1) == [(0, 0)]
    assert index.fetches.pop().bytes_max == 30
    index.do(CreditGiven(1, 70, 5, 0))
    assert index.received == {}, "a hundred bytes came and thirty were there"
    index.do(CreditGiven(1, 1, 0, 0))
    assert index.received.pop(1) == [(0, 1), (0, 2)]


def test_bytes_that_were_not_sent_after_all_come_back_without_being_a_sign_of_life():
    index = Index(records=3)
    index.join(1, messages=10, size=30)
    index.do(Advanced(0, 0, 4))
    assert index.received.pop(1) == [(0, 0), (0, 1), (0, 2)]
    index.do(Refunded(1, 71))
    assert index.received.pop(1) == [(0, 3)]
    index.tick(LEASE_US)
    assert index.sharing._consumers[1].stalled
    index.do(Refunded(1, 500))
    assert index.sharing._consumers[1].stalled


def test_one_read_is_for_two_thousand_messages_and_a_mebibyte_at_most():
    index = Index(records=5_000)
    index.join(1, messages=10_000, size=1 << 30)
    assert [(each.start, each.end, each.bytes_max) for each in index.fetches] == [
        (0, 2_000, 1 << 20),
        (2_000, 4_000, 1 << 20),
        (4_000, 5_000, 1 << 20),
    ]


def test_who_releases_messages_gets_none_before_giving_credit():
    index = Index(records=4)
    index.join(1, messages=10)
    assert index.received.pop(1) == [(0, offset) for offset in range(4)]
    index.do(Settle(1, 1, "release", [(0, 2, 4)], 0, "", 0))
    index.tick(100)
    assert index.received == {}
    index.join(2, messages=1)
    assert index.received.pop(2) == [(0, 2)]
    index.do(CreditGiven(1, 0, 2, index.now_us))
    assert index.received == {1: [(0, 3)]}


def test_who_releases_messages_and_forgets_the_credit_is_not_forgotten():
    index = Index(records=1)
    index.join(1, messages=10)
    index.received.clear()
    index.do(Settle(1, 1, "release", [(0, 0, 1)], 0, "", 0))
    index.tick(LEASE_US - 1)
    assert index.received == {}
    index.tick(1)
    assert index.received == {1: [(0, 0)]}


def test_an_index_put_elsewhere_in_one_partition_is_read_on_in_the_others():
    sharing = Dispatcher("shared")
    for number in (0, 1):
        sharing.step(PartitionAdded(number, Leases(ShareState(0, SETTINGS), end=3, now_us=0)))
    first, second = sharing.step(Joined(1, b"1" * 16, (0, 1), 1 << 22, 10, [], 0))
    record, again = sharing.step(Reset(1, 2, token=7))
    assert record == Record(1, ShareChange(reset=2), 7)
    assert (again.partition, again.start, again.end) == (1, 2, 3)
    assert sharing.step(Fetched(second.fetch, second.end, 100, 0)) == []
    _, send = sharing.step(Fetched(first.fetch, first.end, 100, 0))
    assert send == Send(first.fetch, 1, 0, [(0, 3, 1)])


# --- what is not there ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        Left(9, True, 0),
        CreditGiven(9, 1, 1, 0),
        Refunded(9, 1),
        Widened(9, 0),
        Fetched(99, 5, 100, 0),
        FetchFailed(99),
        FetchDamaged(99, 0, 5, "damaged"),
        ScanFailed(0),
        Scanned(0, 3, [1, 2]),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_concerns_nobody_brings_nothing_about(event):
    index = Index(records=5)
    index.join(1, messages=2)
    assert index.do(event) == []


def test_somebody_who_is_not_there_holds_nothing():
    index = Index(records=5)
    index.join(1, messages=2)
    settle = Settle(9, 7, "ack", [(0, 0, 5), (3, 1, 2)], 0, "", 0)
    assert index.do(settle) == [Answer(9, 7, [(0, 0, 5), (3, 1, 2)], 0)]


def test_a_partition_that_is_not_there_is_refused_and_the_rest_done():
    index = Index(records=5)
    index.join(1, messages=2)
    record, answer = index.do(Settle(1, 7, "ack", [(3, 1, 2), (0, 0, 1)], 0, "", 0))
    assert isinstance(record, Record)
    assert answer == Answer(1, 7, [(3, 1, 2)], 1)


def test_partitions_that_come_later_are_read_for_those_who_want_them():
    index = Index(records=1)
    index.join(1)
    leases = Leases(ShareState(0, SETTINGS), end=2, now_us=0)
    assert index.do(PartitionAdded(1, leases)) == []
    index.do(Widened(1, 1))
    assert index.received[1] == [(0, 0), (1, 0), (1, 1)]
    assert index.do(Widened(1, 1)) == []


def test_leases_last_as_long_as_the_settings_say_now():
    index = Index(records=2)
    index.do(SettingsChanged(0, SETTINGS._replace(lease_us=10)))
    index.join(1, messages=1)
    index.tick(9)
    assert index.sharing.leased(0) == 1
    index.tick(1)
    assert index.sharing.leased(0) == 0


def test_nothing_is_leased_while_the_broker_closes():
    index = Index(records=5)
    (record,) = index.do(Closing())
    assert record.change.encode() == {"clean": True}
    index.join(1)
    assert index.received == {}


def test_an_index_is_idle_when_nobody_consumes_it_or_may_come_back():
    index = Index(records=3)
    assert index.sharing.is_idle
    index.join(1, messages=2)
    assert not index.sharing.is_idle
    index.do(Left(1, False, index.now_us))
    assert not index.sharing.is_idle, "it may come back"
    index.tick(GRACE_US)
    assert index.sharing.is_idle
    index.leases.reserve_suspect(2)
    assert not index.sharing.is_idle, "a message is being read for somebody"


# --- what a death counts for ---------------------------------------------------------------------


def counts(index: Index) -> list[int]:
    return list(index.leases._maps.counts)


def join_telling(index: Index, consumer: int, messages: int = 10, partitions=(0,)) -> None:
    identity = bytes([consumer]) * 16
    index.do(Joined(consumer, identity, partitions, 10**6, messages, [], index.now_us, tells=True))


def die(index: Index, consumer: int, after_us: int = GRACE_US) -> None:
    index.do(Left(consumer, False, index.now_us))
    index.tick(after_us)
    index.received.pop(consumer, None)


def test_who_dies_takes_no_neighbours_along():
    index = Index(records=10)
    for consumer in range(1, 6):
        join_telling(index, consumer)
        die(index, consumer)
    assert counts(index) == [5] + [0] * 9
    join_telling(index, 6)
    assert index.received[6] == [(0, 1)], "alone, like each of them"
    for offset in range(1, 10):
        assert index.received[6] == [(0, offset)]
        index.work(6)
    assert index.leases.start == 0, "the first one is on its way to the dead letters"
    assert index.leases.suspects == 0


def test_what_was_told_to_be_handed_out_counts_and_the_next_one():
    index = Index(records=10)
    join_telling(index, 1)
    index.do(CreditGiven(1, 0, 0, 0, [(0, 1, 3)]))
    index.do(Settle(1, 7, "ack", [(0, 1, 2)], 0, "", 0))
    die(index, 1)
    assert counts(index) == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]


def test_who_does_not_tell_dies_with_all_it_had():
    index = Index(records=4)
    index.join(1)
    die(index, 1)
    assert counts(index) == [1] * 4
    index.join(2)
    assert index.received[2] == [(0, 0)], "but they go on alone"


def test_of_several_partitions_the_next_one_is_of_that_whose_turn_it_is():
    index = Index(records=2, partitions=2)
    join_telling(index, 1, partitions=(0, 1))
    index.do(CreditGiven(1, 0, 0, 0, [(1, 2, 0), (0, 1, 0)]))
    assert index.sharing._consumers[1].is_next == (1, 0)
    index.do(Settle(1, 7, "ack", [(1, 0, 2)], 0, "", 0))
    assert index.sharing._consumers[1].is_next == (0, 0), "the other one has nothing that waits"
    index.do(Reset(0, 0))
    index.do(CreditGiven(1, 0, 0, 0, [(0, 9, 0)]))
    assert index.sharing._consumers[1].is_next is None


def test_what_waits_is_not_remembered_without_limit(monkeypatch):
    monkeypatch.setattr(handing, "WAITING_MAX", 5)
    index = Index(records=200)
    join_telling(index, 1, messages=2)
    assert index.received.pop(1) == [(0, 0), (0, 1)]
    index.do(CreditGiven(1, 100, 1, 0))
    for _ in range(100):  # the first one is never settled, and nothing is told
        assert index.work(1) == 1
    assert index.sharing._consumers[1].deliveries == 102
    assert len(index.sharing._consumers[1].waiting[0]) < 8
    die(index, 1)
    assert counts(index)[0] == 1


def test_a_consumer_that_is_busy_is_held_back_until_it_can_have_the_suspect():
    index = Index(records=20)
    index.join(1, messages=5)
    index.tick(LEASE_US // 2)
    index.join(2, messages=5)
    die(index, 1, LEASE_US // 2)
    index.do(CreditGiven(2, 100, 5, index.now_us))
    assert index.received[2] == [(0, offset) for offset in range(5, 10)], "nothing more came"
    index.work(2)
    assert index.received[2] == [(0, 0)]
    index.do(CreditGiven(2, 100, 5, index.now_us))
    assert index.received[2] == [(0, 0)], "nothing beside it"


def test_a_suspect_of_one_partition_holds_back_what_is_in_the_others():
    index = Index(records=10, partitions=2)
    index.join(1, messages=3, partitions=(1,))
    index.tick(LEASE_US // 2)
    index.join(2, messages=2, partitions=(0, 1))
    die(index, 1, LEASE_US // 2)
    index.do(CreditGiven(2, 1_000, 100, index.now_us))
    index.work(2)
    for offset in range(3):
        assert index.received[2] == [(1, offset)]
        index.work(2)
    assert len(index.received[2]) > 1


@pytest.mark.parametrize("action", ["nack", "reject", "ack"])
def test_a_suspect_that_its_consumer_has_outlived_is_none_any_more(action):
    index = Index(records=3)
    index.join(1)
    die(index, 1)
    index.join(2)
    index.do(Settle(2, 7, "extend", [(0, 0, 1)], 0, "", index.now_us))
    assert index.leases.suspects == 3
    index.do(Settle(2, 7, action, [(0, 0, 1)], 0, "", index.now_us))
    assert index.leases.suspects == 2


def test_a_released_suspect_stays_one_and_who_closes_has_outlived_it():
    index = Index(records=2)
    index.join(1)
    die(index, 1)
    index.join(2)
    index.do(Settle(2, 7, "release", [(0, 0, 1)], 0, "", index.now_us))
    assert index.leases.suspects == 2
    index.join(3)
    index.do(Left(3, True, index.now_us))
    assert index.leases.suspects == 1


def test_five_thousand_suspects_are_worked_off_one_by_one_by_all():
    index = Index(records=5_000)
    join_telling(index, 1, messages=5_000)
    die(index, 1)
    assert index.leases.suspects == 5_000
    for consumer in (2, 3, 4):
        join_telling(index, consumer)
    rounds = 0
    while index.leases.start < 5_000:
        rounds += 1
        for consumer in (2, 3, 4):
            index.work(consumer)
    assert rounds < 5_000 / 3 + 3


def test_a_suspect_holds_back_its_own_key_and_the_keys_of_its_consumer_only():
    index = Index("key_shared", records=8)
    index.keys = [1, 60_000] * 4
    index.join(1, messages=1)
    die(index, 1)
    index.join(2, messages=8)
    assert index.received[2] == [(0, 0)], "the other key is his, too"
    index.join(3, messages=8)
    assert index.received[3] == [(0, 1), (0, 3), (0, 5), (0, 7)], "the other key goes on"
    index.work(2)
    assert index.received[2] == [(0, 2), (0, 4), (0, 6)]


# --- what is said again --------------------------------------------------------------------------


def again(index: Index, consumer: int, *ranges: tuple[int, int, int]) -> Answer:
    answers = index.do(Settle(consumer, 9, "ack", list(ranges), 0, "", index.now_us, again=True))
    (answer,) = [effect for effect in answers if isinstance(effect, Answer)]
    return answer


def come_back(index: Index, number: int, former: int, *held: tuple[int, int, int]) -> None:
    identity = bytes([former]) * 16
    index.do(Joined(number, identity, (0,), 10**6, 1, list(held), index.now_us))


def test_who_comes_back_with_a_suspect_is_given_nothing_beside_it():
    index = Index(records=5)
    join_telling(index, 1, messages=1)
    die(index, 1)
    index.join(2)
    assert index.received.pop(2) == [(0, 0)]
    assert index.leases.suspects == 1
    index.do(Left(2, False, index.now_us))
    come_back(index, 3, 2, (0, 0, 1))
    index.do(CreditGiven(3, 100, 5, index.now_us))
    assert index.received == {}
    index.do(Settle(3, 7, "ack", [(0, 0, 1)], 0, "", index.now_us))
    assert index.received == {3: [(0, 1), (0, 2), (0, 3), (0, 4)]}


def test_the_first_ack_was_heard_and_its_answer_lost():
    index = Index(records=2)
    index.join(1, messages=2)
    index.do(Settle(1, 7, "ack", [(0, 0, 1)], 0, "", 0))
    index.do(Left(1, False, index.now_us))
    come_back(index, 2, 1, (0, 0, 2))
    assert again(index, 2, (0, 0, 2)) == Answer(2, 9, [], 1), "one was settled, one is settled now"


def test_the_first_ack_was_not_heard_and_another_consumer_has_settled_the_message():
    index = Index(records=2)
    index.join(1, messages=2)
    index.do(Settle(1, 7, "ack", [(0, 0, 1)], 0, "", 0))
    index.do(Left(1, False, index.now_us))
    index.tick(GRACE_US)
    index.join(3, messages=2)
    assert index.work(3) == 1
    come_back(index, 2, 1, (0, 0, 2))
    assert again(index, 2, (0, 0, 2)) == Answer(2, 9, [(0, 1, 2)], 1)
    index.do(Left(2, False, index.now_us))
    come_back(index, 4, 1, (0, 0, 2))
    assert again(index, 4, (0, 0, 2)) == Answer(4, 9, [(0, 1, 2)], 1), "asked a third time"


def test_a_second_link_of_a_consumer_is_as_good_as_a_loss_of_the_first():
    index = Index(records=2)
    index.join(1, messages=2)
    index.do(Settle(1, 7, "ack", [(0, 0, 1)], 0, "", 0))
    come_back(index, 2, 1)  # it does not claim message 1, and is given it once more
    assert index.received[2] == [(0, 1)]
    index.do(Settle(2, 8, "ack", [(0, 1, 2)], 0, "", 0))
    index.do(Left(2, False, index.now_us))
    come_back(index, 3, 1)
    assert again(index, 3, (0, 0, 2)) == Answer(3, 9, [], 1)


def test_of_so_many_consumers_without_a_link_it_is_remembered_what_they_had(monkeypatch):
    monkeypatch.setattr(absence, "ABSENT_MAX", 2)
    index = Index(records=3)
    for consumer in (1, 2, 3):
        index.join(consumer, messages=1)
        index.do(Settle(consumer, 7, "ack", [(0, consumer - 1, consumer)], 0, "", 0))
        index.do(Left(consumer, False, index.now_us))
    for number, former in ((11, 1), (12, 2), (13, 3)):
        come_back(index, number, former)
    assert again(index, 11, (0, 0, 1)).refused == [(0, 0, 1)], "nobody knows: better once too often"
    assert again(index, 12, (0, 1, 2)).refused == again(index, 13, (0, 2, 3)).refused == []
