"""Many real relay cores of one partition, joined in virtual time without a network.

The stage is what the ring, the driver and the network would be: it carries messages late, twice or
not at all, as it is told to; finds routes by the fingers of an ideal ring; keeps the owner's log.
It checks what must always hold: consumers get each offset once and in order, within their credit,
with the bytes that were committed; nobody has more children than it may have.
"""

from __future__ import annotations

import random
from bisect import bisect_left, bisect_right
from collections import Counter
from heapq import heappop, heappush
from operator import attrgetter

from hocket.core.relay import events
from hocket.core.relay.messages import Attach, Fetch, NotAttached, NotRelaying, Piece
from hocket.core.relay.relay import Relay
from hocket.core.relay.settings import RelaySettings
from hocket.core.ring.circle import SIZE, between, position_of
from hocket.core.ring.contact import Contact
from hocket.core.ring.events import Arm, Disarm
from hocket.model import PartitionId

PARTITION_ID = PartitionId("news", 0)
SECOND = 1_000_000
_START = attrgetter("start")


class Diary:
    """What one consumer got, checked as it comes."""

    def __init__(self, node, number, offset, credit_bytes):
        self.node = node
        self.number = number
        self.start = self.next_offset = offset
        self.credit_bytes = self.credit_left = credit_bytes
        self.taken_bytes = 0  # delivered, and no credit given back
        self.lost = []
        self.last_us = 0
        self.patience_us = 0  # before it gives credit back; None: never


