"""How a ring that was cut off notices, and comes back."""

from __future__ import annotations

import pytest

from hocket.core.ring import events, messages
from hocket.core.ring.contact import seed
from hocket.core.ring.messages import Beacon, Pong
from hocket.core.ring.pointers import Standing
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_script import contact, contacts
from tests.support.core.ring_stage import SECOND, Stage, tight
from tests.support.core.ring_talk import hear, member, sent


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


# Of a cut of any kind, with the settings of real nodes: after so long each half is a ring, and both
# are one so long after it is healed. docs/internals/ring.md says so.
TWO_RINGS_US = 20 * SECOND
ONE_RING_US = 20 * SECOND


@pytest.mark.parametrize(("count", "step"), [(8, 1), (10, 2)])
def test_each_half_becomes_a_ring_and_both_become_one(count, step):
    """With two successors there are nodes in most cuts that have none on their side."""
    settings = RingSettings(successors=2, stabilize_us=2 * SECOND, finger_us=2 * SECOND)
    lost = 0
    for number in range(1, count, step):
        stage = Stage(settings, number)
        stage.begin(count)
        stage.run(10 * SECOND)
        halves = stage.cut_off(stage.up()[:number])
        lost += sum(
            not {each.node for each in stage.players[name].core.successors} & set(half)
            for half in halves
            for name in half
        )
        cut_us = stage.now_us
        for half in halves:
            assert stage.run(TWO_RINGS_US, lambda half=half, stage=stage: stage.is_ideal(half))
        assert stage.now_us - cut_us <= TWO_RINGS_US
        stage.run(40 * SECOND - (stage.now_us - cut_us))
        assert all(stage.is_ideal(half) for half in halves)
        stage.heal()
        assert stage.run(ONE_RING_US, stage.is_ideal)
        stage.run(10 * SECOND)
        assert stage.is_ideal()
        # All that is left of the cut is the memory of it: nobody had to begin a new life.
        assert {player.incarnation for player in stage.players.values()} == {1}
    assert lost > 5  # or little was shown


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
    ring.pointers.enter(contact("20"), contacts("30,40,50"), Beacon(1, 1, 1, "at 10"), 0)
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
