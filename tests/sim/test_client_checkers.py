"""The checkers of what clients are handed, and of what they mend, can fail."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from hocket.model import PartitionId
from hocket.sim.checkers import OF_THE_CLIENTS, Violation
from hocket.sim.checkers.checker import Checker
from hocket.sim.client import REPAIRS
from hocket.sim.copies_view import Story
from hocket.sim.subscribers import Entry, Office, Taken


class Cluster:
    """What these checkers look at: one topic with two partitions."""

    def __init__(self) -> None:
        self.options = SimpleNamespace(partitions=2, kept_bytes=None, replicas=())
        self.faults = SimpleNamespace(counts={})
        self.subscriber = SimpleNamespace(name="s", topic="t", diary=[], begins={1: ({}, {})})
        self.office = Office("t", "shared")
        self.client = SimpleNamespace(name="c", mended=Counter(), feeds=0)
        self.links = SimpleNamespace(faults={})
        self.copies = SimpleNamespace(stories={})
        self.workload = SimpleNamespace(
            subscribers=[self.subscriber], offices=[self.office], clients=[self.client],
            given_up={}, has_lost_letters=lambda _office: False,
            is_held_up=lambda office: self.is_given_up(office.topic),
        )  # fmt: skip
        self.records: dict[int, bytes] = {}  # of partition 0

    def is_given_up(self, topic: str) -> bool:
        return any(each.topic == topic for each in self.workload.given_up)

    def committed(self, partition_id: PartitionId) -> dict[int, bytes]:
        return self.records if partition_id == PartitionId("t", 0) else {}

    def hand(self, *offsets: int, life: int = 1, partition: int = 0, value: bytes = b"v") -> None:
        self.subscriber.diary += [Taken(life, partition, offset, value) for offset in offsets]


def made(kind: str) -> tuple[Cluster, Checker]:
    cluster = Cluster()
    return cluster, next(each(cluster) for each in OF_THE_CLIENTS if each.name == kind)


class TestSubscribersGetEveryMessageInOrder:
    name = "subscribers_get_every_message_in_order"

    def test_each_partition_in_order_is_right(self):
        cluster, checker = made(self.name)
        cluster.hand(0, 1)
        cluster.hand(0, 1, 2, partition=1)
        checker.after_event()
        cluster.hand(2)
        cluster.records = {0: b"v", 1: b"v", 2: b"v"}
        checker.at_end()
        assert checker.seen == 6

    @pytest.mark.parametrize("offsets", [(1,), (0, 2), (0, 0), (0, 1, 0)])
    def test_gaps_and_repetitions_are_not(self, offsets):
        cluster, checker = made(self.name)
        cluster.hand(*offsets)
        with pytest.raises(Violation, match=f"offset {offsets[-1]}|at {offsets[-1]}"):
            checker.after_event()

    @pytest.mark.parametrize("begin", [2, 3, 4])
    def test_a_later_life_begins_where_it_has_acknowledged(self, begin):
        cluster, checker = made(self.name)
        cluster.hand(0, 1, 2, 3, 4)
        cluster.subscriber.begins[2] = ({0: 2}, {0: 4})
        cluster.hand(begin, begin + 1, life=2)
        checker.after_event()

    @pytest.mark.parametrize("begin", [0, 1, 5])
    def test_it_begins_nowhere_else(self, begin):
        cluster, checker = made(self.name)
        cluster.hand(0, 1, 2, 3, 4)
        cluster.subscriber.begins[2] = ({0: 2}, {0: 4})
        cluster.hand(begin, life=2)
        with pytest.raises(Violation, match=f"at {begin}, and not between 2 and 4"):
            checker.after_event()

    def test_what_was_published_is_handed_out(self):
        cluster, checker = made(self.name)
        cluster.hand(0)
        cluster.records = {0: b"v", 1: b"w"}
        with pytest.raises(Violation, match="handed None at offset 1"):
            checker.at_end()

    def test_as_it_is_and_always_the_same(self):
        cluster, checker = made(self.name)
        cluster.hand(0)
        cluster.records = {0: b"other"}
        with pytest.raises(Violation, match="b'other' is there"):
            checker.at_end()
        cluster.subscriber.begins[2] = ({}, {})
        cluster.hand(0, life=2, value=b"other")
        with pytest.raises(Violation, match="two records"):
            checker.at_end()


class TestWhatIsAckedForGoodIsNotHandedOutAgain:
    name = "what_is_acked_for_good_is_not_handed_out_again"

    def test_what_is_not_acked_for_good_may_go_to_another(self):
        cluster, checker = made(self.name)
        cluster.office.diary += [Entry("a", (0, 0), b"v"), Entry("b", (0, 0), b"v")]
        checker.after_event()
        assert checker.seen == 0
        cluster.office.diary += [Entry("b", (0, 0), None), Entry("a", (1, 0), b"w")]
        cluster.records = {0: b"v"}
        checker.at_end()
        assert checker.seen == 1

    def test_what_is_acked_may_not(self):
        cluster, checker = made(self.name)
        cluster.office.diary += [Entry("a", (0, 0), b"v"), Entry("a", (0, 0), None)]
        checker.after_event()
        cluster.office.diary.append(Entry("b", (0, 0), b"v"))
        with pytest.raises(Violation, match="and a had acknowledged it for good"):
            checker.after_event()

    def test_it_is_the_same_record_each_time(self):
        cluster, checker = made(self.name)
        cluster.office.diary += [Entry("a", (0, 0), b"v"), Entry("b", (0, 0), b"w")]
        with pytest.raises(Violation, match="another record"):
            checker.after_event()

    def test_nothing_that_was_published_is_missing(self):
        cluster, checker = made(self.name)
        cluster.records = {0: b"v"}
        with pytest.raises(Violation, match="handed None at offset 0"):
            checker.at_end()


class TestEachMessageThatDiesHasOneDeadLetter:
    name = "each_message_that_dies_has_one_dead_letter"

    def bury(self, cluster: Cluster, *offsets: int) -> None:
        headers = [
            {"hocket-dlq-partition": b"0", "hocket-dlq-offset": b"%d" % offset}
            for offset in offsets
        ]
        story = SimpleNamespace(entries={1: SimpleNamespace(headers=headers)})
        cluster.copies = SimpleNamespace(
            story_of=lambda place: story if place == PartitionId("t.dlq", 0) else None
        )
        cluster.office.rejects = True

    def test_one_for_each_is_right(self):
        cluster, checker = made(self.name)
        self.bury(cluster, 3, 4)
        cluster.office.rejected = {(0, 3): True, (0, 4): False, (0, 5): False}
        checker.at_end()
        assert checker.seen == 1

    @pytest.mark.parametrize(
        ("letters", "text"),
        [((), "no dead letter"), ((3, 3), "2 dead letters"), ((3, 9), "1 dead letters")],
    )
    def test_none_or_two_or_one_of_another_is_not(self, letters, text):
        cluster, checker = made(self.name)
        self.bury(cluster, *letters)
        cluster.office.rejected = {(0, 3): True}
        with pytest.raises(Violation, match=text):
            checker.at_end()

    def test_of_what_is_lost_for_good_none_is_demanded(self):
        cluster, checker = made(self.name)
        self.bury(cluster)
        cluster.office.rejected = {(0, 3): True}
        cluster.workload.given_up = {PartitionId("t", 0): None}
        checker.at_end()
        cluster.office.rejects = False
        checker.at_end()


class TestMessagesOfAKeyAreHandedOutInOrder:
    name = "messages_of_a_key_are_handed_out_in_order"

    def test_for_the_first_time(self):
        cluster, checker = made(self.name)
        cluster.office.mode = "key_shared"
        entries = [((0, 0), b"k"), ((0, 2), b"k"), ((0, 1), b"l"), ((0, 0), b"k"), ((1, 0), b"k")]
        cluster.office.diary += [Entry("a", place, b"v", key) for place, key in entries]
        cluster.office.diary += [Entry("a", (0, 0), None), Entry("a", (0, 5), b"v", None)]
        checker.at_end()
        assert checker.seen == 4
        cluster.office.diary.append(Entry("b", (0, 1), b"v", b"k"))
        checker.after_event()  # it is known by another key already

    def test_not_behind_a_later_one(self):
        cluster, checker = made(self.name)
        cluster.office.diary += [Entry("a", (0, 2), b"v", b"k"), Entry("b", (0, 1), b"v", b"k")]
        checker.after_event()  # the index is not shared by key
        cluster.office.mode = "key_shared"
        with pytest.raises(Violation, match="b was handed 1 of t/0, and 2, of the same key"):
            checker.after_event()


class TestClientsMendNothingBeforeAnythingFails:
    name = "clients_mend_nothing_before_anything_fails"

    def test_the_way_to_a_topic_is_no_repair(self):
        cluster, checker = made(self.name)
        cluster.client.mended.update(["redirected", "refused"])
        checker.after_event()
        checker.at_end()
        assert checker.seen == 2

    @pytest.mark.parametrize("kind", REPAIRS)
    def test_a_repair_needs_a_fault(self, kind):
        cluster, checker = made(self.name)
        cluster.client.mended[kind] += 1
        with pytest.raises(Violation, match=f"c: {kind} 1 times"):
            checker.after_event()
        cluster.faults.counts["crash"] = 1
        checker.after_event()
        assert checker.seen == 1

    def test_a_leader_that_goes_home_is_followed(self):
        cluster, checker = made(self.name)
        cluster.client.mended["ended by the node"] += 1
        cluster.copies.stories[1] = Story(1, "t", 0, ("n0",), leaders={1: "n0"})
        with pytest.raises(Violation, match="c: ended by the node 1 times"):
            checker.after_event()
        cluster.copies.stories[1].leaders[2] = "n1"
        checker.after_event()

    def test_what_is_late_between_nodes_may_have_feeds_refused(self):
        cluster, checker = made(self.name)
        cluster.links.faults["loss"] = 1
        cluster.client.mended["opened again"] += 1
        with pytest.raises(Violation, match="c: opened again 1 times"):
            checker.after_event()
        cluster.client.feeds = 1
        checker.after_event()
        assert checker.seen == 1
