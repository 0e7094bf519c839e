"""Ways onto the ring, and what can come in between."""

from __future__ import annotations

import pytest

from hocket.core.ring import events, messages
from hocket.core.ring.contact import seed
from hocket.core.ring.joining import (
    FAILURES_MAX,
    NEARER_MAX,
    PATIENCE,
    RECENT_US,
    REFUSALS_MAX,
    WAIT_US_MAX,
    wait_us,
)
from hocket.core.ring.messages import Beacon
from hocket.core.ring.pointers import Standing
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_stage import SECOND, Stage, tight
from tests.support.core.ring_talk import hear, sent

JOIN = events.Due(("join", 0))
SIX = "10,20,25,30,40,50"
BEACON = Beacon(1, 1, 6, "at 10")
NOW = 10_000 * SECOND


def joining(*, is_root: bool = False) -> Ring:
    ring = Ring(contact("25"), RingSettings(successors=3), is_root=is_root)
    ring.step(events.Join((seed("at 30"), seed("at 40"))), 0)
    return ring


def registered() -> tuple[Ring, int]:
    """One that asks 20 to let it in, and the number of its request."""
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    looking = sent(hear(ring, "10", registry(register.request)))
    [(to, join_at)] = sent(
        hear(ring, "20", messages.CloserAre(looking[0][1].request, (), contacts("30,40,50")))
    )
    assert to == contact("20")
    return ring, join_at.request


def registry(request: int, members: str = SIX) -> messages.RegistryIs:
    known = contacts(members)
    return messages.RegistryIs(request, BEACON, len(known), known)


def addresses(effects: list[events.Effect]) -> list[str]:
    return [to.address for to, _message in sent(effects)]


def test_waits_before_it_begins():
    ring = Ring(contact("25"), RingSettings())
    effects = ring.step(events.Join((seed("at 30"),), 4_000), 0)
    assert effects[0] == events.Arm(("join", 0), 4_000)


def test_seeds_are_asked_in_turn():
    ring = joining()
    asked = [addresses(ring.step(JOIN, 0)) for _ in range(4)]
    assert asked == [["at 30"], ["at 40"], ["at 30"], ["at 40"]]


def test_a_seed_that_is_not_on_the_ring_sends_us_to_the_next():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    gone = messages.Gone(register.request, contact("30"), Beacon())
    assert sent(hear(ring, "30", gone)) == []
    assert addresses(ring.step(JOIN, 0)) == ["at 40"]


def test_a_seed_that_knows_no_root_sends_us_to_the_next():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    assert hear(ring, "30", messages.AskRoot(99, BEACON, False)) == []
    hear(ring, "30", messages.AskRoot(register.request, Beacon(), True))
    assert addresses(ring.step(JOIN, 0)) == ["at 40"]


def test_a_silent_root_of_a_small_ring_is_asked_for_again():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    asked = hear(ring, "30", messages.AskRoot(register.request, BEACON, True))
    assert addresses(asked) == ["at 10"]
    assert addresses(ring.step(JOIN, 0)) == ["at 40"]


def test_what_others_say_meanwhile_means_nothing():
    ring, _request = registered()
    for message in (
        messages.Welcome(99, contacts("30"), Beacon()),
        messages.NotMine(99, contact("22")),
        messages.Busy(99),
        registry(99, "10,20,30,40,50,60"),
        messages.Gone(99, contact("33"), Beacon()),
    ):
        assert sent(hear(ring, "33", message)) == []
    assert ring.standing is Standing.JOINING
    assert ring.asking


def test_a_member_is_not_joining():
    ring, request = registered()
    hear(ring, "20", messages.Welcome(request, contacts("30,40,50"), Beacon()))
    assert ring.standing is Standing.MEMBER
    for message in (
        messages.Welcome(request, contacts("60"), Beacon()),
        messages.NotMine(request, contact("22")),
        messages.AskRoot(request, BEACON, False),
    ):
        assert hear(ring, "20", message) == []
    assert ring.step(JOIN, 0) == []
    assert ring.step(events.Due(("register", 0)), 0) == []
    assert ring.successors == list(contacts("30,40,50"))


