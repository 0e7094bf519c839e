"""The simulated network between the machines of a cluster, and all that can go wrong on it.

Messages go by address, as between real nodes. Without faults they arrive in order after a short
while. Each fault has a random stream of its own, so that switching one fault on or off changes
nothing about the others:

    loss, duplication, reordering, tails    by chance, for each message
    cuts      nothing passes between two groups, or in one direction only
    clogs     messages to and from a machine wait until it is unclogged
    slow      messages to and from a machine take longer
    breaks    a connection breaks; both ends are told, sooner or later

Messages are not copied, so no node may change a message that it sent or heard. A share of messages
is copied when sent and compared on arrival, to find a node that does. Another share goes through
the real encoding and back, so that the simulation walks that code too. What comes back is what
arrives; if it is not what was sent, a checker says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from typing import Protocol

from hocket.core.ring.contact import Contact
from hocket.node.messages import CODEC
from hocket.sim.scheduler import Scheduler
from hocket.sim.trace import Trace
from hocket.timers import Timer

COMPARED_SHARE = 0.01
ENCODED_SHARE = 0.01
BREAK_NOTICED_US_MAX = 20_000  # within which both ends are told of a break


def _comes() -> None:
    """A message is not cancelled: all that its timer says is that it is under way."""


class Passing(Timer):
    """A message on its way, as the event that it arrives."""

    __slots__ = ("_links", "_message", "_original", "_pair", "_sender", "_to_incarnation")

    def __init__(
        self,
        links: SimLinks,
        pair: tuple[str, str],
        sender: Contact,
        to_incarnation: int,
        message: object,
        original: object,
    ) -> None:
        self.action = _comes
        self._links = links
        self._pair = pair
        self._sender = sender
        self._to_incarnation = to_incarnation
        self._message = message
        self._original = original  # a copy of the message, if it is compared

    def __call__(self) -> None:
        links, pair, message = self._links, self._pair, self._message
        if links.clogs and links.is_clogged(pair, self):
            return
        receiver = links.receivers.get(pair[1])
        if receiver is None or pair in links.blocked:
            return
        if self._original is not None and self._original != message:
            raise MessageChanged(f"sent as {self._original}, arrived as {message}")
        links.arrived += 1
        sender, kind, number = self._sender, type(message).__name__, getattr(message, "request", 0)
        links.trace.event(links.scheduler.time_us, receiver.name, f"{sender.node} {kind} {number}")
        receiver.heard(sender, self._to_incarnation, message)


class MessageChanged(AssertionError):
    """Somebody changed a message that was on its way."""


class Receiver(Protocol):
    """What receives the messages to an address."""

    name: str

    def heard(self, sender: Contact, to_incarnation: int, message: object) -> None: ...
    def link_lost(self, contact: Contact) -> None: ...
    def process_gone(self, contact: Contact) -> None: ...


@dataclass(slots=True)
class Weather:
    """How bad the network is all the time; the shares are of all messages."""

    loss: float = 0.0
    duplication: float = 0.0
    reordering: float = 0.0
    tails: float = 0.0  # the share that takes much longer than usual
    delay_us_min: int = 200
    delay_us_max: int = 2_000
    tail_us_max: int = 300_000


class SimLinks:
    """The simulated `ports.Links`, one for all machines."""

    def __init__(self, scheduler: Scheduler, weather: Weather, trace: Trace) -> None:
        self.weather = weather
        self.faults: dict[str, int] = {}  # by kind: how many messages were struck
        self.sent = 0
        self.arrived = 0
        self.encoded = 0  # messages that went through the encoding and back
        self.miscoded = ""  # the first of them that came back as another one
        self.scheduler = scheduler
        self._put = scheduler.timers.put  # for what lies ahead, as all arrivals do
        self.trace = trace
        self.receivers: dict[str, Receiver] = {}
        self.cut_since_us = 0  # when the last cut was made
        self.blocked: set[tuple[str, str]] = set()  # from, to; never iterated
        self.clogs: dict[str, list[Passing]] = {}  # what waits, by address
        self._slow_us: dict[str, int] = {}
        self._arrives_us: dict[tuple[str, str], int] = {}  # by pair: when its newest arrives
        self._talked: dict[str, dict[str, Contact]] = {}  # by whom, to which address, as whom
        self._delay = scheduler.random("delay").random
        self._encoding = scheduler.random("encoding").random
        self._comparing = scheduler.random("comparing").random
        self._streams = {
            kind: scheduler.random(kind)
            for kind in (
                "loss",
                "duplication",
                "reordering",
                "tails",
                "breaks",
            )
        }

    # --- who is where --------------------------------------------------------------------------

    def open(self, address: str, receiver: Receiver) -> None:
        assert address not in self.receivers, f"{address} is taken"
        self.receivers[address] = receiver

    def shut(self, address: str, *, silently: bool) -> None:
        """Nothing is at this address any more.

        Unless `silently`, the machine still runs and only the process is gone, so those connected
        to it are told.
        """
        del self.receivers[address]
        self._talked.pop(address, None)
        for other in list(self._talked):
            contact = self._talked[other].pop(address, None)
            if contact is not None and not silently:
                self._tell_lost(other, contact)

    # --- ports.Links ---------------------------------------------------------------------------

    def send(self, sender: Contact, to: Contact, message: object) -> None:
        pair = (sender.address, to.address)
        self.sent += 1
        talked = self._talked.get(pair[0])
        if talked is None:
            talked = self._talked[pair[0]] = {}
        talked[pair[1]] = to
        weather = self.weather
        if pair in self.blocked:
            self._count("cuts")
            return
        if weather.loss and self._strikes("loss", weather.loss):
            return
        if self._encoding() < ENCODED_SHARE:
            sender, to, message = self._through_bytes(sender, to, message)
        original = None
        if self._comparing() < COMPARED_SHARE:
            original = deepcopy(message)
        passing = Passing(self, pair, sender, to.incarnation, message, original)
        self._put(self._arrival_us(pair), passing)
        if weather.duplication and self._strikes("duplication", weather.duplication):
            self._put(self._arrival_us(pair), passing)

    def _through_bytes(
        self, sender: Contact, to: Contact, message: object
    ) -> tuple[Contact, Contact, object]:
        header, payload = CODEC.encode(message, sender.incarnation, to.incarnation)
        back = CODEC.decode(header, b"".join(payload))
        self.encoded += 1
        if back != (message, sender.incarnation, to.incarnation):
            self.miscoded = self.miscoded or f"sent as {message}, decoded as {back.message}"
        return (
            sender._replace(incarnation=back.from_incarnation),
            to._replace(incarnation=back.to_incarnation),
            back.message,
        )

    def _arrival_us(self, pair: tuple[str, str]) -> int:
        weather = self.weather
        # `randrange` would give the same, and takes four times as long.
        spread_us = weather.delay_us_max - weather.delay_us_min
        delay_us = weather.delay_us_min + int(self._delay() * spread_us)
        if weather.tails and self._strikes("tails", weather.tails):
            delay_us += self._streams["tails"].randrange(1, weather.tail_us_max)
        if self._slow_us:
            delay_us += self._slow_us.get(pair[0], 0) + self._slow_us.get(pair[1], 0)
        arrival_us = self.scheduler.time_us + delay_us
        if weather.reordering and self._strikes("reordering", weather.reordering):
            return arrival_us + self._streams["reordering"].randrange(1, 20 * weather.delay_us_max)
        newest_us = self._arrives_us.get(pair, 0)
        if arrival_us < newest_us:
            return newest_us
        self._arrives_us[pair] = arrival_us
        return arrival_us

    def is_clogged(self, pair: tuple[str, str], passing: Passing) -> bool:
        """Whether a message has to wait; it does from now on."""
        for address in pair:
            if address in self.clogs:
                self.clogs[address].append(passing)
                self._count("clogs")
                return True
        return False

    # --- faults --------------------------------------------------------------------------------

    def cut(self, some: Iterable[str], others: Iterable[str], *, one_way: bool = False) -> None:
        """Nothing passes from the ones to the others, nor back unless it is one way only."""
        others = list(others)
        for one in some:
            for other in others:
                self.blocked.add((one, other))
                if not one_way:
                    self.blocked.add((other, one))
        self.cut_since_us = self.scheduler.now_us()

    def heal(self) -> None:
        """End all cuts, of every kind."""
        self.blocked.clear()

    @property
    def is_cut(self) -> bool:
        return bool(self.blocked)

    def reaches(self, one: str, other: str) -> bool:
        """Whether no cut keeps what the one sends from the other."""
        return (one, other) not in self.blocked

    def is_cut_off(self, address: str) -> bool:
        """Whether a cut lies between this machine and any other."""
        return bool(self.blocked) and any(address in pair for pair in self.blocked)

    def clog(self, address: str) -> None:
        self.clogs.setdefault(address, [])

    def unclog(self, address: str) -> None:
        """Messages that have waited arrive now, in order, as one event each."""
        for passing in self.clogs.pop(address, []):
            self.scheduler.put(0, passing)

    @property
    def clogged(self) -> list[str]:
        return list(self.clogs)

    def slow(self, address: str, delay_us: int) -> None:
        """Delay every message to and from this machine; 0: the usual delay."""
        self._slow_us[address] = delay_us
        if not delay_us:
            del self._slow_us[address]

    def break_one(self) -> bool:
        """Break a connection between two machines; later messages go over a new one."""
        pairs = [
            (one, other)
            for one, talked in self._talked.items()
            for other in talked
            if one in self.receivers and other in self.receivers
        ]
        if not pairs:
            return False
        one, other = self._streams["breaks"].choice(pairs)
        for end, far in ((one, other), (other, one)):
            contact = self._talked.get(end, {}).pop(far, None)
            if contact is not None:
                self._tell_lost(end, contact)
        return True

    def _tell_lost(self, address: str, contact: Contact) -> None:
        def tell() -> None:
            receiver = self.receivers.get(address)
            if receiver is None:
                return
            receiver.link_lost(contact)
            far = contact.address
            is_refused = (address, far) not in self.blocked and (far, address) not in self.blocked
            if far not in self.receivers and is_refused:
                receiver.process_gone(contact)

        noticed_us = self._streams["breaks"].randrange(BREAK_NOTICED_US_MAX)
        self.scheduler.after(noticed_us, tell)

    def _strikes(self, kind: str, share: float) -> bool:
        if not share or self._streams[kind].random() >= share:
            return False
        self._count(kind)
        return True

    def _count(self, kind: str) -> None:
        self.faults[kind] = self.faults.get(kind, 0) + 1
