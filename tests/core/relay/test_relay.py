"""Single rules of the relay core. Whole situations are told in traces/relay/*.txt."""

from __future__ import annotations

from typing import get_args

import pytest

from hocket.core.relay import events, messages
from hocket.core.relay.children import Child, Children
from hocket.core.relay.consumers import Consumer
from hocket.core.relay.intake import Intake
from hocket.core.relay.messages import Fetch
from hocket.core.relay.relay import Relay
from hocket.core.relay.search import AVOIDED_MAX, Search
from hocket.core.relay.settings import DEPTH_MAX, RelaySettings
from hocket.core.ring.contact import Contact
from hocket.model import PartitionId
from tests.support.core.relay_script import Script, contact

PARTITION_ID = PartitionId("news", 0)


def play(*lines):
    script = Script()
    answers = [script.carry_out(line) for line in lines]
    return script, answers[-1]


ATTACHED = ("consume 1 0", "route o", "hear o attached ancestors=o")


def test_every_event_and_message_is_handled():
    assert set(Relay._handlers) == set(get_args(events.Event))
    assert set(Relay._listeners) == set(get_args(messages.RelayMessage))
    assert all(map(callable, (*Relay._handlers.values(), *Relay._listeners.values())))


# --- settings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("children", "consumers", "depth"),
    [(16, 0, 1), (16, 16, 1), (16, 17, 2), (16, 272, 2), (16, 273, 3), (2, 7, 3), (1, 5, 5)],
)
def test_a_tree_for_so_many_is_so_deep(children, consumers, depth):
    assert RelaySettings(children_max=children).depth_for(consumers) == depth


def test_a_chain_has_an_end():
    assert RelaySettings(children_max=1).depth_for(1_000_000) == DEPTH_MAX


def test_times_are_counted_in_whole_ticks():
    settings = RelaySettings()
    assert settings.ticks(1) == 1
    assert settings.ticks(0) == 1
    assert settings.ticks(2_000_001) == 3


# --- children ------------------------------------------------------------------------------------


def test_a_new_life_takes_the_place_of_the_old_one():
    children = Children(2)
    children.put(Child(contact("b"), 1, 0, 1))
    children.put(Child(contact("b2"), 1, 0, 1))
    assert children.contacts == (contact("b2"),)
    assert children.room == 1


def test_a_child_that_was_not_named_or_is_not_silent_stays():
    children = Children(3)
    for name in "bcd":
        children.put(Child(contact(name), 1, 0, 1))
    children.get(contact("b")).silent = children.get(contact("c")).silent = 2
    children.drop_if_silent((contact("b"), contact("d"), contact("z")), 2)
    assert children.contacts == (contact("c"), contact("d"))


def test_newcomers_are_spread_evenly_though_arcs_are_not():
    children = Children(4)
    for name in "bcde":  # three short arcs, and one that is nearly the whole circle
        children.put(Child(contact(name), 1, 0, 1))
    for number in range(400):
        newcomer = Contact(number * 1_000_000_007 % 2**64, f"n{number}", 1, "")
        children.choose(newcomer, 1, ())
    loads = [child.load for child in children]
    assert sum(loads) == 404
    assert max(loads) <= 1.3 * 101


def test_if_all_are_to_be_avoided_one_is_named_nevertheless():
    children = Children(1)
    children.put(Child(contact("b"), 1, 0, 1))
    assert children.choose(contact("c"), 1, (contact("b"),)) == contact("b")


# --- the search ----------------------------------------------------------------------------------


def test_we_are_not_a_candidate():
    search = Search(contact("me"), 4)
    assert search.begin([contact("me"), contact("b")], by_route=True) == contact("b")
    assert search.failed() is None
    assert search.begin([], by_route=True) is None


def test_who_is_to_be_avoided_is_remembered_for_a_while():
    search = Search(contact("me"), 4)
    for name in "abcdefghij":
        search.shun(contact(name))
    search.shun(contact("e2"))
    assert len(search.avoid) == AVOIDED_MAX
    assert search.avoid[0] == contact("c")
    assert search.avoid[-1] == contact("e2")
    assert contact("e") not in search.avoid
    search.found()
    assert search.avoid == ()


def test_without_candidates_there_is_nowhere_to_begin_again():
    search = Search(contact("me"), 0)
    search.begin([contact("b")], by_route=True)
    search._last = None
    assert search.redirected(contact("c")) is None


# --- consumers -----------------------------------------------------------------------------------


