"""The beacon: how a ring that was cut off notices, and comes back."""

from __future__ import annotations

from hocket.core.ring import events, messages
from hocket.core.ring.beacons import Beacons
from hocket.core.ring.contact import seed
from hocket.core.ring.messages import Beacon, Pong
from hocket.core.ring.ring import Ring, Standing
from hocket.core.ring.root import Root
from hocket.core.ring.settings import RingSettings
from tests.core.ring.test_ring import hear, member, sent
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_stage import SECOND, Stage, tight


def test_fresh_is_what_came_by_our_own_ring_lately():
    beacons = Beacons(stale_us=30)
    assert beacons.take(Beacon(1, 5), 100)
    assert not beacons.take(Beacon(1, 5), 120)
    assert not beacons.take(Beacon(1, 4), 120)
    assert not beacons.is_stale(129)
    assert beacons.is_stale(130)
    assert beacons.take(Beacon(2, 0), 130)
    assert not beacons.is_stale(130)


def test_a_cut_and_its_healing():
    for number in range(3):
        stage = Stage(tight(3), number)
        stage.begin(12)
        stage.run(5 * SECOND)
        stage.is_cut = lambda one, other: (int(one[1:]) < 5) != (int(other[1:]) < 5)
        stage.run(25 * SECOND)
        assert not stage.is_ideal()
        stage.is_cut = lambda _one, _other: False
        assert stage.run(60 * SECOND, stage.is_ideal)
        # It stays one ring, though some hold old acquaintances for a while.
        stage.run(10 * SECOND)
        assert stage.is_ideal()


def test_two_rings_side_by_side_become_one():
    """Made by hand, each sound in itself: nothing in stabilization would ever join them."""
    stage = Stage(tight(3), 3)
    stage.begin(6)
    others = [stage.add(f"n{number}") for number in range(6, 12)]
    members = tuple(sorted(player.core.me for player in others))
    for player in others:
        player.step(events.Begin(members, "at n0"))
        stage.enrolled[player.name] = player.core.me
    stage.run(3 * SECOND)
    assert not stage.is_ideal()
    assert stage.run(60 * SECOND, stage.is_ideal)
    # They have met, each its neighbour over there; nobody had to begin again.
    assert all(player.incarnation == 1 for player in stage.players.values())


def stale(members: str = "10,20,30,40,50,60") -> Ring:
    ring = member(members)
    ring.step(events.Due(("beacon", 0)), 31 * SECOND)
    return ring


def test_one_lookup_there_at_a_time_and_one_decision():
    ring = stale()
    ring.step(events.Due(("beacon", 0)), 31 * SECOND)
    first = sent(hear(ring, "60", Pong(5, True, Beacon(1, 9))))
    assert len(first) == 1
    assert hear(ring, "60", Pong(6, True, Beacon(1, 9)))[1:] == []
    hear(ring, "60", messages.CloserAre(first[0][1].request, (), contacts("30")))
    ring.step(events.Due(("beacon", 0)), 31 * SECOND)
    again = sent(hear(ring, "60", Pong(10, True, Beacon(1, 9))))
    effects = hear(ring, "60", messages.CloserAre(again[0][1].request, (), contacts("30")))
    assert not any(isinstance(effect, events.Arm) for effect in effects)


def test_a_lookup_there_that_fails_decides_nothing():
    ring = stale()
    ring.step(events.Due(("beacon", 0)), 31 * SECOND)
    asked = sent(hear(ring, "60", Pong(5, True, Beacon(1, 9))))
    effects = hear(ring, "60", messages.CloserAre(asked[0][1].request, (), ()))
    assert not any(isinstance(effect, events.Arm) for effect in effects)
    assert ring.standing is Standing.MEMBER


def test_nobody_to_probe():
    ring = member("20")
    assert sent(ring.step(events.Due(("beacon", 0)), 31 * SECOND))[0][0].address == "at 10"