def test_who_does_not_answer_is_looked_for_again():
    ring, _request = registered()
    assert sent(ring.step(JOIN, 0)) == []
    assert not ring.asking
    assert {type(message) for _to, message in sent(ring.step(JOIN, 0))} == {messages.GetCloser}


def test_who_is_gone_is_looked_for_again():
    ring, request = registered()
    effects = hear(ring, "20", messages.Gone(request, contact("20"), Beacon()))
    assert events.Died(contact("20")) in effects
    assert not ring.asking
    assert {type(message) for _to, message in sent(ring.step(JOIN, 0))} == {messages.GetCloser}


def test_after_some_refusals_it_asks_anew_who_is_there():
    ring, request = registered()
    for _ in range(REFUSALS_MAX - 1):
        hear(ring, "20", messages.Busy(request))
        assert not ring.asking
        [(_to, join_at)] = sent(ring.step(JOIN, 0))
        request = join_at.request
    hear(ring, "20", messages.Busy(request))
    assert {type(message) for _to, message in sent(ring.step(JOIN, 0))} == {messages.Register}


def test_only_who_was_asked_to_let_us_in_can_refuse():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    assert hear(ring, "30", messages.Busy(register.request)) == []
    hear(ring, "10", registry(register.request))
    assert hear(ring, "30", messages.Busy(0)) == [], "while the place is looked up"
    assert ring.standing is Standing.JOINING


def test_it_is_not_sent_on_for_ever():
    ring, request = registered()
    for number in range(NEARER_MAX):
        [(_to, join_at)] = sent(hear(ring, "20", messages.NotMine(request, contact("22"))))
        request = join_at.request
        assert number < NEARER_MAX
    assert sent(hear(ring, "20", messages.NotMine(request, contact("22")))) == []
    assert not ring.asking


def test_it_is_not_sent_to_itself():
    ring, request = registered()
    assert sent(hear(ring, "20", messages.NotMine(request, contact("25")))) == []


def test_a_ring_of_which_nobody_answers_is_asked_for_anew():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    looking = sent(hear(ring, "10", registry(register.request, "20,25,60,70,80")))
    for turn in range(FAILURES_MAX):
        assert ring.step(JOIN, 0) == []  # it looks already
        for to, message in looking:
            found = ring.step(events.Heard(to, 1, messages.CloserAre(message.request, (), ())), 0)
            while sent(found):
                [(to, message)] = sent(found)
                answer = messages.CloserAre(message.request, (), ())
                found = ring.step(events.Heard(to, 1, answer), 0)
        looking = sent(ring.step(JOIN, 0))
        kinds = {type(message) for _to, message in looking}
        assert kinds == {messages.GetCloser if turn < FAILURES_MAX - 1 else messages.Register}


def test_the_registry_makes_a_small_ring_while_we_look():
    ring, _request = registered()
    effects = hear(ring, "10", registry(0, "10,20,25,30"))
    assert events.Joined() in effects
    assert ring.standing is Standing.SMALL
    assert not ring.asking
    assert ring.successors == list(contacts("30,10,20"))


def test_one_that_was_on_the_small_ring_before_it_knew():
    """The answer that made us one of four was lost; now there are six, and we are in the lists."""
    ring = joining()
    ring.step(JOIN, 0)
    founders = contacts("10,20,25,30")
    grown = messages.RegistryIs(0, BEACON, 6, contacts(SIX), founders)
    effects = hear(ring, "10", grown)
    assert events.Joined() in effects
    assert ring.standing is Standing.MEMBER
    assert ring.successors == list(contacts("30,10,20"))
    assert ring.predecessor == contact("20")