class Stage:
    def __init__(self, nodes, *, settings=None, seed=0, delay_us=(300, 1_500)):
        self.settings = settings or RelaySettings()
        self.chance = random.Random(f"{seed}/stage")
        self.delay_us = delay_us
        self.loss = self.repetition = self.tails = 0.0
        self.now_us = 0
        self.heap = []
        self.count = 0
        self.sent = Counter()
        self.to_owner = Counter()
        self.cores = {}
        self.timers = {}
        self.cut = set()  # pairs of names between which nothing passes
        self.dead = set()
        self.contacts = {}
        for number in range(nodes):
            name = f"node-{number}"
            self.contacts[name] = Contact(position_of(name), name, 1, name)
        self.ring = sorted(self.contacts.values())
        self.last_request = Counter()
        self.pieces = []
        self.log_start = 0
        self.owner = "node-0"
        self.is_known = True  # where the owner is
        self.diaries = {}
        self.reads = 0

    # --- what happens ----------------------------------------------------------------------------

    @property
    def end(self):
        return self.pieces[-1].end if self.pieces else 0

    def own(self, name="node-0"):
        self.owner = name
        self._step(name, events.Owning(self.log_start, self.end))

    def disown(self, name):
        self._step(name, events.Disowned())

    def publish(self, records=1, size=100):
        data = self.chance.randbytes(size)
        self.pieces.append(Piece(self.end, self.end + records, data))
        if self.owner in self.cores:
            self._step(self.owner, events.Advanced(self.log_start, self.end))

    def consume(self, name, offset=0, credit_bytes=1_000, patience_us=0):
        number = len(self.diaries) + 1
        diary = self.diaries[number] = Diary(name, number, offset, credit_bytes)
        diary.patience_us = patience_us
        self._step(name, events.Consume(number, offset, credit_bytes))
        return diary

    def stop(self, diary):
        self._step(diary.node, events.StopConsuming(diary.number))

    def credit(self, diary, count):
        diary.credit_left += count
        diary.taken_bytes -= count
        self._step(diary.node, events.Credit(diary.number, count))

    def crash(self, name):
        """It is gone with all that it knew, and so are its consumers."""
        self.cores.pop(name, None)
        self.dead.add(name)
        for key in [key for key in self.timers if key[0] == name]:
            del self.timers[key]
        for diary in self.diaries.values():
            if diary.node == name:
                diary.node = None

    def restart(self, name):
        self.dead.discard(name)
        old = self.contacts[name]
        self.contacts[name] = new = old._replace(incarnation=old.incarnation + 1)
        self.ring[self.ring.index(old)] = new
        if name == self.owner:
            self.own(name)

    def died(self, name):
        for other in list(self.cores):
            self._step(other, events.Died(self.contacts[name]))

    def run(self, for_us):
        until_us = self.now_us + for_us
        while self.heap and self.heap[0][0] <= until_us:
            self.now_us, _, action, *details = heappop(self.heap)
            action(*details)
        self.now_us = until_us

    # --- the core's surroundings -----------------------------------------------------------------

    def later(self, delay_us, action, *details):
        self.count += 1
        heappush(self.heap, (self.now_us + delay_us, self.count, action, *details))

    def _step(self, name, event):
        core = self.cores.get(name)
        if core is None:
            if not isinstance(event, events.Consume | events.Owning):
                return
            core = self.cores[name] = Relay(
                self.contacts[name],
                PARTITION_ID,
                self.settings,
                last_request=self.last_request[name],
            )
        for effect in core.step(event):
            self._carry_out(name, core, effect)
        assert len(core.children) <= self.settings.children_max

    def _carry_out(self, name, core, effect):
        if isinstance(effect, events.Send):
            self._send(self.contacts[name], effect.to, effect.message)
        elif isinstance(effect, Arm):
            delay_us = effect.after_us + self.chance.randrange(effect.jitter_us + 1)
            self.count += 1
            self.timers[name, effect.timer] = self.count
            self.later(delay_us, self._due, name, effect.timer, self.count)
        elif isinstance(effect, Disarm):
            self.timers.pop((name, effect.timer), None)
        elif isinstance(effect, events.Deliver):
            self._deliver(effect)
        elif isinstance(effect, events.Lost):
            diary = self.diaries[effect.consumer]
            diary.lost.append((diary.next_offset, effect.first))
            diary.next_offset = effect.first
        elif isinstance(effect, events.FindRoute):
            self.later(self._delay(), self._found, name, effect.token)
        elif isinstance(effect, events.ReadLog):
            self.reads += 1
            self.later(self._delay(), self._read, name, effect)
        else:
            assert isinstance(effect, events.Idle)
            self.last_request[name] = core.last_request
            del self.cores[name]
            assert not [key for key in self.timers if key[0] == name]

    def _due(self, name, timer, number):
        if self.timers.get((name, timer)) == number:
            del self.timers[name, timer]
            self._step(name, events.Due(timer))

    def _delay(self):
        delay_us = self.chance.randint(*self.delay_us)
        if self.tails and self.chance.random() < self.tails:
            delay_us *= 200
        return delay_us

    def _send(self, sender, to, message):
        kind = type(message).__name__
        self.sent[kind] += 1
        if to.node == self.owner:
            self.to_owner[kind] += 1
        times = 1
        if self.loss and self.chance.random() < self.loss:
            times = 0
        elif self.repetition and self.chance.random() < self.repetition:
            times = 2
        for _ in range(times):
            self.later(self._delay(), self._arrive, sender, to, message)

    def _arrive(self, sender, to, message):
        if (sender.node, to.node) in self.cut or to.node in self.dead:
            return
        if self.contacts[to.node] != to:
            return  # for an earlier life
        if to.node in self.cores:
            self._step(to.node, events.Heard(sender, message))
        elif isinstance(message, Attach):
            self._send(to, sender, NotRelaying(message.request, PARTITION_ID))
        elif isinstance(message, Fetch):
            kind = NotRelaying if message.catching_up else NotAttached
            self._send(to, sender, kind(message.request, PARTITION_ID))

    def _found(self, name, token):
        if not self.is_known:
            self._step(name, events.NoRoute(token))
        else:
            route = self.route(name)
            self._step(name, events.RouteIs((*route, self.contacts[self.owner]), token))

    def route(self, name):
        """As Chord goes: the farthest finger that is not past the key, again and again."""
        key = self.contacts[self.owner].position
        at, hops = self.contacts[name], []
        while at.node != self.owner:
            for exponent in reversed(range(64)):
                finger = self._successor(at.position + (1 << exponent))
                if between(at.position, finger.position, key):
                    break
            else:
                break
            hops.append(finger)
            at = finger
        return hops

    def _successor(self, position):
        at = bisect_left(self.ring, (position % SIZE,))
        return self.ring[at % len(self.ring)]

    def _read(self, name, effect):
        pieces, left = [], effect.bytes_max
        first = max(0, bisect_right(self.pieces, effect.offset, key=_START) - 1)
        for piece in self.pieces[first:]:
            if piece.end > effect.end or (pieces and len(piece.data) > left):
                break
            left -= len(piece.data)
            pieces.append(piece)
        if effect.offset < self.log_start:
            pieces = []
        self._step(name, events.LogRead(effect.token, tuple(pieces)))

    def _deliver(self, effect):
        diary = self.diaries[effect.consumer]
        assert effect.pieces
        size = sum(len(piece.data) for piece in effect.pieces)
        alone = len(effect.pieces) == 1 and diary.taken_bytes == 0 and diary.credit_left > 0
        assert size <= diary.credit_left or alone, "more than the credit"
        assert effect.pieces[0].start <= diary.next_offset < effect.pieces[0].end
        for piece in effect.pieces:
            committed = self.pieces[bisect_left(self.pieces, piece.start, key=_START)]
            assert piece is committed, "not what is committed"
            assert piece.start <= diary.next_offset < piece.end, "a gap, or twice"
            diary.next_offset = piece.end
        assert diary.next_offset <= effect.end <= self.end
        diary.last_us = self.now_us
        diary.credit_left -= size
        diary.taken_bytes += size
        if diary.patience_us is not None:
            self.later(diary.patience_us, self._give_back, diary, size)

    def _give_back(self, diary, size):
        if diary.node is not None:
            self.credit(diary, size)

    # --- looking at it ---------------------------------------------------------------------------

    def parents(self):
        return {
            name: core.parent.node if core.parent else None for name, core in self.cores.items()
        }

    def depths(self):
        """Of each core that hangs on the owner."""
        depths = {self.owner: 0}
        parents = self.parents()
        for name in parents:
            way = [name]
            while way[-1] not in depths:
                parent = parents.get(way[-1])
                if parent is None or parent in way:
                    break
                way.append(parent)
            else:
                for index, each in enumerate(reversed(way)):
                    depths[each] = depths[way[-1]] + index
        return depths

    def complete(self):
        """Consumers that live and have everything."""
        return all(
            diary.next_offset == self.end
            for diary in self.diaries.values()
            if diary.node is not None
        )
