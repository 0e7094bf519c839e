"""Whole rings of real cores, on a stage without a network: they become ideal, and stay so."""

from __future__ import annotations

import pytest

from hocket.core.ring import events, messages
from hocket.core.ring.circle import SIZE
from hocket.core.ring.contact import seed
from hocket.core.ring.lookups import NAMED_MAX
from hocket.core.ring.messages import Beacon
from hocket.core.ring.pointers import Standing
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from hocket.core.ring.suspicion import CONVICTED_MAX, OVER_MAX
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_stage import SECOND, Stage, tight
from tests.support.core.ring_talk import hear, member, sent


@pytest.mark.parametrize("number", range(3))
def test_twelve_nodes_through_joins_and_crashes_become_ideal(number):
    stage = Stage(tight(3), number)
    stage.begin(1)
    for each in range(1, 12):
        stage.join(f"n{each}", ["n0", f"n{each - 1}"])
        stage.run(stage.chance.randrange(2 * SECOND))
    assert stage.run(30 * SECOND, stage.is_ideal)
    assert stage.standings() == {Standing.MEMBER: 12}
    for each in stage.chance.sample(range(1, 12), 5):
        stage.crash(f"n{each}")
        stage.run(3 * SECOND)
    assert stage.run(30 * SECOND, stage.is_ideal)
    gone = [name for name, player in stage.players.items() if not player.is_up]
    for name in gone[:3]:
        stage.restart(name)
    assert stage.run(30 * SECOND, stage.is_ideal)
    assert len(stage.living()) == 10


def test_an_ideal_ring_stays_as_it_is():
    stage = Stage(tight(3), 1)
    stage.begin(9)
    changes = []
    for player in stage.players.values():
        player.step(events.Find(1, 7))
    stage.run(20 * SECOND, lambda: changes.append(stage.is_ideal()) or False)
    assert len(changes) > 1_000
    assert all(changes)
    assert not any(player.died for player in stage.players.values())


def test_messages_that_are_lost_do_no_harm():
    stage = Stage(tight(3), 4, loss=0.1)
    stage.begin(2)
    for each in range(2, 10):
        stage.join(f"n{each}")
        stage.run(SECOND)
    stage.run(20 * SECOND)
    stage.loss = 0.0
    assert stage.run(30 * SECOND, stage.is_ideal)


def test_lookups_find_the_successor_of_a_key():
    stage = Stage(tight(3), 5)
    stage.begin(14)
    stage.run(5 * SECOND)
    cores = stage.living()
    for _ in range(40):
        key = stage.chance.randrange(SIZE)
        name = stage.chance.choice(cores).me.node
        found = stage.find(name, key)
        assert isinstance(found, events.Located)
        owner = next((core.me for core in cores if core.me.position >= key), cores[0].me)
        assert found.owners[0] == owner


def test_lookups_while_a_third_is_dead():
    stage = Stage(tight(4), 6)
    stage.begin(15)
    stage.run(5 * SECOND)
    for name in ("n2", "n5", "n8", "n11", "n14"):
        stage.crash(name)
    assert stage.run(30 * SECOND, stage.is_ideal)
    cores = stage.living()
    for core in cores:
        found = stage.find("n1", core.me.position)
        assert isinstance(found, events.Located)
        assert found.owners[0] == core.me


def test_a_small_ring_grows_and_shrinks():
    stage = Stage(tight(3), 7)
    stage.begin(1)
    assert stage.standings() == {Standing.SMALL: 1}
    for each in range(1, 7):
        stage.join(f"n{each}")
        assert stage.run(10 * SECOND, stage.is_ideal)
        expected = Standing.SMALL if each < 4 else Standing.MEMBER
        assert stage.standings() == {expected: each + 1}
    for each in range(6, 0, -1):
        stage.players[f"n{each}"].step(events.Leave())
        stage.run(5 * SECOND)
        assert stage.is_ideal()
        assert not stage.players.pop(f"n{each}").is_up
        expected = Standing.SMALL if each < 5 else Standing.MEMBER
        assert stage.standings() == {expected: each}