def test_a_lookup_that_ends_after_all_is_of_no_use():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    looking = sent(hear(ring, "10", registry(register.request)))
    hear(ring, "10", registry(0, "10,20,25,30"))
    answer = messages.CloserAre(looking[0][1].request, (), contacts("30,40,50"))
    assert sent(hear(ring, "20", answer)) == []
    assert ring.standing is Standing.SMALL


def test_the_root_itself_is_a_guide():
    """All others whom it names may be joining, too."""
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    looking = sent(hear(ring, "90", registry(register.request)))
    asked = []
    while looking:
        [(to, message), *looking] = looking
        asked.append(to)
        answer = messages.CloserAre(message.request, (), ())
        looking += sent(ring.step(events.Heard(to, 1, answer), 0))
    assert contact("90") in asked


def test_a_push_that_names_us_is_as_good_as_an_answer():
    ring = joining()
    ring.step(JOIN, 0)
    said = sent(hear(ring, "10", registry(0)))
    assert {type(message) for _to, message in said} == {messages.GetCloser}
    assert hear(ring, "10", registry(0)) == []


def test_a_stall_gives_everybody_time_again():
    ring, _request = registered()
    effects = ring.step(events.Stalled(), 0)
    assert events.Arm(("join", 0), ring.settings.query_us) in effects


def test_who_is_alone_is_both_neighbours():
    ring, request = registered()
    hear(ring, "20", messages.Welcome(request, (), Beacon()))
    assert ring.successors == [contact("20")]
    assert ring.predecessor == contact("20")


def joined_without_the_root() -> Ring:
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    hear(ring, "30", messages.AskRoot(register.request, BEACON, False))
    [(_to, get_closer)] = sent(ring.step(JOIN, 0))
    answer = messages.CloserAre(get_closer.request, (), contacts("40,50,60"))
    [(_to, join_at)] = sent(hear(ring, "30", answer))
    hear(ring, "30", messages.Welcome(join_at.request, contacts("40,50"), Beacon()))
    return ring


def test_one_that_becomes_the_root_enters_itself():
    ring = joined_without_the_root()
    effects = ring.step(events.Lead(7, 1, contacts("10,20")), 0)
    assert ring.root is not None
    assert events.Arm(("beacon", 0), 0) in effects, "all hear at once where the root is"
    ring.step(events.RootIs(7, "at 25"), 0)
    [enrol, _again] = ring.step(events.Due(("register", 0)), 0)
    assert isinstance(enrol, events.Enrol)
    assert (enrol.who, enrol.sender) == (contact("25"), None)
    ring.step(events.Cease(), 0)
    assert ring.root is None


def test_a_root_that_is_not_on_the_ring_sends_no_beacon():
    ring = joining()
    effects = ring.step(events.Lead(7, 1, contacts("10,20")), 0)
    assert events.Arm(("beacon", 0), 0) not in effects
    [enrol, _again] = ring.step(JOIN, 0)
    assert isinstance(enrol, events.Enrol)


def test_who_hears_where_the_root_is_asks_it_and_the_seeds_in_turn():
    ring = joining()
    ring.step(events.RootIs(3, "at 99"), 0)
    ring.step(events.RootIs(2, "at 98"), 0)  # of an older one
    assert ring.root_address == "at 99"
    asked = [addresses(ring.step(JOIN, 0))[0] for _ in range(6)]
    assert asked == ["at 99", "at 30", "at 99", "at 40", "at 99", "at 30"]


