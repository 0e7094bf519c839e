"""The order of keys in one partition of a key-shared index: what may be leased next, and to whom.

Rule 1: of one key only the oldest message that is neither settled nor in flight may be leased, and
        only if it is available: while it rests, dies or is withheld that key waits, and no other.
Rule 2: a slot belongs to one consumer. If a slot moves while its messages are in flight at another
        consumer, the slot drains: none of its messages is leased until none is in flight there.
        A suspect is taken alone, and nothing behind it before it.
Rule 3: a message without a key has no order, and is for any consumer.
Rule 4: nothing is leased while a message is in flight whose key is not known yet: a consumer that
        had it before a restart has claimed it, and others of its key must not go elsewhere.

A key is known by its 64-bit hash, which is read ahead from the log (`scanned` says how far). Each
key with messages that wait has a queue of their offsets. The head of a queue, if it may be leased,
stands in the heap of the slot's owner, so that leasing walks neither over the messages nor over the
keys. An offset in a heap may be out of date, and is checked again when it is taken.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import insort
from collections.abc import Sequence

from hocket.core.sharing.maps import ALONE, AVAILABLE, GAP_MAX, LEASED, RESERVED, SETTLED, Maps
from hocket.core.sharing.ranges import Range, joined
from hocket.core.sharing.slots import NOBODY, SLOTS, Slots

LOOKAHEAD = 20_000  # keys are read this many messages ahead of the oldest one not settled
LEASABLE_MIN = 1_000  # with fewer leasable messages than this, keys are read further ahead ...
FURTHER = 5_000  # ... by this many messages at a time

_IN_FLIGHT = (RESERVED, LEASED)
_OPEN = (AVAILABLE, ALONE)  # states of a message that can be leased


class Key:
    """One key: its messages that wait, the oldest first.

    Most keys have one message, some have thousands; messages come at the end, leave at the front,
    and return there. Hence two lists: `_old` holds the oldest ones, the very oldest last, and
    `_new` holds what came after them, in order. A deque would take ten times the memory for a key
    with one message. Invariants: `_old` is empty only if `_new` is; only a key with messages is
    asked for its `head`.
    """

    __slots__ = ("_new", "_old", "leasable", "offered", "owner", "slot")

    def __init__(self, slot: int, owner: int) -> None:
        self.slot = slot
        self.owner = owner  # of the slot
        self.leasable = 0  # how many messages wait if the head may be leased, else 0
        self.offered = -1  # the head if it stands in the owner's heap, else -1
        self._old: list[int] = []
        self._new: list[int] = []

    def __len__(self) -> int:
        return len(self._old) + len(self._new)

    @property
    def head(self) -> int:
        return self._old[-1]

    def add(self, offset: int) -> None:
        old, new = self._old, self._new
        if not old or offset < old[-1]:
            old.append(offset)
        elif offset > (new[-1] if new else old[0]):
            new.append(offset)
        else:  # between the others: it comes back later than messages before it
            new += reversed(old)
            insort(new, offset)
            self._turn_over()

    def remove(self, offset: int) -> None:
        old = self._old
        if old[-1] == offset:
            old.pop()
        elif offset in old:  # claimed or dead while others before it wait
            old.remove(offset)
        else:
            self._new.remove(offset)
        if not old:
            self._turn_over()

    def _turn_over(self) -> None:
        self._new.sort(reverse=True)
        self._old, self._new = self._new, []


class KeyOrder:
    def __init__(self, maps: Maps) -> None:
        self.leasable = 0  # about how many messages could be leased if all consumers were ready
        self.scanned = maps.start  # hashes are known up to this offset
        self._maps = maps
        self._base = maps.start  # the offset of the first hash
        self._hashes = array("Q")
        self._keys: dict[int, Key] = {}
        self._by_slot: dict[int, list[Key]] = {}
        self._in_flight: dict[tuple[int, int], int] = {}  # (slot, holder) -> how many messages
        self._holders: dict[int, int] = {}  # slot -> how many consumers hold messages of it
        self._slots = Slots()
        self._heaps: dict[int, list[int]] = {}  # owner -> a heap of the heads offered to it
        self._keyless: list[int] = []  # a heap of available messages without a key
        self._claimed_end = 0  # behind the last message that was in flight before it was scanned

    # --- reading ahead ---------------------------------------------------------------------------

    def wanted(self, end: int, span_max: int) -> Range | None:
        """The messages whose keys should be scanned next, if there are any."""
        start = self._maps.start
        high = min(end, max(start + LOOKAHEAD, self._claimed_end))
        if self.scanned >= high and self.leasable < LEASABLE_MIN:
            high = min(end, start + span_max, self.scanned + FURTHER)
        return (self.scanned, high) if self.scanned < high else None

    @property
    def is_ready(self) -> bool:
        return self.scanned >= self._claimed_end

    def claimed(self, end: int) -> None:
        """Messages up to here are in flight, and their keys are not known yet."""
        self._claimed_end = max(self._claimed_end, end)

    def scan(self, start: int, hashes: Sequence[int]) -> bool:
        """These are the hashes from `start` on. Returns False if none of them is new and next."""
        new = hashes[self.scanned - start :] if start <= self.scanned else ()
        if not len(new):
            return False
        first, self.scanned = self.scanned, self.scanned + len(new)
        self._hashes.extend(new)
        states, holders, base = self._maps.states, self._maps.holders, self._maps.base
        for offset, key_hash in enumerate(new, first):
            state = states[offset - base]
            if state in _IN_FLIGHT:  # a consumer that had it before a restart has claimed it
                self._depart(key_hash, holders[offset - base])
            elif state != SETTLED:
                self._enqueue(offset, key_hash)
        return True

    def advanced(self) -> None:
        """`maps.start` has moved, perhaps beyond everything that was scanned."""
        if self._maps.start > self.scanned:
            self.scanned = self._base = self._maps.start
            del self._hashes[:]
        elif self._maps.base > self._base:
            del self._hashes[: self._maps.base - self._base]
            self._base = self._maps.base

    # --- consumers -------------------------------------------------------------------------------

    def spread(self, consumers: list[int]) -> None:
        """These consumers share the keys now."""
        self._slots.spread(consumers)
        self._heaps = {consumer: self._heaps.get(consumer, []) for consumer in consumers}
        for key in self._keys.values():
            owner = self._slots.owner(key.slot)
            if owner != key.owner:
                key.owner, key.offered = owner, -1
                self._refresh(key)

    def first(self, consumer: int) -> int:
        """The oldest message that this consumer may have; -1: there is none."""
        heap = self._heaps.get(consumer, [])
        self._drop_stale(heap, consumer)
        return min([*heap[:1], *self._keyless[:1]], default=-1)

    def take(self, consumer: int, count: int, *, alone: bool = False) -> list[Range]:
        """Take up to `count` of the oldest messages that this consumer may have: in flight now.

        None from a suspect on, unless it is taken `alone`.
        """
        assert not count or self.is_ready
        heap, keyless = self._heaps.get(consumer, []), self._keyless
        runs: list[Range] = []
        while count:
            self._drop_stale(heap, consumer)
            if heap and (not keyless or heap[0] < keyless[0]):
                source = heap
            elif keyless:
                source = keyless
            else:
                break
            offset = source[0]
            if runs and offset - runs[-1][1] >= GAP_MAX:
                break
            if not alone and self._maps.states[offset - self._maps.base] == ALONE:
                break
            heapq.heappop(source)
            key_hash = self._hashes[offset - self._base]
            if key_hash:
                self._dequeue(offset, key_hash)
                self._depart(key_hash, consumer)
            else:
                self.leasable -= 1
            joined(runs, offset, offset + 1)
            count -= 1
        return runs

    def overtaking(self, runs: list[Range]) -> list[Range]:
        """Of these messages, which were taken, those that a message of their key is before now.

        It was with the same consumer, and was given back while these were read.
        """
        found: list[Range] = []
        for start, end in runs:
            for offset in range(max(start, self._base), min(end, self.scanned)):
                key = self._keys.get(self._hashes[offset - self._base])
                if key is not None and key.head < offset:
                    joined(found, offset, offset + 1)
        return found

    def renumbered(self, start: int, end: int, *, former: int, holder: int) -> None:
        """Messages in flight with the number `former` are in flight with `holder` now."""
        for key_hash in self._scanned_hashes(start, end):
            self._arrive(key_hash, former)
            self._depart(key_hash, holder)

    def _drop_stale(self, heap: list[int], consumer: int) -> None:
        """Remove from the tops of both heaps what may not be leased."""
        while heap and not self._is_offered(heap[0], consumer):
            heapq.heappop(heap)
        while self._keyless and self._keyless[0] < self._maps.start:
            heapq.heappop(self._keyless)

    def _is_offered(self, offset: int, consumer: int) -> bool:
        if offset < self._base:
            return False
        key = self._keys.get(self._hashes[offset - self._base])
        return key is not None and key.offered == offset and key.owner == consumer

    # --- what becomes of messages ----------------------------------------------------------------

    def turned(self, start: int, end: int, before: int, after: int, holder: int) -> None:
        """These messages changed their state; `holder` had or has them in flight."""
        if before == RESERVED and after == LEASED:
            return
        if before in _IN_FLIGHT:
            self._returned(start, end, after, holder)
        else:
            self._left_or_changed(start, end, before, after, holder)

    def _returned(self, start: int, end: int, after: int, holder: int) -> None:
        hashes = self._scanned_hashes(start, end)
        # The newest first: then each message belongs at the front of its key's queue.
        for offset in range(start + len(hashes) - 1, start - 1, -1):
            key_hash = hashes[offset - start]
            if after != SETTLED:
                self._enqueue(offset, key_hash)
            self._arrive(key_hash, holder)

    def _left_or_changed(self, start: int, end: int, before: int, after: int, holder: int) -> None:
        if after in _IN_FLIGHT and end > self.scanned:
            self.claimed(end)
        for offset, key_hash in enumerate(self._scanned_hashes(start, end), start):
            if not key_hash:
                self.leasable += (after in _OPEN) - (before in _OPEN)
                if after in _OPEN:
                    heapq.heappush(self._keyless, offset)
            elif after in _IN_FLIGHT:
                self._dequeue(offset, key_hash)
                self._depart(key_hash, holder)
            elif after == SETTLED:
                self._dequeue(offset, key_hash)
            else:
                self._refresh(self._keys[key_hash])

    def _scanned_hashes(self, start: int, end: int) -> array[int]:
        """The hashes of these messages, as far as they are known."""
        return self._hashes[start - self._base : max(start, min(end, self.scanned)) - self._base]

    def _enqueue(self, offset: int, key_hash: int) -> None:
        if not key_hash:
            if self._maps.states[offset - self._maps.base] in _OPEN:
                self.leasable += 1
                heapq.heappush(self._keyless, offset)
            return
        key = self._keys.get(key_hash)
        if key is None:
            slot = key_hash % SLOTS
            key = self._keys[key_hash] = Key(slot, self._slots.owner(slot))
            self._by_slot.setdefault(slot, []).append(key)
        key.add(offset)
        self._refresh(key)

    def _dequeue(self, offset: int, key_hash: int) -> None:
        key = self._keys[key_hash]
        key.remove(offset)
        if key:
            self._refresh(key)
            return
        self.leasable -= key.leasable
        del self._keys[key_hash]
        of_slot = self._by_slot[key.slot]
        of_slot.remove(key)
        if not of_slot:
            del self._by_slot[key.slot]

    def _depart(self, key_hash: int, holder: int) -> None:
        """A message of this key is in flight from now on."""
        if key_hash:
            slot = key_hash % SLOTS
            count = self._in_flight.get((slot, holder), 0)
            self._in_flight[slot, holder] = count + 1
            if not count:
                self._holders[slot] = self._holders.get(slot, 0) + 1
                self._refresh_slot(slot)

    def _arrive(self, key_hash: int, holder: int) -> None:
        """A message of this key is no longer in flight."""
        if key_hash:
            slot = key_hash % SLOTS
            count = self._in_flight[slot, holder]
            if count > 1:
                self._in_flight[slot, holder] = count - 1
                return
            del self._in_flight[slot, holder]
            self._holders[slot] -= 1
            if not self._holders[slot]:
                del self._holders[slot]
            self._refresh_slot(slot)

    def _refresh_slot(self, slot: int) -> None:
        for key in self._by_slot.get(slot, ()):
            self._refresh(key)

    def _refresh(self, key: Key) -> None:
        """Offer the head of the key's queue to the owner, if it may be leased; count the queue."""
        head = key.head
        holders = self._holders.get(key.slot, 0)
        is_open = (
            key.owner != NOBODY
            and self._maps.states[head - self._maps.base] in _OPEN
            and (not holders or (holders == 1 and (key.slot, key.owner) in self._in_flight))
        )
        leasable = len(key) if is_open else 0
        self.leasable += leasable - key.leasable
        key.leasable = leasable
        if not is_open:
            key.offered = -1
        elif key.offered != head:
            key.offered = head
            heapq.heappush(self._heaps[key.owner], head)