def test_consumers_take_turns_to_catch_up():
    relay, served = Script().relay, []
    for number in (1, 2, 3):
        relay.consumers.put(Consumer(number, 0, 0 if number == 2 else 100))
    relay.recent.reset(10)
    for _ in range(4):
        chosen = relay._catch_up._choose()
        relay._catch_up._asked(chosen, 1)
        served.append(chosen.number)
    assert served == [1, 3, 1, 3]
    relay.recent.reset(0)
    assert relay._catch_up._choose() is None


def test_credit_for_more_than_was_taken_is_no_debt():
    consumer = Consumer(1, 0, 10)
    consumer.credit(5)
    assert (consumer.credit_bytes, consumer.taking_bytes) == (15, 0)


def test_credit_for_somebody_who_has_gone_brings_nothing_about():
    _, answer = play(*ATTACHED, "stop 1", "credit 1 10")
    assert answer == []


# --- guests --------------------------------------------------------------------------------------


def fetch(request):
    return Fetch(request, PARTITION_ID, 0, 10, 0, 1, True)


def test_the_newest_question_of_a_guest_counts():
    script, _ = play("own 0 9")
    guests = script.relay._guests
    guests.ask(contact("b"), fetch(5))
    guests.ask(contact("b"), fetch(4))
    assert guests.get(contact("b")).fetch.request == 5
    guests.ask(contact("b"), fetch(6))
    assert guests.get(contact("b")).fetch.request == 6
    guests.ask(contact("b2"), fetch(1))
    assert guests.get(contact("b")).fetch.request == 1
    assert guests._reader(7) is None


# --- the core ------------------------------------------------------------------------------------


def test_the_log_cannot_be_read_just_now():
    script, answer = play("own 0 0", "consume 1 0", "advanced 0 5", "read")
    assert answer == []
    assert script.carry_out("tick") == ["read 0..5, at most 1048576 bytes"]
    assert script.carry_out("read 0..5") == ["deliver 1 0..5, end 5"]


def test_the_recent_batches_were_moved_while_the_log_was_read():
    script, _ = play("own 0 9", "hear b attach 1 offset=5", "hear b fetch 2 9", "advanced 0 12")
    script.relay.recent.reset(2)
    script.relay.children.clear()
    assert script.carry_out("read 9..12") == []
    assert script.relay.recent.end == 2


def test_an_old_read_that_failed_is_tried_again():
    script, answer = play("own 0 9", "consume 1 0", "read")
    assert answer == []
    assert script.carry_out("tick") == ["read 0..9, at most 1000 bytes"]


def test_a_guest_that_asks_for_something_else_meanwhile_gets_that():
    script, answer = play(
        "own 0 9", "hear c fetch 1 0 old=1", "hear c fetch 2 5 old=1", "read 0..3"
    )
    assert answer == ["read 5..9, at most 100 bytes"]
    assert script.carry_out("read 4..9") == ["to c: 2 fetched 4..9, end 9, below me, room 16"]
    assert script.carry_out("read 4..9") == []


def test_a_guest_whose_read_failed_is_told_so():
    _, answer = play("own 0 9", "hear c fetch 1 0 old=1", "read")
    assert answer == ["to c: 1 fetched nothing, end 9, below me, room 16"]


def test_a_guest_that_is_too_late_for_retention():
    _, answer = play("own 4 9", "hear c fetch 1 0 old=1")
    assert answer == ["to c: 1 behind 4"]


def test_a_guest_at_the_end_waits_until_the_tick_or_the_next_batch():
    script, answer = play("own 0 9", "hear c fetch 1 9 old=1")
    assert answer == []
    assert script.carry_out("tick") == ["to c: 1 fetched nothing, end 9, below me, room 16"]
    script.carry_out("hear c fetch 2 9 old=1")
    assert script.carry_out("advanced 0 10") == ["read 9..10, at most 100 bytes"]
    assert script.carry_out("tick") == [], "what is being read will be an answer"


def test_a_fetch_that_does_not_wait_is_answered_at_once():
    _, answer = play("own 0 9", "hear b attach 1 offset=9", "hear b fetch 2 9 wait=0")
    assert answer == ["to b: 2 fetched nothing, end 9, below me, room 15"]


def test_what_a_child_asked_before_its_newest_question_comes_too_late():
    script, _ = play("own 0 9", "hear b attach 1 offset=9", "hear b fetch 4 9")
    assert script.carry_out("hear b fetch 3 0") == []
    assert script.carry_out("hear b attach 2") == []
    assert script.carry_out("advanced 0 10") == ["read 9..10, at most 1048576 bytes"]
    assert script.carry_out("read 9..10") == ["to b: 4 fetched 9..10, end 10, below me, room 15"]