def test_a_small_ring_that_missed_how_it_grew():
    """n1 hears nothing while two come; then it begins with those who were there before."""
    stage = Stage(tight(3), 8)
    stage.begin(3)
    stage.run(SECOND)
    stage.is_cut = lambda one, other: "n1" in (one, other)
    stage.join("n3")
    stage.run(300_000)
    stage.join("n4")
    stage.run(100_000)
    assert stage.players["n0"].core.standing is Standing.MEMBER
    assert stage.players["n1"].core.standing is Standing.SMALL
    stage.is_cut = lambda _one, _other: False
    assert stage.run(30 * SECOND, stage.is_ideal)
    assert stage.standings() == {Standing.MEMBER: 5}
    assert stage.players["n1"].incarnation == 1


def test_a_dead_node_of_a_small_ring_owns_nothing():
    stage = Stage(tight(3), 9)
    stage.begin(4)
    stage.crash("n2")
    dead = stage.players["n2"].core.me
    stage.run(20 * SECOND)
    for name in ("n0", "n1", "n3"):
        assert dead in stage.players[name].died
        found = stage.find(name, dead.position)
        assert isinstance(found, events.Located)
        assert dead not in found.owners
    stage.restart("n2")
    assert stage.run(10 * SECOND, stage.is_ideal)
    found = stage.find("n1", dead.position)
    assert isinstance(found, events.Located)
    assert found.owners[0] == stage.players["n2"].core.me


def test_the_root_comes_back():
    stage = Stage(tight(3), 10)
    stage.begin(8)
    stage.run(3 * SECOND)
    stage.crash("n0")
    stage.run(20 * SECOND)
    stage.restart("n0", ["n3", "n4"])
    assert stage.run(30 * SECOND, stage.is_ideal)
    stage.run(5 * SECOND)
    assert {core.beacon.epoch for core in stage.living()} == {2}


def test_all_nodes_start_again_at_once():
    """Nobody is on the ring, so the root begins it anew, and the others join there."""
    stage = Stage(tight(3), 11)
    stage.begin(8)
    stage.run(3 * SECOND)
    for name in stage.players:
        stage.crash(name)
    stage.run(SECOND)
    for name in stage.players:
        stage.restart(name, ["n0", "n1", "n2"])
    assert stage.run(60 * SECOND, stage.is_ideal)
    assert stage.standings() == {Standing.MEMBER: 8}


def test_finds_nothing_before_it_has_joined():
    ring = Ring(contact("20"), RingSettings())
    assert ring.step(events.Find(3, 7), 0) == [events.NotLocated(3, 7)]


def test_a_life_that_has_not_begun_says_nothing_about_itself():
    ring = Ring(contact("20"), RingSettings())
    assert hear(ring, "10", messages.Ping(1)) == []


def test_a_lookup_that_fails_is_said_to_have():
    ring = member()
    effects = ring.step(events.Find(3, 45), 0)
    assert sent(effects)
    lookup = next(e.timer for e in effects if isinstance(e, events.Arm) and e.timer[0] == "lookup")
    assert events.NotLocated(3, 45) in ring.step(events.Due(lookup), 10)


def test_who_is_silent_in_a_lookup_is_suspected():
    ring = member()
    effects = ring.step(events.Find(3, 55), 0)
    probe = next(e.timer for e in effects if isinstance(e, events.Arm) and e.timer[0] == "probe")
    silent = sent(effects)[0][0]
    pinged = [
        to
        for to, message in sent(ring.step(events.Due(probe), 500))
        if isinstance(message, messages.Ping)
    ]
    assert pinged == [silent]


def test_owners_who_are_given_up_come_not_first():
    ring = member()
    hear(ring, "40", messages.Leaving(contact("40"), None, ()))
    located = ring.step(events.Find(1, 25), 0)
    assert located == [events.Located(1, 25, contacts("30,50"), ())]
    hear(ring, "50", messages.Leaving(contact("50"), None, ()))
    closer = ring.key_owners.closer(1, 25, 4)
    assert closer.owners == contacts("30")