def test_one_that_joined_without_the_root_registers_until_it_is_heard():
    ring = joining()
    [(_to, register)] = sent(ring.step(JOIN, 0))
    hear(ring, "30", messages.AskRoot(register.request, BEACON, False))
    [(_to, get_closer)] = sent(ring.step(JOIN, 0))
    answer = messages.CloserAre(get_closer.request, (), contacts("40,50,60"))
    [(_to, join_at)] = sent(hear(ring, "30", answer))
    effects = hear(ring, "30", messages.Welcome(join_at.request, contacts("40,50"), Beacon()))
    assert events.Arm(("register", 0), ring.settings.query_us_max) in effects
    late = events.Due(("register", 0))
    assert sent(ring.step(late, 0)) == []  # nobody has said where the root is
    hear(ring, "30", messages.BeaconIs(Beacon(1, 2, 6, "at 10"), 30))
    [(to, again)] = sent(ring.step(late, 0))
    assert to.address == "at 10"
    hear(ring, "10", registry(again.request))
    assert ring.step(late, 0) == []


def test_leaving_on_the_way_in():
    ring, _request = registered()
    effects = ring.step(events.Leave(), 0)
    assert events.Left() in effects  # no beacon has said where the root is
    assert ring.standing is Standing.OUTSIDE


def test_the_root_enrols_itself():
    ring = joining(is_root=True)
    [enrol, _timer] = ring.step(JOIN, 0)
    assert enrol == events.Enrol(contact("25"), None, 1)
    assert ring.step(JOIN, 0)[0] == events.Enrol(contact("25"), None, 2)
    changed = events.RegistryChanged(7, contacts(SIX), None, 2)
    said = sent(ring.step(changed, 0))
    assert {type(message) for _to, message in said} == {messages.GetCloser}


def test_another_that_registers_at_a_root_that_waits():
    """That the registry changed does not mean that we are in it."""
    ring = Ring(contact("25"), RingSettings(successors=3), is_root=True)
    ring.step(events.RegistryChanged(1, contacts("20")), 0)
    ring.step(events.Join((seed("at 20"),), 2 * SECOND), 0)
    hear(ring, "30", messages.Register(8, contact("30")))
    said = sent(ring.step(events.RegistryChanged(2, contacts("20,30"), contact("30"), 8), 0))
    assert {type(message) for _to, message in said} == {messages.RegistryIs}
    [enrol, _timer] = ring.step(JOIN, 2 * SECOND)
    assert enrol == events.Enrol(contact("25"), None, 1)
    ring.step(events.RegistryChanged(3, contacts("20,25,30"), None, 1), 2 * SECOND)
    assert ring.standing is Standing.SMALL


def look_in_vain(ring: Ring, now_us: int, *outside: str) -> list[events.Effect]:
    """The root looks for its place once. Those named say that they are outside; others nothing."""
    queue = ring.step(JOIN, now_us)
    found: list[events.Effect] = []
    while queue:
        [effect, *queue] = queue
        if isinstance(effect, events.Send) and effect.to.node in outside:
            answer = messages.CloserAre(effect.message.request, (), ())
            queue += ring.step(events.Heard(effect.to, 1, answer), now_us)
        elif isinstance(effect, events.Enrol):
            changed = events.RegistryChanged(7, contacts(SIX), None, effect.request)
            queue += ring.step(changed, now_us)
        elif isinstance(effect, events.Arm) and effect.timer[0] == "probe":
            queue += ring.step(events.Due(effect.timer), now_us)
        else:
            found.append(effect)
    return found


def test_the_root_begins_anew_when_most_are_outside():
    ring = joining(is_root=True)
    for _ in range(FAILURES_MAX):
        assert ring.standing is Standing.JOINING
        look_in_vain(ring, SECOND, "n10", "n20", "n30")
    assert ring.standing is Standing.MEMBER
    assert ring.successors == []


def test_the_root_does_not_take_silence_for_it_soon():
    ring = joining(is_root=True)
    for _ in range(3 * FAILURES_MAX):
        look_in_vain(ring, SECOND, "n10", "n20")
        assert ring.standing is Standing.JOINING
    late_us = PATIENCE * ring.settings.beacon_stale_us
    for _ in range(FAILURES_MAX + 1):
        look_in_vain(ring, late_us)
    assert ring.standing is Standing.MEMBER


