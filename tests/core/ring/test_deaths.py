"""A node that gave up somebody who lives finds out, and does not hide it from others for ever."""

from __future__ import annotations

from hocket.core.ring import events, messages
from hocket.core.ring.deaths import FRESH_PERIODS
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_script import contact, contacts

ROOT = "at 10"


def member(me: str = "20") -> Ring:
    ring = Ring(contact(me), RingSettings(successors=3))
    ring.step(events.Begin(contacts("10,20,40,50,60"), ROOT), 0)
    return ring


def sent(effects: list[events.Effect]) -> list[tuple[str, messages.Message]]:
    return [
        (effect.to.node, effect.message) for effect in effects if isinstance(effect, events.Send)
    ]


def test_for_a_while_a_lookup_leaves_out_whom_we_have_given_up():
    ring = member("60")
    ring.pointers.convict(contact("40"), 0)
    fresh_us = FRESH_PERIODS * ring.settings.stabilize_us

    def owners(now_us: int) -> list[str]:
        key = contact("40").position
        out = sent(ring.step(events.Find(1, key), now_us))
        to, asked = out[0]
        answer = messages.CloserAre(asked.request, (), contacts("40,50,60"))
        sender = next(each for each in contacts("10,20,50") if each.node == to)
        effects = ring.step(events.Heard(sender, 1, answer), now_us)
        (located,) = [each for each in effects if isinstance(each, events.Located)]
        return [each.node for each in located.owners]

    assert owners(fresh_us - 1) == [contact("50").node, contact("60").node]
    assert owners(fresh_us) == [contact(each).node for each in ("40", "50", "60")]
