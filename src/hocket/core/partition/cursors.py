"""How far each own index has come in one partition, and who may move it.

Rule 1: a change takes effect when its log entry is committed, and survives with it.
Rule 2: every attach and every seek raises the epoch; a commit with an older epoch is fenced. (An
        attach to a shared index does not raise it: consumers of one do not fence each other.)

`leading` is the state with everything appended, by which new requests are judged; `applied` is the
state with everything committed, which is what others are shown and what a snapshot holds. A change
is a whole new value, so only the newest one of each index counts: a turn's changes make one entry.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Cursor(NamedTuple):
    position: int  # the next offset to be consumed
    epoch: int
    hold_retention: bool
    mode: str = "own"
    lost: int = 0  # records that were gone before its consumer had them, since the last seek

    def encode(self) -> list[Any]:
        """As JSON knows it, without a loss where there is none: most have none."""
        return list(self if self.lost else self[:-1])


Changes = dict[str, Cursor | None]  # None: the index is deleted


class Cursors:
    __slots__ = ("applied", "leading", "retired_epoch")

    def __init__(self) -> None:
        # The highest epoch of all deleted indexes. A new index by the same name begins above it,
        # so that those who had the old one are fenced.
        self.retired_epoch = 0
        self.leading: dict[str, Cursor] = {}
        self.applied: dict[str, Cursor] = {}

    def attach(self, name: str, start: int, *, hold_retention: bool) -> Cursor:
        """Returns the cursor as it will be. `start` counts only if the index is new here."""
        known = self.leading.get(name)
        if known is None:
            return self._lead(name, Cursor(start, self.retired_epoch + 1, hold_retention))
        return self._lead(
            name, known._replace(epoch=known.epoch + 1, hold_retention=hold_retention)
        )

    def share(self, name: str, start: int, *, hold_retention: bool, mode: str) -> Cursor:
        """Attach to a shared index: consumers come and go without fencing one another."""
        known = self.leading.get(name, Cursor(start, self.retired_epoch + 1, hold_retention))
        return self._lead(name, known._replace(hold_retention=hold_retention, mode=mode))

    def move_shared(self, name: str, position: int) -> None:
        """A shared index has come to `position`: every message before it is settled, durably."""
        for cursors in (self.applied, self.leading):
            if name in cursors:
                cursors[name] = cursors[name]._replace(position=position)

    def commit(self, name: str, epoch: int, position: int) -> Cursor | None:
        """Returns None if the epoch is fenced, or if there is no such index any more."""
        known = self.leading.get(name)
        if known is None or known.epoch != epoch:
            return None
        # Acks are cumulative, so an older one that comes late must not take the index back.
        return self._lead(name, known._replace(position=max(position, known.position)))

    def seek(self, name: str, position: int) -> Cursor:
        known = self.leading.get(name, Cursor(0, self.retired_epoch, False))
        epoch = known.epoch + 1
        return self._lead(name, known._replace(position=position, epoch=epoch, lost=0))

    def skip(self, name: str, position: int, lost: int) -> Cursor | None:
        """Its consumer goes on at `position`, and misses `lost` records by that.

        Returns None if that is known already, or if there is no such index any more.
        """
        known = self.leading.get(name)
        if known is None or known.position >= position:
            return None
        # A former consumer may have missed some of them, which are counted then.
        more = min(lost, position - known.position)
        return self._lead(name, known._replace(position=position, lost=known.lost + more))

    def delete(self, name: str) -> bool:
        known = self.leading.pop(name, None)
        self._retire(known)
        return known is not None

    def apply(self, changes: Changes) -> None:
        for name, cursor in changes.items():
            if cursor is None:
                self._retire(self.applied.pop(name, None))
            else:
                self.applied[name] = cursor

    def replay(self, changes: Changes) -> None:
        """A committed entry read back from the log."""
        self.apply(changes)
        self.leading = dict(self.applied)

    def held_from(self) -> int | None:
        """The oldest offset that an index holds back from retention, or will when committed."""
        every = (*self.applied.values(), *self.leading.values())
        return min((each.position for each in every if each.hold_retention), default=None)

    def _retire(self, cursor: Cursor | None) -> None:
        if cursor is not None:
            self.retired_epoch = max(self.retired_epoch, cursor.epoch)

    def _lead(self, name: str, cursor: Cursor) -> Cursor:
        self.leading[name] = cursor
        return cursor