def test_the_newer_life_of_a_node_in_our_list_waits():
    """It is in the middle of the list, where it stays until its predecessor has dropped it."""
    ring = Ring(contact("20"), RingSettings(successors=3))
    ring.step(events.Begin(contacts("10,20,30,40,50,60"), "at 10"), 0)
    newer = contact("40.2")._replace(position=25)
    effects = ring.step(events.Heard(newer, 1, messages.JoinAt(4, newer)), 0)
    assert sent(effects) == [(newer, messages.Busy(4))]
    assert events.Died(contact("40")) in effects


@pytest.mark.parametrize("count", [2, 9])
def test_many_come_at_once(count):
    stage = Stage(tight(3), count)
    stage.begin(count)
    for number in range(20, 30):
        stage.join(f"n{number}", ["n1", "n0"])
    assert stage.run(30 * SECOND, stage.is_ideal)
    assert len(stage.living()) == count + 10


def test_one_whose_place_is_taken_does_not_ask_all_the_time():
    ring, request = registered()
    taken = contact("25")._replace(node="another")
    effects = ring.step(events.Heard(contact("20"), 1, messages.NotMine(request, taken)), 0)
    assert sent(effects) == []
    [arm] = [each for each in effects if isinstance(each, events.Arm)]
    assert (arm.timer, arm.after_us) == (("join", 0), ring.settings.stabilize_us)
    assert not ring.asking


def test_who_keeps_coming_back_waits_though_it_stood_still():
    ring = Ring(contact("25"), RingSettings())
    ring.step(events.Join((seed("at 30"),), 60 * SECOND), 0)
    assert ring.step(events.Stalled(), 0) == []
    ring.step(JOIN, 60 * SECOND)
    assert events.Arm(("join", 0), ring.settings.query_us) in ring.step(
        events.Stalled(), 60 * SECOND
    )


def test_news_of_others_does_not_register_one_that_waits():
    root = Ring(contact("10"), RingSettings(successors=3), is_root=True)
    root.step(events.RegistryChanged(0, ()), 0)
    root.step(events.Join((contact("20"),), 5_000_000), 0)
    root.step(events.RegistryChanged(1, contacts("20,30"), contact("30"), 1), 1)
    assert root.standing is Standing.JOINING
    assert root.joining is not None
    assert not root.joining.is_registered


def test_who_is_let_in_among_the_dead_alone_asks_the_one_that_let_it_in():
    """All whom the welcome names have told us meanwhile that they leave."""
    ring, request = registered()
    for word in ("30", "40", "50"):
        hear(ring, word, messages.Leaving(contact(word), None, ()))
    effects = hear(ring, "20", messages.Welcome(request, contacts("30,40,50"), BEACON))
    assert ring.standing is Standing.MEMBER
    assert ring.successors == []
    assert [(to, type(message)) for to, message in sent(effects)] == [
        (contact("20"), messages.GetState)
    ]


# --- a node that keeps coming back --------------------------------------------


def test_the_first_join_and_one_return_wait_not_at_all():
    assert wait_us([], NOW) == 0
    assert wait_us([NOW - 1], NOW) == 0


def test_each_further_one_waits_twice_as_long_up_to_a_bound():
    joins: list[int] = []
    waits = []
    for _ in range(12):
        joins.append(NOW)
        waits.append(wait_us(joins, NOW) // SECOND)
    assert waits == [0, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]
    assert wait_us([NOW] * 10_000, NOW) == WAIT_US_MAX


def test_what_is_long_ago_does_not_count():
    assert wait_us([NOW - RECENT_US, NOW - RECENT_US + 1, NOW - 1], NOW) == 2 * SECOND


def test_a_clock_that_was_set_back_does_not_hold_a_node_off_for_ever():
    assert wait_us([NOW + RECENT_US] * 9, NOW) == 0
    assert wait_us([NOW + 1, NOW + 1], NOW) == 2 * SECOND
