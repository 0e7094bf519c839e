"""The root: its beacons, as every node has them, and what it tells of the registry."""

from __future__ import annotations

from hocket.core.ring import events, messages
from hocket.core.ring.messages import Beacon
from hocket.core.ring.pointers import Standing
from hocket.core.ring.ring import Ring
from hocket.core.ring.root import Beacons, Root
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_talk import hear


def test_fresh_is_what_came_by_our_own_ring_lately():
    beacons = Beacons(stale_us=30)
    assert beacons.take(Beacon(1, 5), 100)
    assert not beacons.take(Beacon(1, 5), 120)
    assert not beacons.take(Beacon(1, 4), 120)
    assert not beacons.is_stale(129)
    assert beacons.is_stale(130)
    assert beacons.take(Beacon(2, 0), 130)
    assert not beacons.is_stale(130)


def root_of(count: int, **settings: int) -> Root:
    root = Root(contact("0"), RingSettings(successors=3, **settings), 1)
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
