"""The lives that this node takes for dead.

A life that was *convicted* has been given up, and has not spoken since. The conviction may be
wrong: silence is no proof. A life that is *over* will never be back: its node said so, or a newer
life of that node spoke. Both are remembered because other nodes go on naming the dead for a while.
Both memories are bounded, and forget the oldest entry first.
"""

from __future__ import annotations

from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings

CONVICTED_MAX = 64
OVER_MAX = 256
FRESH_PERIODS = 2  # of stabilization: for so long a conviction of ours may be news to others


class Deaths:
    """See the head of the file."""

    __slots__ = ("_fresh_us", "_over", "convicted")

    def __init__(self, settings: RingSettings) -> None:
        self.convicted: dict[Contact, int] = {}  # when each life was given up; oldest first
        self._over: dict[str, int] = {}  # by node, the newest life that is over; oldest first
        self._fresh_us = FRESH_PERIODS * settings.stabilize_us

    def is_over(self, contact: Contact) -> bool:
        """Certainly: a message of this life comes late."""
        over = self._over
        return bool(over) and over.get(contact.node, 0) >= contact.incarnation

    def end(self, contact: Contact) -> None:
        """This life is over, and so is every older one of that node."""
        incarnation = max(self._over.pop(contact.node, 0), contact.incarnation)
        self._over[contact.node] = incarnation
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    def convict(self, contact: Contact, now_us: int) -> None:
        self.convicted[contact] = now_us
        if len(self.convicted) > CONVICTED_MAX:
            del self.convicted[next(iter(self.convicted))]

    def spoke(self, contact: Contact) -> None:
        """This life lives, whatever we thought of it."""
        if self.convicted:
            self.convicted.pop(contact, None)

    def left_out(self, contacts: tuple[Contact, ...], now_us: int) -> tuple[Contact, ...]:
        """The contacts without those that were convicted lately.

        For a while we may know better than others who is dead. Later the neighbours of the dead
        node know it; if they still name that node, we were wrong.
        """
        if not self.convicted:
            return contacts
        since_us = now_us - self._fresh_us
        return tuple(each for each in contacts if self.convicted.get(each, since_us) <= since_us)