def test_a_lookup_by_fingers_is_led_by_fingers_and_successors_alone():
    ring = member()
    ring.fingers.put(7, contact("200"))
    ring.node.routes.heard(contact("220"))
    assert ring.key_owners.closer(1, 250, 4).preceding[0] == contact("220")
    by_fingers = ring.key_owners.closer(1, 250, 9, by_fingers=True)
    assert by_fingers.preceding == contacts("200,60,50,40,30")
    assert ring.key_owners.closer(1, 250, 2, by_fingers=True).preceding == contacts("200,60")


def test_our_own_position_is_ours():
    ring = member()
    assert ring.key_owners.closer(1, 20, 4).owners == contacts("20,30,40,50")


def test_a_node_that_joins_leads_nowhere():
    ring = Ring(contact("20"), RingSettings())
    ring.step(events.Join((seed("at 10"),)), 0)
    assert sent(hear(ring, "30", messages.GetCloser(4, 25, 4))) == [
        (contact("30"), messages.CloserAre(4, (), ()))
    ]
    assert sent(hear(ring, "30", messages.GetState(5))) == [(contact("30"), messages.Busy(5))]
    assert sent(hear(ring, "30", messages.JoinAt(6, contact("30")))) == [
        (contact("30"), messages.Busy(6))
    ]
    assert hear(ring, "30", messages.BeaconIs(Beacon(1, 1, 1, "at 10"), 50)) == []
    assert hear(ring, "30", messages.Notify(contact("30"))) == []


def test_what_we_seem_to_say_to_ourselves_is_dropped():
    ring = member()
    assert hear(ring, "20", messages.Ping(1)) == []


def test_a_link_to_a_stranger_may_break():
    ring = member()
    assert ring.step(events.LinkLost(contact("33")), 0) == []


def test_timers_of_a_life_that_is_over_do_nothing():
    ring = member("10,20,30")
    grown = messages.RegistryIs(0, Beacon(1, 2, 2), 5, contacts("10,30,40,50,60"), ())
    assert any(isinstance(each, events.BeginAgain) for each in hear(ring, "10", grown))
    assert ring.standing is Standing.OUTSIDE
    for timer in ("stabilize", "finger", "beacon", "join", "register", "leave", "begin again"):
        assert ring.step(events.Due((timer, 0)), 5) == []
    assert ring.step(events.Due(("query", 77)), 5) == []
    assert ring.step(events.Leave(), 5) == []
    assert hear(ring, "10", messages.Notify(contact("10"))) == []
    assert sent(hear(ring, "10", messages.Ping(5))) == [
        (contact("10"), messages.Gone(5, contact("20"), Beacon(1, 2, 2)))
    ]


def test_a_small_ring_that_we_are_struck_from_is_joined_again():
    ring = member("10,20,30")
    beacon = Beacon(1, 1, 9, "at 10")
    effects = hear(ring, "10", messages.RegistryIs(0, beacon, 2, contacts("10,30"), ()))
    assert effects[0] == events.BeginAgain((seed("at 10"), seed("at 30")))


def test_a_large_ring_told_of_a_small_one_without_us_stays():
    ring = member()
    beacon = Beacon(1, 1, 9, "at 10")
    assert hear(ring, "10", messages.RegistryIs(0, beacon, 2, contacts("10,30"), ())) == []
    assert ring.standing is Standing.MEMBER


@pytest.mark.parametrize(("successors", "asks"), [("40,50,60", False), ("40,50,20", True)])
def test_a_ring_that_may_have_become_small_asks(successors, asks):
    """The news was lost. Our successor's list reaches us, so the registry may be the ring."""
    ring = member()
    hear(ring, "10", messages.Leaving(contact("10"), None, ()))  # and nobody notifies us
    ring.step(events.Due(("stabilize", 0)), 0)
    beacon = Beacon(1, 4, 6, "at 10")
    said = sent(hear(ring, "30", messages.StateIs(1, None, contacts(successors), beacon)))
    assert (messages.GetRegistry in [type(message) for _to, message in said]) is asks