def test_a_child_that_says_nothing_for_long_is_dropped():
    script, _ = play("own 0 9", "hear b attach 1 offset=9")
    script.carry_out("tick 9")
    assert len(script.relay.children) == 1
    script.carry_out("tick")
    assert len(script.relay.children) == 0


def test_an_owner_that_nobody_wants_does_not_tick():
    script, _ = play("own 0 9", "hear b attach 1 offset=9", "hear b detach")
    assert script.relay.step(events.Due(("tick", 0))) == []


def test_an_owner_that_is_asked_for_old_batches_is_silent():
    script, answer = play(*ATTACHED, "hear o behind 5")
    assert answer == ["to o: fetch old from 0, 1000 bytes"]
    assert "to o: fetch old from 0, 1000 bytes" in script.carry_out("tick 2")
    script.carry_out("stalled")
    script._tick("1")
    script.relay._upstream._silent = 0
    script._tick("2")
    script.relay._upstream._silent = 0
    assert "find the route" in script.carry_out("tick")
    assert script.carry_out("route o2") == ["to o2: fetch old from 0, 1000 bytes"]
    assert script.carry_out("hear o2 not-relaying") == ["find the route"]


def test_the_ring_goes_on_naming_one_that_does_not_lead():
    script, _ = play(*ATTACHED, "hear o behind 5")
    assert script.carry_out("hear o not-relaying") == ["find the route"]
    assert script.carry_out("route o") == [], "it has just said no: not before the next tick"
    assert "to o: fetch old from 0, 1000 bytes" in script.carry_out("tick")


def test_retention_passes_those_who_were_not_reading():
    script, _ = play("own 0 9", "consume 1 9 credit=0", "hear b attach 1 offset=9")
    script.carry_out("hear b fetch 2 9 credit=0")
    assert script.carry_out("advanced 50 60") == []
    assert script.carry_out("hear b fetch 3 9") == ["to b: 3 behind 50"]
    assert script.carry_out("credit 1 100") == [
        "lost 1 before 50",
        "read 50..60, at most 1048576 bytes",
    ]
    assert script.carry_out("read 50..60")[0] == "deliver 1 50..60, end 60"


def test_the_owner_begins_again_where_its_log_does():
    script, _ = play(*ATTACHED, "hear o fetched 0..4 end=4", "own 7 9")
    assert script.relay.recent.end == 7


def test_a_loss_that_was_accepted_is_passed_over():
    script, _ = play("own 0 9", "consume 1 9", "hear b attach 1 offset=9", "hear b fetch 2 9")
    assert script.carry_out("advanced 0 30") == ["read 9..30, at most 1048576 bytes"]
    assert script.carry_out("read 20..30") == [
        "to b: 2 behind 20",
        "read 9..30, at most 1000 bytes",
    ]
    assert script.carry_out("read 20..30") == ["lost 1 before 20", "deliver 1 20..30, end 30"]


def test_a_guest_is_told_of_a_loss_that_was_accepted():
    script, _ = play("own 0 30", "hear b fetch 1 9 old=1")
    assert script.carry_out("read 20..30") == ["to b: 1 behind 20"]


def test_a_guest_that_wants_something_older_now_has_lost_nothing():
    script, _ = play("own 0 30", "hear b fetch 1 20 old=1", "hear b fetch 2 9 old=1")
    assert script.carry_out("read 20..30") == ["read 9..30, at most 100 bytes"]
    assert script.carry_out("read 9..12")[0].startswith("to b: 2 fetched 9..12")


@pytest.mark.parametrize("reader", ["consume 1 9", "hear b fetch 1 9 old=1"])
def test_a_log_that_gives_something_else_is_not_asked_again_at_once(reader):
    script, _ = play("own 0 9", reader, "advanced 0 30")
    answer = script.carry_out("read 8..10 20..30")
    assert answer in ([], ["to b: 1 fetched nothing, end 30, below me, room 16"])


def test_what_was_read_for_batches_that_were_passed_over_is_left():
    script, _ = play("own 0 9", "consume 1 9", "advanced 0 30", "stop 1", "consume 2 20")
    assert script.relay.recent.end == 20
    assert script.carry_out("read 9..12") == ["read 20..30, at most 1048576 bytes"]


def test_no_answer_is_larger_than_we_would_ask_for():
    much = f"credit={1 << 60}"
    _, answer = play("relay fetch_bytes=25", "own 0 30", f"hear b fetch 1 0 {much} old=1")
    assert answer == ["read 0..30, at most 25 bytes"]
    script, _ = play("relay fetch_bytes=25", "own 0 0", "hear b attach 1", "consume 1 0")
    script.carry_out("advanced 0 4")
    script.carry_out("read 0..1 1..2 2..3 3..4")
    answer = script.carry_out(f"hear b fetch 2 0 {much}")
    assert answer == ["to b: 2 fetched 0..1 1..2, end 4, below me, room 15"]