def test_those_who_let_us_in_are_probed_too():
    ring = Ring(contact("25"), RingSettings(successors=3))
    ring.step(events.Join(tuple(seed(f"at {each}") for each in (25, 91, 92))), 0)
    ring.enter(contact("20"), contacts("30,40,50"), Beacon(1, 1, 1, "at 10"), 0)
    probed = []
    for _ in range(3):
        said = sent(ring.step(events.Due(("beacon", 0)), 31 * SECOND))
        probed += [to.address for to, _message in said]
    assert {"at 10", "at 91", "at 92"} <= set(probed)
    assert "at 25" not in probed


def test_a_small_ring_takes_the_beacon_from_anybody():
    ring = stale("10,20,30")
    said = sent(hear(ring, "77", Pong(1, True, Beacon(1, 9, 4, "at 10"))))
    assert ring.beacon == Beacon(1, 9, 4, "at 10")
    assert [type(message) for _to, message in said] == [messages.GetRegistry]


def test_the_registry_is_not_asked_for_where_no_root_is_known():
    ring = member("10,20,30")
    assert hear(ring, "10", messages.BeaconIs(Beacon(1, 1, 5, ""), 30)) == []


# --- the root ----------------------------------------------------------------


def root_of(count: int, **settings: int) -> Root:
    root = Root(contact("0"), RingSettings(successors=3, **settings))
    members = tuple(contact(str(number * 10)) for number in range(count))
    root.changed(events.RegistryChanged(count, members))
    return root


def test_some_members_are_told_and_those_before_the_asker():
    root = root_of(100, registry_reply_max=8)
    answer = root.answer(3, contact("505"))
    assert answer.count == 100
    assert len(answer.members) == 8
    assert list(answer.members) == sorted(answer.members)
    assert set(contacts("500,490,480,470")) <= set(answer.members)


def test_all_are_told_while_the_ring_is_about_to_grow():
    root = root_of(5, registry_reply_max=2)
    assert len(root.answer(3, contact("505")).members) == 5


def test_founders_who_left_are_no_founders():
    root = root_of(4)
    five = (*root.members, contact("90"))
    [answer, *pushed] = root.changed(events.RegistryChanged(5, five, contact("90"), 3))
    assert answer.message.founders == root.members[:4]
    assert [effect.to for effect in pushed] == list(root.members[1:4])
    four = tuple(each for each in five if each != contact("20"))
    root.changed(events.RegistryChanged(6, (*four, contact("95")), contact("95"), 4))
    assert root.founders == contacts("0,10,30")


def test_a_large_ring_is_not_told_of_every_change():
    root = root_of(50)
    fifty_one = (*root.members, contact("900"))
    effects = root.changed(events.RegistryChanged(51, fifty_one, contact("900"), 3))
    assert [effect.to for effect in effects] == [contact("900")]


def test_members_that_a_ring_begins_with_are_enrolled_first():
    ring = Ring(contact("10"), RingSettings(successors=3), is_root=True)
    ring.step(events.RegistryChanged(0, ()), 0)
    effects = ring.step(events.Begin(contacts("10,20,30,40,50"), "at 10"), 0)
    enrolled = [effect.who for effect in effects if isinstance(effect, events.Enrol)]
    assert enrolled == list(contacts("10,20,30,40,50"))
    for count in range(1, 5):
        members = contacts("10,20,30,40,50")[:count]
        assert ring.step(events.RegistryChanged(count, members), 0) == []
        assert hear(ring, "99", messages.Register(1, contact("99"))) == []
    assert ring.standing is Standing.MEMBER
    again = ring.step(events.Due(("beacon", 0)), 0)
    assert [effect.who for effect in again if isinstance(effect, events.Enrol)] == [contact("50")]
    members = contacts("10,20,30,40,50")
    assert ring.step(events.RegistryChanged(5, members), 0) == []
    assert hear(ring, "99", messages.Register(1, contact("99"))) == [
        events.Enrol(contact("99"), contact("99"), 1)
    ]
