"""One key of a key-shared index: its messages that wait, the oldest first.

Most keys have one message, some have thousands; messages come at the end, leave at the front, and
return there. Hence two lists: `_old` holds the oldest ones, the very oldest last, and `_new` what
came after them, in order. A deque would take ten times the memory of a key with one message.
"""

from __future__ import annotations

from bisect import insort


class Key:
    """Invariant: what is asked for its `head` is not empty; `_old` is empty only if it is."""

    __slots__ = ("_new", "_old", "leasable", "offered", "owner", "slot")

    def __init__(self, slot: int, owner: int) -> None:
        self.slot = slot
        self.owner = owner  # of the slot
        self.leasable = 0  # how many messages wait, if the head may be leased
        self.offered = -1  # the head, once it stands in its owner's heap
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
        else:  # amid the others, if it comes back later than those before it
            new += reversed(old)
            insort(new, offset)
            self._turn_over()

    def remove(self, offset: int) -> None:
        old = self._old
        if old[-1] == offset:
            old.pop()
        elif offset in old:  # claimed, or dead, from amid those that wait with it
            old.remove(offset)
        else:
            self._new.remove(offset)
        if not old:
            self._turn_over()

    def _turn_over(self) -> None:
        self._new.sort(reverse=True)
        self._old, self._new = self._new, []
