"""Talk with one ring core: make it, send it messages as other nodes, and read its answers."""

from __future__ import annotations

from hocket.core.ring import events, messages
from hocket.core.ring.contact import Contact
from hocket.core.ring.ring import Ring
from hocket.core.ring.settings import RingSettings
from tests.support.core.ring_script import contact, contacts


def member(members: str = "10,20,30,40,50,60", me: str = "20") -> Ring:
    """The core of node `me` on an ideal ring of these members."""
    ring = Ring(contact(me), RingSettings(successors=3))
    ring.step(events.Begin(contacts(members), "at 10"), 0)
    return ring


def hear(ring: Ring, word: str, message: messages.Message, now_us: int = 0) -> list[events.Effect]:
    """What the core wants done when the node that is written `word` sends it this message."""
    return ring.step(events.Heard(contact(word), 1, message), now_us)


def sent(effects: list[events.Effect]) -> list[tuple[Contact, messages.Message]]:
    """The messages among the effects, each with its receiver."""
    return [(effect.to, effect.message) for effect in effects if isinstance(effect, events.Send)]