def test_a_node_alone_takes_the_first_that_comes():
    """The root began anew. Its predecessor is its successor, when it has answered."""
    ring = Ring(contact("20"), RingSettings(successors=3), is_root=True)
    ring.step(events.RegistryChanged(3, contacts("10,20,30,40,50")), 0)
    ring.step(events.Join((seed("at 30"),)), 0)
    ring.pointers.found(0)
    assert ring.standing is Standing.MEMBER
    ring.step(events.Due(("beacon", 0)), 0)
    assert ring.key_owners.closer(1, 99, 4).owners == contacts("20")
    assert ring.step(events.Due(("stabilize", 0)), 0)[1:] == []
    said = sent(hear(ring, "30", messages.JoinAt(7, contact("30"))))
    assert said[0][1] == messages.Welcome(7, (), ring.beacon)
    said = sent(hear(ring, "30", messages.Notify(contact("30"))))
    assert said == [(contact("30"), messages.GetState(1))]
    hear(ring, "30", messages.Busy(1))
    assert sent(ring.step(events.Due(("stabilize", 0)), 0)) == [
        (contact("30"), messages.GetState(2))
    ]
    hear(ring, "30", messages.StateIs(2, contact("20"), contacts("20"), Beacon()))
    assert ring.successors == [contact("30")]


def test_a_node_alone_has_no_fingers_and_nobody_to_ask_about_itself():
    ring = Ring(contact("20"), RingSettings(successors=3), is_root=True)
    ring.pointers.found(0)
    assert sent(ring.step(events.Due(("finger", 0)), 0)) == []


def test_an_older_life_is_not_listened_to():
    """Nobody said that it is over, but somebody has named a newer one."""
    ring = member()
    ring.node.routes.told(contact("45.3"))
    assert hear(ring, "45.2", messages.Ping(1)) == []
    assert sent(hear(ring, "45.3", messages.Ping(1)))


def test_a_former_life_of_ours_is_no_successor():
    ring = Ring(contact("20.2"), RingSettings(successors=3))
    ring.step(events.Begin(contacts("10,20.2,30,40,50,60"), "at 10"), 0)
    old = contact("20")._replace(position=35)
    ring.step(events.Due(("stabilize", 0)), 0)
    state = messages.StateIs(1, None, (old, contact("40"), contact("50")), Beacon())
    ring.step(events.Heard(contact("30"), 2, state), 0)
    assert ring.successors == list(contacts("30,40,50"))


def test_a_list_ends_before_it_comes_round_to_us():
    ring = member()
    ring.step(events.Due(("stabilize", 0)), 0)
    hear(ring, "30", messages.StateIs(1, contact("20"), contacts("10,20,30"), Beacon()))
    assert ring.successors == list(contacts("30,10"))


def test_what_is_remembered_of_the_dead_is_bounded():
    ring = member()
    for number in range(1_000, 1_000 + OVER_MAX + 10):
        hear(ring, str(number), messages.Leaving(contact(str(number)), None, ()))
    assert len(ring.pointers.deaths.convicted) == CONVICTED_MAX
    assert not ring.pointers.deaths.is_over(contact("1000"))
    assert ring.pointers.deaths.is_over(contact(str(1_000 + OVER_MAX)))


def test_two_leave_when_told_twice():
    ring = member("10,20,30")
    assert ring.step(events.Leave(), 0)
    assert ring.step(events.Leave(), 0) == []


def test_a_node_leaves_though_the_root_is_silent():
    ring = member()
    ring.step(events.Leave(), 0)
    hear(ring, "10", messages.RegistryIs(55, Beacon(), 9, contacts("10"), ()))
    assert ring.standing is Standing.LEAVING
    ring.step(events.Due(("leave", 0)), 0)
    ring.step(events.Due(("leave", 0)), 0)
    effects = ring.step(events.Due(("leave", 0)), 0)
    assert events.Left() in effects
    assert ring.standing is Standing.OUTSIDE
    assert ring.step(events.Due(("leave", 0)), 0) == []


def test_a_small_ring_may_grow_while_one_of_it_leaves():
    ring = member("10,20,30,40")
    ring.step(events.Leave(), 0)
    grown = messages.RegistryIs(
        0, Beacon(1, 1, 5, "at 10"), 5, contacts("10,20,30,40,50"), contacts("10,20,30,40")
    )
    hear(ring, "10", grown)
    assert ring.standing is Standing.MEMBER
    ring.step(events.Due(("leave", 0)), 0)
    struck = messages.RegistryIs(0, Beacon(1, 1, 6, "at 10"), 4, contacts("10,30,40,50"), ())
    assert events.Left() in hear(ring, "10", struck)


