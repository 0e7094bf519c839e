"""This node: its contact, its settings, the time, and what it knows of other nodes.

The parts of the ring core share one `OwnNode` and one `Pointers`, and know nothing of each other
but what their constructors show.

Rule: every table here changes by its own methods only, and only `Ring.step` sets `now_us`.
"""

from __future__ import annotations

from hocket.core.ring.contact import Contact
from hocket.core.ring.fingers import Fingers
from hocket.core.ring.lookups import Lookups
from hocket.core.ring.messages import Beacon, RequestNumbers
from hocket.core.ring.pings import Pings
from hocket.core.ring.root import Beacons, Root
from hocket.core.ring.routes import Routes
from hocket.core.ring.settings import RingSettings
from hocket.core.ring.small_ring import SmallRing


class OwnNode:
    """See the head of the file."""

    def __init__(self, me: Contact, settings: RingSettings) -> None:
        self.me = me
        self.settings = settings
        self.now_us = 0  # the time of the event that is being handled
        self.requests = RequestNumbers()
        self.routes = Routes(me, settings)
        self.fingers = Fingers(me, settings, self.routes)
        self.lookups = Lookups(me, settings, self.routes, self.requests)
        self.pings = Pings(self.routes, self.requests)
        self.beacons = Beacons(settings.beacon_stale_us)
        self.small = SmallRing()
        self.root: Root | None = None  # while this node is the root
        self._elected = Beacon()  # where the root is, as those know who elect it

    def elected(self, epoch: int, address: str) -> None:
        """Another way to learn where the root is than by its beacons: it may not have sent any."""
        if epoch > self._elected.epoch:
            self._elected = Beacon(epoch, root=address)

    @property
    def root_beacon(self) -> Beacon:
        """Says where the root is, as far as this node knows; not whether the ring is whole."""
        beacon = self.beacon
        is_newer = bool(self._elected.root) and self._elected.epoch > beacon.epoch
        return self._elected if is_newer else beacon

    @property
    def root_address(self) -> str:
        return self.root_beacon.root

    @property
    def beacon(self) -> Beacon:
        """The newest beacon that came by our own ring."""
        return self.beacons.newest