def test_what_an_older_life_said_comes_too_late():
    script, _ = play("own 0 9", "hear b attach 900 offset=9", "hear b2 attach 5 offset=9")
    assert script.carry_out("hear b fetch 901 9") == []
    assert script.carry_out("hear b attach 902 offset=9") == []
    assert script.carry_out("hear b detach") == []
    assert script.carry_out("hear b2 fetch 6 9 wait=0") == [
        "to b2: 6 fetched nothing, end 9, below me, room 15"
    ]
    script, _ = play("own 0 9", "hear b2 fetch 5 9 old=1", "hear b fetch 900 9 old=1")
    assert script.carry_out("tick") == ["to b2: 5 fetched nothing, end 9, below me, room 16"]


@pytest.mark.parametrize("reader", [("own 0 0",), ATTACHED[1:]])
def test_credit_does_not_make_us_look_at_all_consumers(reader, monkeypatch):
    script, _ = play("consume 1 0", *reader)
    for number in range(2, 12):
        script.carry_out(f"consume {number} 0")
    script.carry_out("advanced 0 4")
    came = "read 0..4" if script.relay.is_owner else "hear o fetched 0..4 end=4"
    assert sum(line.startswith("deliver") for line in script.carry_out(came)) == 11
    looks = []
    wanted = Intake._wanted
    monkeypatch.setattr(Intake, "_wanted", lambda intake: looks.append(1) or wanted(intake))
    for number in range(1, 12):
        assert script.carry_out(f"credit {number} 10") == []
    assert not looks


def test_old_batches_for_a_consumer_that_stopped():
    script, _ = play(*ATTACHED, "hear o behind 5", "stop 1")
    assert script.carry_out("hear o fetched 0..3 end=5") == []
    script, _ = play(*ATTACHED, "hear o behind 5", "stop 1")
    assert script.carry_out("hear o behind 3") == []


def test_what_is_old_and_does_not_fit_waits_for_credit():
    script, _ = play("consume 1 0 credit=25", *ATTACHED[1:], "hear o behind 9")
    assert script.carry_out("hear o fetched 0..2 2..4 end=9")[0] == "deliver 1 0..2 2..4, end 9"
    assert script.carry_out("hear o fetched 4..6 end=9") == [], "10 bytes for a credit of 5"
    assert script.carry_out("credit 1 10") == ["to o: fetch old from 4, 15 bytes"]


def test_an_answer_without_use_is_not_asked_for_again_at_once():
    script, _ = play(*ATTACHED, "hear o behind 5")
    assert script.carry_out("hear o fetched end=5") == []
    assert "to o: fetch old from 0, 1000 bytes" in script.carry_out("tick")


def test_behind_that_is_not_ahead_of_us_is_not_believed():
    script, _ = play(*ATTACHED)
    assert script.carry_out("hear o behind 0") == []
    assert script.carry_out("tick") == ["to o: fetch from 0, 1048576 bytes"]
    assert script.carry_out("late o behind 50") == []
    assert script.relay.recent.end == 0


@pytest.mark.parametrize(
    "answer",
    ["fetched 0..4 end=4", "not-relaying", "not-attached", "redirect c", "behind 7", "move-up c"],
)
def test_what_a_stranger_says_means_nothing(answer):
    script, _ = play(*ATTACHED)
    assert script.carry_out(f"hear b {answer}") == []
    assert script.carry_out("state") == ["parent o, children none, window 0..0, end 0"]


def test_a_search_that_is_over_is_not_timed():
    script, _ = play(*ATTACHED)
    assert script.carry_out("time-over attach") == []


def test_one_that_is_attached_twice_keeps_its_parent():
    script, _ = play(*ATTACHED)
    assert script.carry_out("hear o attached ancestors=o") == []
    assert script.carry_out("route b o") == [], "nobody has asked"
    assert script.carry_out("no-route") == []


def test_an_owner_needs_no_route():
    script, _ = play("consume 1 0", "own 0 5")
    assert script.carry_out("route b o") == []
    assert script.relay.is_owner
    assert script.relay.is_leader


def test_ownership_ends_a_search():
    _, answer = play("consume 1 0", "route o", "own 0 0")
    assert answer == ["disarm attach"]


def test_batches_past_the_end_of_a_new_owner_are_forgotten():
    script, _ = play(*ATTACHED, "hear o fetched 0..9 end=9", "own 0 4")
    assert (script.relay.recent.start, script.relay.recent.end) == (4, 4)