def test_the_root_leaves_too():
    stage = Stage(tight(3), 12)
    stage.begin(6)
    stage.run(SECOND)
    stage.players["n0"].step(events.Leave())
    assert stage.run(20 * SECOND, stage.is_ideal)
    assert "n0" not in stage.enrolled
    assert not stage.players["n0"].is_up


def test_a_member_that_stood_still_goes_on_with_the_next_head():
    ring = member()
    ring.step(events.Due(("stabilize", 0)), 0)
    hear(ring, "30", messages.StateIs(1, contact("25"), contacts("40,50,60"), Beacon()))
    hear(ring, "30", messages.Leaving(contact("30"), None, ()))
    said = sent(ring.step(events.Stalled(), 0))
    assert said == [(contact("40"), messages.GetState(3))]


def test_a_stranger_is_met_only_by_members():
    ring = member("10,20,30")
    assert ring.pointers.meet(contact("25"), 0) == []


def test_an_answer_about_a_place_that_is_taken_meanwhile():
    """25 was asked, but 22 came nearer by our own doing; then 25 is not adopted."""
    ring = member()
    ring.step(events.Due(("stabilize", 0)), 0)
    hear(ring, "30", messages.StateIs(1, contact("25"), contacts("40,50,60"), Beacon()))
    ring.pointers.successors = list(contacts("22,30,40"))
    for each in ring.successors:
        ring.node.routes.pin(each)
    said = sent(hear(ring, "25", messages.StateIs(2, None, contacts("30,40,50"), Beacon())))
    assert said == [(contact("22"), messages.Notify(contact("20")))]
    assert ring.successors[0] == contact("22")


def test_a_lookup_heard_by_a_small_ring_with_nobody_else():
    ring = member("20")
    assert ring.step(events.Due(("stabilize", 0)), 0)[1:] == []
    assert ring.key_owners.closer(1, 77, 4).owners == contacts("20")


def test_a_large_ring_begins_without_knowing_all():
    members = tuple(contact(str(number * 10)) for number in range(1, 100))
    ring = Ring(contact("20"), RingSettings(successors=3))
    ring.step(events.Begin(members, "at 10"), 0)
    assert len(ring.node.routes) < 20


@pytest.mark.parametrize(
    "message",
    [
        messages.Leaving(contact("30"), None, ()),
        messages.Leaving(contact("30.7"), None, ()),
        messages.Notify(contact("15")),
        messages.JoinAt(1, contact("25")),
        messages.Register(1, contact("25")),
        messages.Deregister(1, contact("30")),
    ],
)
def test_nobody_speaks_in_the_name_of_another(message):
    ring = member()
    assert hear(ring, "40", message) == []
    assert ring.successors == list(contacts("30,40,50"))
    assert ring.predecessor == contact("10")
    assert not ring.pointers.deaths.is_over(contact("30"))


def test_an_answer_names_few_however_many_are_asked_for():
    ring = member("10,20,30,40,50,60,70,80")
    key = contact("10").position
    [(_to, answer)] = sent(hear(ring, "30", messages.GetCloser(1, key, 1_000_000)))
    assert len(answer.preceding) == NAMED_MAX


@pytest.mark.parametrize("predecessor", ["10", "none"])
def test_one_that_missed_how_its_ring_became_small_asks_for_the_registry(predecessor):
    """The others do not stabilize any more, so the predecessor stays what it was, dead or none."""
    ring = member("10,20,30,40,50")
    if predecessor == "none":
        hear(ring, "10", messages.Leaving(contact("10"), None, ()))
    ring.step(events.Due(("stabilize", 0)), 0)
    news = Beacon(1, 9, 6, "at 60")
    answer = messages.StateIs(1, contact("20"), contacts("40,50,20"), news)
    said = sent(hear(ring, "30", answer))
    assert messages.GetRegistry in [type(message) for _to, message in said]
