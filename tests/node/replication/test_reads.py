"""Questions to a group: each is answered once, also if the group ends here."""

from __future__ import annotations

from hocket.core.raft.events import ReadReady
from hocket.node.replication.reads import Reads


def test_a_question_is_answered_when_enough_is_applied():
    reads, told = Reads(), list[bool]()
    reads.ready(ReadReady(reads.ask(told.append), 5), applied=4)
    assert told == []
    reads.applied(4)
    assert told == []
    reads.applied(5)
    assert told == [True]
    reads.ready(ReadReady(reads.ask(told.append), 5), applied=5)
    assert told == [True, True]


def test_who_leads_no_more_denies_what_waits():
    reads, told = Reads(), list[bool]()
    reads.ready(ReadReady(reads.ask(told.append), 5), applied=4)
    reads.give_up()
    reads.applied(5)
    assert told == [False]


def test_who_takes_no_part_any_more_leaves_nobody_waiting():
    reads, told = Reads(), list[bool]()
    asked = reads.ask(told.append)  # Raft has not said yet
    reads.ready(ReadReady(reads.ask(told.append), 5), applied=4)
    reads.close()
    assert told == [False, False]
    asked(True)
    reads.applied(5)
    assert told == [False, False], "each once"
