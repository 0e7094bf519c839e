"""The checkers of replicated partitions can fail: states made by hand."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from hocket.core.sharing import events as share_events
from hocket.core.sharing.dispatcher import Dispatcher
from hocket.core.sharing.leases import Leases
from hocket.core.sharing.state import ShareChange, ShareSettings, ShareState
from hocket.model import EntryKind, PartitionId
from hocket.sim.checkers import OF_THE_CLIENTS, OF_THE_COPIES, Violation
from hocket.sim.checkers.checker import Checker
from hocket.sim.copies_view import Copy, Mark, Stored, Story
from hocket.sim.producers import Ledger, Offered
from hocket.sim.subscribers import Taken
from hocket.sim.transactors import PARTITIONS, TOPIC, Attempt
from hocket.wire.entry import Header

PLACE = PartitionId("t", 0)
NODES = ("n0", "n1", "n2")


class Core:
    """What is read of a partition."""

    def __init__(self) -> None:
        self.start = self.high_watermark = 0
        self.last_index = self.applied_index = 0
        self.is_settled = True
        self.dedupe = SimpleNamespace(producers={})
        self.cursors = SimpleNamespace(applied={})
        self.stages = SimpleNamespace(snapshot=dict)
        self.shares: dict[str, ShareState] = {}


class World:
    """A group of three, and what its checkers look at."""

    def __init__(self) -> None:
        self.now_us = 0
        self.is_safety_phase = True
        self.story = Story(7, "t", 0, NODES)
        self.ledger = Ledger()
        self.ledger.begin(PLACE)
        self.subscriber = SimpleNamespace(name="s", topic="t", diary=[])
        self.workload = SimpleNamespace(
            ledger=self.ledger, logs=self.ledger.logs, given_up={}, silent={},
            subscribers=[self.subscriber], transactors=[],
        )  # fmt: skip
        self.copies = SimpleNamespace(
            moved=[], stories={7: self.story}, story_of=lambda place: self.by_place.get(place)
        )
        self.by_place = {PLACE: self.story}
        for name in NODES:
            machine = SimpleNamespace(name=name, lives=1, is_damaged=False)
            copy = self.story.copies[name] = Copy(machine, self.story, life=1)
            copy.replica = self.replica()
            copy.was = self.was(copy)

    def replica(self, *, is_persisting: bool = False) -> SimpleNamespace:
        replicated = SimpleNamespace(is_persisting=lambda _group: is_persisting)
        return SimpleNamespace(
            is_settled=True, log=SimpleNamespace(replicated=replicated),
            machine=SimpleNamespace(core=Core()),
        )  # fmt: skip

    def was(self, copy: Copy) -> Copy:
        was = Copy(**{name: getattr(copy, name) for name in Copy.__slots__})
        was.log = dict(copy.log)
        return was

    def checker(self, name: str) -> Checker:
        kinds = [*OF_THE_COPIES, *OF_THE_CLIENTS]
        return next(kind(self) for kind in kinds if kind.name == name)  # type: ignore[abstract]

    def move(self, checker: Checker, node: str, **facts: object) -> Copy:
        """The copy has become this, and the checker looks."""
        copy = self.story.copies[node]
        copy.was = self.was(copy)
        copy.began, copy.fresh = False, []
        for name, value in facts.items():
            setattr(copy, name, value)
        self.copies.moved = [copy]
        checker.after_event()
        self.story.new.clear()
        return copy

    def commit(
        self, *values: bytes, kind: EntryKind = EntryKind.BATCH, body: bytes = b"", base: int = -1,
        producer: tuple[bytes, int, int] | None = None, end: int = -1, committed_in: int = 1,
    ) -> int:  # fmt: skip
        """Another entry is committed."""
        story = self.story
        story.last += 1
        base = story.end if base < 0 else base
        count = len(values) if end < 0 else end - base
        header = Header(0, len(body), kind, 0, 0, count, 1, story.last, base, 0, 0, 0)
        story.entries[story.last] = Stored(header, body, list(values), producer)
        story.committed[story.last] = Mark(100 + story.last, 1)
        story.committed_in[story.last] = committed_in
        story.new.append(story.last)
        story.values.update(enumerate(values, base))
        story.end = base + len(values)
        return story.last


def fails(name: str, match: str) -> pytest.RaisesExc:
    kinds = {kind.name: kind.sentence for kind in (*OF_THE_COPIES, *OF_THE_CLIENTS)}
    assert name in kinds
    return pytest.raises(Violation, match=match)


@pytest.fixture
def world() -> World:
    return World()


def test_two_leaders_of_one_term(world):
    name = "each_term_has_one_leader"
    checker = world.checker(name)
    world.move(checker, "n0", leads=True, term=1)
    world.move(checker, "n1", leads=True, term=2)
    world.move(checker, "n0", leads=True, term=1)
    assert checker.seen == 3
    with fails(name, "n2 and n1 both lead t/0 in term 2"):
        world.move(checker, "n2", leads=True, term=2)


def test_logs_with_one_term_and_two_entries(world):
    name = "logs_agree_where_their_terms_do"
    checker = world.checker(name)
    world.move(checker, "n0", log={1: Mark(5, 1)}, fresh=[1])
    world.move(checker, "n1", log={1: Mark(6, 2)}, fresh=[1])
    assert checker.seen == 2
    with fails(name, "entry 1 of term 1 in n2's copy"):
        world.move(checker, "n2", log={1: Mark(7, 1)}, fresh=[1])


class TestWhatIsCommittedNeverChanges:
    name = "what_is_committed_never_changes"

    def test_it_is_the_same_everywhere(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        right = world.story.committed[1]
        world.move(checker, "n0", log={1: right}, last=1, commit=1)
        world.move(checker, "n1", log={}, last=1, commit=1)  # it has the state
        assert checker.seen == 1
        with fails(self.name, "entry 1 of n2's copy"):
            world.move(checker, "n2", log={1: Mark(1, 1)}, last=1, commit=1)

    def test_nobody_cuts_it_off_or_writes_over_it(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        right = world.story.committed[1]
        world.move(checker, "n0", log={1: right}, last=1, commit=1)
        with fails(self.name, "ends at 0, and 1 is committed"):
            world.move(checker, "n0", log={}, last=0)
        with fails(self.name, "entry 1"):
            world.move(checker, "n0", log={1: Mark(3, 3)}, fresh=[1], last=1)


def test_an_entry_that_a_minority_has(world):
    name = "what_is_committed_is_durable_at_a_majority"
    checker = world.checker(name)
    for number in (1, 2, 3):
        index = world.commit(b"a")
        mark = world.story.committed[index]
        for node in NODES[: 4 - number]:
            copy = world.story.copies[node]
            copy.durable, copy.log[index] = index, mark
        if number == 3:
            with fails(name, r"committed entry 3, which only \['n0'\]"):
                world.move(checker, "n0")
        else:
            world.move(checker, "n0")
    assert checker.seen == 3


def test_an_entry_that_others_have_otherwise(world):
    name = "what_is_committed_is_durable_at_a_majority"
    index = world.commit(b"a")
    for node in NODES[:2]:
        world.story.copies[node].durable = index
        world.story.copies[node].log[index] = world.story.committed[index]
    world.story.copies["n1"].log[index] = Mark(1, 9)
    with fails(name, "committed entry 1"):
        world.move(world.checker(name), "n0")


class TestALeaderHasAllThatIsCommitted:
    name = "a_leader_has_all_that_is_committed"

    def test_all_or_more(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        world.move(checker, "n0", leads=True, term=2, last=2, log={1: world.story.committed[1]})
        assert checker.seen == 1
        world.move(checker, "n0", last=0)  # it leads already: others say so
        assert checker.seen == 1

    @pytest.mark.parametrize(("last", "mark"), [(0, None), (1, Mark(1, 1))])
    def test_less_or_something_else(self, world, last, mark):
        checker = world.checker(self.name)
        world.commit(b"a")
        with fails(self.name, "n1's copy of t/0 leads with"):
            world.move(checker, "n1", leads=True, term=2, last=last, log={1: mark} if mark else {})

    def test_who_counts_its_votes_late_lacks_what_a_later_leader_has_committed(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        world.commit(b"b", committed_in=3)
        world.move(checker, "n1", leads=True, term=2, last=1, log={1: world.story.committed[1]})
        assert checker.seen == 1
        with fails(self.name, "n2's copy of t/0 leads with 1 of 2 entries"):
            world.move(checker, "n2", leads=True, term=4, last=1)


class TestTermsVotesAndFlushedEntriesAreKept:
    name = "terms_votes_and_flushed_entries_are_kept"

    @pytest.mark.parametrize(
        ("after", "what"),
        [
            ({"term": 2}, "is in term 2, and was in 3"),
            ({"term": 3, "vote": "n2"}, "has voted for n2 in term 3, and before for n1"),
            ({"term": 3, "vote": ""}, "has voted for nobody in term 3"),
            (
                {"term": 3, "vote": "n1", "began": True, "last": 4, "durable": 0},
                "ends at 4, and 5 was durable",
            ),
            (
                {"term": 4, "began": True, "durable_crc": 2, "log": {5: Mark(2, 2)}},
                "has Mark.* at 5, and Mark.* was durable",
            ),
        ],
    )
    def test_what_was_said_stays(self, world, after, what):
        checker = world.checker(self.name)
        before = {
            "term": 3, "vote": "n1", "said": (3, "n1"), "durable": 5, "last": 6,
            "durable_crc": 1, "log": {5: Mark(1, 1)},
        }  # fmt: skip
        world.move(checker, "n0", **before)
        world.move(checker, "n0", term=3, vote="n1", began=True)
        assert checker.seen == 2
        with fails(self.name, what):
            world.move(checker, "n0", **after)

    def test_a_disk_that_lies_excuses(self, world):
        checker = world.checker(self.name)
        world.move(checker, "n0", term=3, said=(3, "n1"), durable=5, last=5)
        world.story.copies["n0"].machine.is_damaged = True
        world.move(checker, "n0", term=1, last=0, durable=0, began=True)
        assert checker.seen == 1

    def test_nothing_follows_from_a_vote_before_it_is_durable(self, world):
        with fails(self.name, "goes on in term 3 before"):
            world.move(
                world.checker(self.name), "n0", term=3, replica=world.replica(is_persisting=True)
            )

    @pytest.mark.parametrize(("durable", "crc"), [(2, 1), (1, 9)])
    def test_only_what_is_in_the_log_is_durable(self, world, durable, crc):
        checker = world.checker(self.name)
        world.move(checker, "n0", last=1, log={1: Mark(1, 1)}, durable=1, durable_crc=1)
        with fails(self.name, f"calls entry {durable} durable"):
            world.move(checker, "n0", durable=durable, durable_crc=crc)


def test_a_damaged_copy_that_takes_part(world):
    name = "who_is_damaged_neither_votes_nor_leads"
    checker = world.checker(name)
    world.move(checker, "n0", leads=True, vote="n0", term=1)
    world.move(checker, "n0", is_faulty=True, leads=False, began=True)
    world.move(checker, "n0", vote="n2")  # what is damaged is known by its snapshot
    world.move(checker, "n0", may_vote=False)
    world.move(checker, "n0", term=2, vote="")
    assert checker.seen == 2
    with fails(name, "is damaged, and votes for n1 in term 2"):
        world.move(checker, "n0", vote="n1")
    with fails(name, "is damaged, and leads in term 2"):
        world.move(checker, "n0", leads=True)


class TestOffsetsAreDense:
    name = "offsets_are_dense"

    def test_one_behind_the_other(self, world):
        checker = world.checker(self.name)
        world.commit(kind=EntryKind.NOOP)
        world.commit(b"a", b"b")
        world.commit(b"c")
        world.move(checker, "n0")
        assert checker.seen == 3

    def test_gaps_and_wrong_counts(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        world.commit(b"b", base=2)
        with fails(self.name, "entry 2 of t/0 begins at 2, and 1 is next"):
            world.move(checker, "n0")
        world.story.new.clear()
        world.commit(b"c", end=9)
        with fails(self.name, "has 1 records and ends at 9"):
            world.move(checker, "n0")


def test_a_batch_that_is_stored_twice(world):
    name = "no_batch_is_stored_twice"
    checker = world.checker(name)
    world.commit(b"a", producer=(b"p", 1, 5))
    world.commit(b"a", producer=(b"p", 1, 6))
    world.commit(b"a", producer=(bytes(16), 0, 0))
    world.commit(b"a", producer=(bytes(16), 0, 0))  # of nobody: it is sent once
    world.move(checker, "n0")
    assert checker.seen == 2
    world.commit(b"a", producer=(b"p", 1, 5))
    with fails(name, "is entry 1 of t/0, and entry 5"):
        world.move(checker, "n1")


class TestTransactionsAreWholeOrAbsent:
    name = "transactions_are_whole_or_absent"

    @pytest.fixture
    def attempt(self, world):
        """Committed, as its client was told, in both partitions of the topic."""
        world.story.topic = TOPIC
        attempt = Attempt("job", 3, 0, "commit", 2, "committed")
        for partition in range(PARTITIONS):
            attempt.values[partition] = [b"job/3/0/%d/%d" % (partition, n) for n in range(2)]
        world.workload.transactors.append(SimpleNamespace(transaction="job", attempts=[attempt]))
        return attempt

    def store(self, world, checker, partition: int, *values: bytes) -> None:
        world.story.partition = partition
        world.story.new.clear()
        for value in values:
            world.commit(value)
        checker.look(world.story.copies["n0"])

    def test_a_whole_one(self, world, attempt):
        checker = world.checker(self.name)
        for partition in range(PARTITIONS):
            self.store(world, checker, partition, *attempt.values[partition])
        checker.after_event()
        checker.at_end()
        assert checker.seen == 4

    def test_one_that_is_not_in_all_partitions(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, checker, 0, *attempt.values[0])
        with fails(self.name, "is committed, and there is"):
            checker.after_event()
        attempt.told = ""
        with fails(self.name, "is torn"):
            checker.at_end()

    def test_one_that_was_aborted(self, world, attempt):
        checker = world.checker(self.name)
        attempt.told = "aborted"
        checker.at_end()
        self.store(world, checker, 1, attempt.values[1][0])
        with fails(self.name, "is aborted, and there is"):
            checker.at_end()

    def test_one_that_is_there_twice_or_elsewhere(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, checker, 0, attempt.values[0][0])
        with fails(self.name, "is twice in partition 0"):
            self.store(world, checker, 0, attempt.values[0][0])
        with fails(self.name, "is in partition 0"):
            self.store(world, checker, 0, attempt.values[1][0])

    def test_the_order_of_numbers(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, checker, 0, b"job/4/1/0/0")
        with fails(self.name, "is behind number 4 in partition 0"):
            self.store(world, checker, 0, attempt.values[0][0])


class TestWhoIsToldOfACommitCanReadAllOfIt:
    name = "who_is_told_of_a_commit_can_read_all_of_it"

    @pytest.fixture
    def attempt(self, world):
        """One with two records in each partition, of which its client was told nothing yet."""
        attempt = Attempt("job", 3, 0, "commit", 2)
        for partition in range(PARTITIONS):
            attempt.values[partition] = [b"job/3/0/%d/%d" % (partition, n) for n in range(2)]
            story = Story(7 + partition, TOPIC, partition, NODES)
            world.by_place[PartitionId(TOPIC, partition)] = story
            machine = SimpleNamespace(name="n0", lives=1)
            copy = story.copies["n0"] = Copy(machine, story, life=1, term=2, serves=True)
            copy.replica = world.replica()
        world.workload.transactors.append(SimpleNamespace(transaction="job", attempts=[attempt]))
        return attempt

    def store(self, world, attempt, partition: int, *, shown: int) -> Copy:
        """The partition has its part, committed in term 2; its leader shows so many records."""
        world.story = world.by_place[PartitionId(TOPIC, partition)]
        world.story.committed_in[world.commit(*attempt.values[partition])] = 2
        copy = world.story.copies["n0"]
        copy.replica.machine.core.high_watermark = shown
        return copy

    def test_all_can_be_read(self, world, attempt):
        checker = world.checker(self.name)
        for partition in range(PARTITIONS):
            self.store(world, attempt, partition, shown=2)
        checker.after_event()
        assert checker.seen == 0  # nobody was told yet
        attempt.told = "committed"
        checker.after_event()
        checker.after_event()
        assert checker.seen == 4

    def test_one_partition_does_not_have_it_yet(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, attempt, 0, shown=2)
        attempt.told = "committed"
        with fails(self.name, "job/3/0/1/0' is not there"):
            checker.after_event()

    def test_a_leader_that_has_it_and_shows_only_a_part(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, attempt, 0, shown=2)
        self.store(world, attempt, 1, shown=1)
        attempt.told = "committed"
        with fails(self.name, "before 1, and not b'job/3/0/1/1' at 1"):
            checker.after_event()

    def test_who_led_before_is_not_asked(self, world, attempt):
        checker = world.checker(self.name)
        self.store(world, attempt, 0, shown=2)
        self.store(world, attempt, 1, shown=0).term = 1
        attempt.told = "committed"
        checker.after_event()
        assert checker.seen == 2

    def test_what_was_not_committed_is_not_looked_for(self, world, attempt):
        checker = world.checker(self.name)
        attempt.told = "aborted"
        checker.after_event()
        assert checker.seen == 0


class TestTheHighWatermarkNeverGoesBack:
    name = "the_high_watermark_never_goes_back"

    def test_from_one_to_the_next(self, world):
        checker = world.checker(self.name)
        world.move(checker, "n0", serves=True, term=1, high_watermark=5)
        world.move(checker, "n1", serves=True, term=2, high_watermark=5)
        world.move(checker, "n0", serves=True, term=1)  # it does not know yet that it is over
        assert checker.seen == 3
        with fails(self.name, "n2's copy of t/0 serves up to 4, and in term 2 that was 5"):
            world.move(checker, "n2", serves=True, term=3, high_watermark=4)

    def test_at_one_copy(self, world):
        checker = world.checker(self.name)
        world.move(checker, "n0", high_watermark=5)
        world.move(checker, "n0", high_watermark=3, began=True)
        with fails(self.name, "could be read up to 3, and now up to 2"):
            world.move(checker, "n0", high_watermark=2)


class TestCopiesThatHaveAppliedTheSame:
    name = "copies_that_have_applied_the_same_are_the_same"

    def state(self, world: World, node: str, applied: int, end: int) -> dict[str, object]:
        core = world.story.copies[node].replica.machine.core
        core.applied_index = core.last_index = applied
        core.high_watermark = end
        return {"applied": applied, "high_watermark": end}

    def test_are_the_same(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        for node in NODES[:2]:
            world.move(checker, node, **self.state(world, node, 1, 1))
        assert checker.seen == 2
        core = world.story.copies["n2"].replica.machine.core
        core.dedupe.producers[b"p"] = SimpleNamespace(epoch=1, next_sequence=2)
        with fails(self.name, "n2's copy of t/0 and n0's have applied entry 1"):
            world.move(checker, "n2", **self.state(world, "n2", 1, 1))

    def test_in_shared_indexes_too(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        for number, node in enumerate(NODES[:2]):
            share = ShareState(0)
            share.apply(ShareChange(counts=[(0, 1, 1 + number)]))
            world.story.copies[node].replica.machine.core.shares["i"] = share
        world.move(checker, "n0", **self.state(world, "n0", 1, 1))
        with fails(self.name, "n1's copy of t/0 and n0's have applied entry 1"):
            world.move(checker, "n1", **self.state(world, "n1", 1, 1))

    def test_apply_nothing_that_is_not_committed(self, world):
        with fails(self.name, "has applied entry 1; committed is 0"):
            world.move(world.checker(self.name), "n0", **self.state(world, "n0", 1, 1))

    def test_and_nothing_is_passed_over(self, world):
        world.commit(b"a")
        with fails(self.name, "can be read up to 0, and entry 1 ends at 1"):
            world.move(world.checker(self.name), "n0", **self.state(world, "n0", 1, 0))

    def test_what_is_being_written_is_not_compared(self, world):
        checker = world.checker(self.name)
        world.commit(b"a")
        world.story.copies["n0"].replica.machine.core.is_settled = False
        world.move(checker, "n0", **self.state(world, "n0", 1, 1))
        assert checker.seen == 0


class TestLogStartsMoveByCommittedEntries:
    name = "log_starts_move_by_committed_entries"

    def test_by_entry(self, world):
        checker = world.checker(self.name)
        world.story.log_start = 5
        world.move(checker, "n0", start=5, log_start=5)
        assert checker.seen == 1

    @pytest.mark.parametrize("which", ["start", "log_start"])
    def test_not_by_itself(self, world, which):
        with fails(self.name, "begins at 3; the entries that are committed say 0"):
            world.move(world.checker(self.name), "n0", **{which: 3})

    def test_who_serves_has_moved(self, world):
        checker = world.checker(self.name)
        world.commit(kind=EntryKind.CONTROL, body=json.dumps({"log_start": 4}).encode())
        world.story.log_start = 4
        with fails(self.name, "serves from 0, and 4 is committed"):
            world.move(checker, "n0", serves=True)


def test_another_group_that_serves_the_partition(world):
    name = "one_lineage_of_a_group_acknowledges"
    checker = world.checker(name)
    world.move(checker, "n0", serves=True)
    world.move(checker, "n1", serves=False)
    assert checker.seen == 1
    world.by_place[PLACE] = Story(3, "t", 0, NODES)
    with fails(name, "n0 serves .* as group 7"):
        world.move(checker, "n0", serves=True)
    world.by_place[PLACE] = world.story
    world.story.voters = ("n1", "n2")
    with fails(name, "n0 serves .*, and is none of"):
        world.move(checker, "n0", serves=True)


class TestEveryGroupIsLed:
    name = "every_group_is_led_when_faults_are_over"

    def test_within_ten_seconds(self, world):
        checker = world.checker(self.name)
        world.now_us = 20_000_000
        checker.after_event()  # there are faults
        world.is_safety_phase = False
        checker.after_event()
        world.now_us += 9_000_000
        checker.after_event()
        world.story.copies["n1"].serves = True
        checker.after_event()
        assert checker.seen == 1
        world.story.copies["n1"].serves = False
        checker.after_event()
        world.now_us += 11_000_000
        with fails(self.name, "t/0 is led by nobody, 3 copies are up"):
            checker.after_event()

    def test_a_minority_has_time(self, world):
        checker = world.checker(self.name)
        world.is_safety_phase = False
        world.story.copies["n1"].replica = None
        world.story.copies["n2"].machine.is_damaged = True
        for _ in range(3):
            world.now_us += 11_000_000
            checker.after_event()


class TestWhatClientsAreTold:
    def test_an_acknowledged_record_is_there(self, world):
        name = "acknowledged_records_are_at_their_offsets"
        checker = world.checker(name)
        world.commit(b"a", b"b")
        world.ledger.acknowledged(PLACE, 0, Offered([b"a", b"b"], 0), "p")
        checker.at_end()
        assert checker.seen == 1
        world.ledger.acknowledged(PLACE, 2, Offered([b"c"], 0), "p")
        with fails(name, "p was told that b'c' is at 2 of t/0, and None is committed there"):
            checker.at_end()

    def test_what_comes_later_is_behind(self, world):
        name = "acknowledgements_follow_real_time"
        checker = world.checker(name)
        world.ledger.acknowledged(PLACE, 4, Offered([b"a"], 0), "p")
        world.ledger.acknowledged(PLACE, 3, Offered([b"b"], 3), "q")
        checker.at_end()
        assert checker.seen == 2
        world.ledger.acknowledged(PLACE, 2, Offered([b"c"], 3), "p")
        with fails(name, "was acknowledged up to 3, and it is at 2"):
            checker.at_end()

    def test_readers_get_what_is_committed(self, world):
        name = "nothing_beyond_the_high_watermark_is_delivered"
        checker = world.checker(name)
        world.commit(b"a")
        world.subscriber.diary.append(Taken(1, 0, 0, b"a"))
        checker.at_end()
        assert checker.seen == 1
        world.subscriber.diary.append(Taken(1, 0, 1, b"b"))
        with fails(name, "was handed b'b' at 1 of t/0; committed up to 1 is None"):
            checker.at_end()

    def test_without_majority_nobody_is_told_anything(self, world):
        name = "nothing_is_acknowledged_without_a_majority"
        checker = world.checker(name)
        checker.after_event()
        assert checker.seen == 0
        world.workload.silent[PLACE] = None
        world.ledger.acknowledged(PLACE, 0, Offered([b"a"], 0), "p")
        checker.at_end()  # the answer was under way
        assert checker.seen == 1
        world.now_us += 1_000_000
        world.ledger.acknowledged(PLACE, 1, Offered([b"a"], 0), "p")
        with fails(name, "p was told of"):
            checker.at_end()

    def test_without_majority_nobody_serves(self, world):
        name = "nothing_is_acknowledged_without_a_majority"
        world.workload.silent[PLACE] = None
        world.story.copies["n0"].serves = True
        with fails(name, "is served"):
            world.checker(name).at_end()


class TestNoMessageIsLeasedTwice:
    name = "no_message_is_leased_twice"

    def lead(self, world: World, node: str, identity: bytes = b"", failover: str = "safe") -> None:
        """The machine leads, and has leased the message to this consumer."""
        settings = ShareSettings(1_000_000, failover=failover)
        sharing = Dispatcher("shared")
        leases = Leases(ShareState(0, settings), end=1, now_us=0, alone_us=0)
        sharing.step(share_events.PartitionAdded(0, leases))
        sharing.step(share_events.Joined(1, identity, (0,), 100, 1, [], world.now_us))
        for effect in sharing.step(share_events.Reserved(0, 9)):
            if isinstance(effect, share_events.Fetch):
                sharing.step(share_events.Fetched(effect.fetch, 1, 10, world.now_us))
        shared = SimpleNamespace(groups={0: 7}, core=sharing, index="i")
        wiring = SimpleNamespace(shares=SimpleNamespace(_shared={0: shared}))
        machine = world.story.copies[node].machine
        machine.node = SimpleNamespace(node=SimpleNamespace(_wiring=wiring))
        machine.clock = SimpleNamespace(now_us=lambda: world.now_us)

    def test_to_another_consumer_while_the_first_has_it(self, world):
        checker = world.checker(self.name)
        self.lead(world, "n0", b"one")
        world.move(checker, "n0", serves=True, term=1)
        world.now_us = 500_000
        self.lead(world, "n1", b"two")
        with fails(self.name, "leased 0 to .*, in term 2; n0 had, in term 1, leased it"):
            world.move(checker, "n1", serves=True, term=2)

    def test_what_is_fine(self, world):
        checker = world.checker(self.name)
        self.lead(world, "n0", b"one")
        world.move(checker, "n0", serves=True, term=1)
        world.move(checker, "n2", serves=False, term=1)
        world.now_us = 100_000
        self.lead(world, "n1", b"one")  # it has claimed it
        world.move(checker, "n1", serves=True, term=2)
        self.lead(world, "n1", b"two", failover="fast")
        world.move(checker, "n1", serves=True, term=3)
        world.now_us = 2_000_000  # that lease is over
        self.lead(world, "n1", b"two")
        world.move(checker, "n1", serves=True, term=4)
        assert checker.seen == 3