def test_advanced_is_only_for_owners():
    script, answer = play(*ATTACHED, "advanced 0 50")
    assert answer == []
    assert script.relay.committed.end == 0


def test_a_parent_that_lies_and_is_all_we_know():
    script, _ = play(*ATTACHED)
    script.relay.lineage.owner = None
    assert script.carry_out("hear o fetched 3..5 end=9") == []
    assert script.relay.parent == contact("o")


@pytest.mark.parametrize("ancestors", [(), tuple(contact("b") for _ in range(DEPTH_MAX))])
def test_ancestors_that_cannot_be(ancestors):
    script, _ = play(*ATTACHED)
    script.relay.lineage.owner = None
    answer = messages.Fetched(script.requests["o"], PARTITION_ID, (), 0, ancestors, 0)
    said = script._step(events.Heard(contact("o"), answer))
    assert said == ["to o: detach", "disarm attach", "find the route"]
    assert script.relay.ancestors == ()


def test_an_attachment_without_ancestors_is_none():
    script, _ = play("consume 1 0", "route b o")
    answer = messages.Attached(script.requests["b"], PARTITION_ID, ())
    said = script._step(events.Heard(contact("b"), answer))
    assert said == ["arm attach", "to o: attach at 0 for 1"]


def test_the_lineage_does_not_grow_for_ever():
    script, _ = play(*ATTACHED)
    script.relay.lineage.ancestors = tuple(contact("b") for _ in range(DEPTH_MAX + 5))
    assert len(script.relay.lineage.of_a_child) == DEPTH_MAX


def test_the_route_is_asked_for_while_there_is_a_parent():
    """To catch up, when the owner has gone; the parent is kept."""
    script, _ = play("consume 1 0", "route c o", "hear c attached ancestors=c,o", "hear c behind 5")
    assert script.carry_out("died o") == ["find the route"]
    assert script.carry_out("route b o2") == ["to o2: fetch old from 0, 1000 bytes"]
    assert script.relay.parent == contact("c")


def test_we_die_for_others_as_owner():
    script, answer = play("own 0 0", "died me", "renewed 2")
    assert answer == []
    assert script.relay.lineage.owner.incarnation == 2


def test_somebody_asked_has_died():
    _, answer = play("consume 1 0", "route b o", "died b")
    assert answer == ["arm attach", "to o: attach at 0 for 1, not b"]


def test_collapse_needs_a_small_subtree():
    script, _ = play("relay children_max=2 collapse_us=1000000", *ATTACHED)
    script.carry_out("hear b attach 1 redirects=1")
    script.carry_out("hear o fetched end=0 room=5")
    assert "to b: moveup o" not in script.carry_out("tick 3")


def test_a_relay_with_consumers_stays_when_its_children_have_gone_up():
    script, _ = play("relay children_max=8 collapse_us=1000000", *ATTACHED)
    script.carry_out("hear b attach 1 redirects=1")
    script.carry_out("hear o fetched end=0 room=5")
    assert "to b: moveup o" in script.carry_out("tick")
    assert script.carry_out("state") == ["parent o, children none, window 0..0, end 0"]
    assert not script.relay.is_over


def test_one_that_never_found_a_parent_goes_as_well():
    script, _ = play("relay idle_us=1000000", "consume 1 0", "stop 1")
    assert script.carry_out("tick") == ["disarm attach", "disarm retry", "idle"]


def test_a_late_answer_with_what_comes_next_is_taken():
    """It was asked for, and asked for again since."""
    script, _ = play(*ATTACHED, "tick 2")
    assert script.carry_out("late o fetched 0..4 end=4")[0] == "deliver 1 0..4, end 4"
    assert script.relay.recent.end == 4


def test_a_node_with_too_much_in_memory_lets_the_oldest_go():
    script, _ = play(*ATTACHED)
    core = script.relay
    pieces = tuple(messages.Piece(at, at + 1, bytes(100)) for at in range(4))
    core.recent.add(pieces)
    assert core.step(events.Shrink(250)) == []
    assert (core.recent.start, core.recent.bytes) == (2, 200)
    core.step(events.Shrink(0))
    assert (core.recent.start, core.recent.bytes) == (3, 100)


def test_bytes_are_counted_by_who_gets_them():
    script, _ = play(*ATTACHED, "consume 2 0", "hear b attach 1 redirects=1")
    script.carry_out("hear b fetch 2 0 credit=1000")
    script.carry_out("hear o fetched 0..2 2..4 end=4")
    assert script.relay.consumers.given_bytes == 2 * 20
    (child,) = script.relay.children
    assert script.relay.sent_bytes == child.sent_bytes == 20
