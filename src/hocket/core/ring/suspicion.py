"""Which nodes are taken for dead: cases against silent nodes, and the memory of dead lives.

Silence is no proof of death. A node is given up only when several pings of ours and several pings
by other nodes failed, one after another, and a minimum time has passed. One word of the suspect, or
of a node that has heard the suspect, closes the case. The proofs about Chord presuppose a perfect
detection of failures, which no network has. On small rings one false conviction in a hundred
queries breaks the ring's invariants sooner or later, so patience is worth more than speed here. The
indirect probes are those of SWIM (Das, Gupta and Motivala 2002, section 4.1).

If there is no other node that could be asked to ping, our own pings decide.

A life that was *convicted* has been given up, and has not spoken since; the conviction may be
wrong. A life that is *over* will never be back: its node said so, or a newer life of that node
spoke.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Effect
from hocket.core.ring.messages import Pong
from hocket.core.ring.pings import Pings
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings

CASES_MAX = 64  # at a time; a node that is suspected beyond that will be suspected again
CONVICTED_MAX = 64
OVER_MAX = 256
FRESH_PERIODS = 2  # of stabilization: for so long a conviction of ours may be news to others


@dataclass(slots=True)
class Case:
    """What is held against one node."""

    contact: Contact
    opened_us: int
    probes: int = 0  # how many were sent


class Suspicions:
    """All open cases. `helpers` gives nodes that can be asked to ping; `convict` gives one up."""

    def __init__(
        self,
        settings: RingSettings,
        routes: Routes,
        pings: Pings,
        helpers: Callable[[], list[Contact]],
        convict: Callable[[Contact, int], list[Effect]],
    ) -> None:
        self.cases: dict[Contact, Case] = {}
        self._settings = settings
        self._routes = routes
        self._pings = pings
        self._helpers = helpers
        self._convict = convict
        # The probes are spread over the minimum time that a case takes.
        self._pace_us = settings.suspicion_us_min // (
            settings.direct_probes + settings.indirect_probes
        )

    def open(self, contact: Contact, now_us: int) -> list[Effect]:
        if contact in self.cases or len(self.cases) >= CASES_MAX:
            return []
        case = self.cases[contact] = Case(contact, now_us)
        return self._go_on(case, now_us)

    def close(self, contact: Contact) -> None:
        """The node spoke, or is certainly dead. The answer to a ping that is out is ignored."""
        self.cases.pop(contact, None)

    def stalled(self, now_us: int) -> None:
        """This node stood still: the silence of others until now counts for nothing."""
        for case in self.cases.values():
            case.opened_us = now_us
            case.probes = 0

    def _go_on(self, case: Case, now_us: int) -> list[Effect]:
        settings = self._settings
        suspect = case.contact
        case.probes += 1
        turn = case.probes - settings.direct_probes - 1
        helper = self._helper(turn) if 0 <= turn < settings.indirect_probes else None
        if helper is not None:
            # The helper needs the time to ping the suspect, too.
            wait_us = max(
                self._pace_us,
                self._routes.timeout_us(helper) + self._routes.timeout_us(suspect),
            )
            done = partial(self._probed, case)
            return self._pings.send(helper, done, now_us, about=suspect, wait_us=wait_us)
        if turn >= 0 and now_us - case.opened_us >= settings.suspicion_us_min:
            del self.cases[suspect]
            return self._convict(suspect, now_us)
        return self._pings.send(suspect, partial(self._probed, case), now_us, wait_us=self._pace_us)

    def _helper(self, turn: int) -> Contact | None:
        helpers = [each for each in self._helpers() if each not in self.cases]
        return helpers[turn] if turn < len(helpers) else None

    def _probed(
        self, case: Case, _sender: Contact | None, pong: Pong | None, now_us: int
    ) -> list[Effect]:
        if self.cases.get(case.contact) is not case:
            return []
        if pong is not None and pong.alive:
            del self.cases[case.contact]
            return []
        return self._go_on(case, now_us)


class Deaths:
    """The lives that this node takes for dead.

    Other nodes go on naming the dead for a while, so both kinds are remembered. Both memories are
    bounded, and forget the oldest entry first.
    """

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
