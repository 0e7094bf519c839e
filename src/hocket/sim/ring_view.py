"""A ring at one moment, as an observer sees it: the state that Zave's invariants speak of.

A `RingView` holds what the production cores of the live members hold, and nothing else; the rest
here are pure functions of it. The definitions are those of P. Zave, "Reasoning about identifier
spaces: how to make Chord correct" (IEEE TSE 2017), and of her Alloy model, by the same names:

- the *extended successor list* of a member is the member followed by its successor list;
- a list *skips* what lies strictly between two entries that stand next to each other in it;
- a *principal* is a member that no member's extended successor list skips;
- the *best successor* is the first entry that is alive;
- a *ring member* comes back to itself by way of best successors; other members are *appendages*;
- a ring is *ideal* if every list is exact and every predecessor is the inverse of the first
  successor.

An identifier here is a position together with an incarnation: a node that has begun a new life is
somebody else, who stands just behind the life that is over. So a list that still names the old life
skips the new one, and whoever drops the old life loses nobody.

What is shared between the invariants is worked out once per view, when it is first asked for. The
arithmetic of the circle is written here a second time on purpose: what checks must not share a
mistake with what is checked.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Protocol

from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings

_LIVES = 64  # bits for the incarnation, below the position's


class RingLike(Protocol):
    """What is read of the production core."""

    @property
    def me(self) -> Contact: ...
    @property
    def standing(self) -> object: ...  # a StrEnum, or its text
    @property
    def successors(self) -> Sequence[Contact]: ...
    @property
    def predecessor(self) -> Contact | None: ...
    @property
    def asking(self) -> bool: ...
    @property
    def settings(self) -> RingSettings: ...


class RegistryLike(Protocol):
    """What a node of a small ring knows of the registry."""

    @property
    def version(self) -> int: ...
    @property
    def members(self) -> tuple[Contact, ...]: ...


class CoreLike(RingLike, Protocol):
    """All of the production core that the simulator looks at."""

    @property
    def small(self) -> RegistryLike: ...


def spot(contact: Contact) -> int:
    """A contact's number in the order of identifiers."""
    return contact.position << _LIVES | contact.incarnation


def between(start: int, point: int, end: int) -> bool:
    """Whether a point lies strictly between two others, going clockwise.

    Between a point and itself lies every other point.
    """
    if start == end:
        return point != start
    if start > end:
        return not end <= point <= start
    return start < point < end


class Member:
    """One live member, as its own core sees the ring."""

    __slots__ = (
        "_is_ordered",
        "asking",
        "is_unique",
        "me",
        "predecessor",
        "spot",
        "spots",
        "successors",
    )

    def __init__(
        self,
        me: Contact,
        successors: Sequence[Contact],
        predecessor: Contact | None,
        *,
        asking: bool = False,
    ) -> None:
        self.me = me
        self.successors = tuple(successors)
        self.predecessor = predecessor
        self.asking = asking
        self.spot = me.position << _LIVES | me.incarnation
        self.spots = [entry.position << _LIVES | entry.incarnation for entry in self.successors]
        positions = {entry.position for entry in self.successors}
        positions.add(me.position)
        self.is_unique = len(positions) > len(self.successors)  # no position stands there twice
        self._is_ordered: bool | None = None

    @property
    def is_ordered(self) -> bool:
        """Of any three entries of the extended list the second lies between the other two."""
        if self._is_ordered is None:
            # Going on, and never coming past the start: then all triples are in order.
            self._is_ordered = all(
                last == next_ or between(self.spot, last, next_)
                for last, next_ in pairwise(self.spots)
            )
        return self._is_ordered

    def __repr__(self) -> str:
        names = " ".join(map(name, self.successors)) or "-"
        before = "-" if self.predecessor is None else name(self.predecessor)
        return f"{name(self.me)}: successors {names}, predecessor {before}" + (
            ", asking" if self.asking else ""
        )


def name(contact: Contact) -> str:
    """The contact in the form that timelines show."""
    return f"{contact.node}/{contact.incarnation}"


class RingView:
    """All live members at one moment, by position."""

    def __init__(
        self, members: Iterable[Member], *, successors: int, quiet: bool = True, small: int = 0
    ) -> None:
        self.members = sorted(members, key=_by_spot)
        self.successors = successors  # how long lists are to be: the model's r
        self.quiet = quiet  # no node's pointers are undefined, neither a member's nor a joiner's
        self.small = small  # live nodes that live by the registry instead
        self.spots = [member.spot for member in self.members]

    @cached_property
    def by_contact(self) -> dict[Contact, Member]:
        return {member.me: member for member in self.members}

    @cached_property
    def by_spot(self) -> dict[int, Member]:
        return {member.spot: member for member in self.members}

    @cached_property
    def skipped(self) -> dict[int, Member]:
        """Members that some list of successors skips, each with a member whose list does."""
        spots = self.spots
        follows = dict(zip(spots, [*spots[1:], *spots[:1]], strict=True))
        skipped: dict[int, Member] = {}
        for member in self.members:
            start = member.spot
            for end in member.spots:
                if follows.get(start) != end:  # else nobody lies between, which is the usual case
                    skipped.update(dict.fromkeys(self._inside(start, end), member))
                start = end
        return skipped

    def _inside(self, start: int, end: int) -> list[int]:
        """The members strictly between the two, going clockwise."""
        spots = self.spots
        first, last = bisect_right(spots, start), bisect_left(spots, end)
        if start < end:
            return spots[first:last]
        return [spot_ for spot_ in (*spots[first:], *spots[:last]) if spot_ != start]

    @cached_property
    def principals(self) -> list[Member]:
        skipped = self.skipped
        return [member for member in self.members if member.spot not in skipped]

    @cached_property
    def best(self) -> dict[int, int]:
        """The best successor of each member that has one."""
        alive, best = self.by_spot, {}
        for member in self.members:
            for entry in member.spots:
                if entry in alive:
                    best[member.spot] = entry
                    break
        return best

    @cached_property
    def rings(self) -> list[list[int]]:
        """Every cycle along best successors, in its own order."""
        best, walked, rings = self.best, dict[int, int](), []
        for number, spot_ in enumerate(self.spots):
            at: int | None = spot_
            while at is not None and at not in walked:
                walked[at] = number
                at = best.get(at)
            if at is not None and walked[at] == number:
                ring, here = [at], best[at]
                while here != at:
                    ring.append(here)
                    here = best[here]
                rings.append(ring)
        return rings

    @cached_property
    def on_a_ring(self) -> dict[int, int]:
        """Ring members, each with the number of its ring."""
        return {spot_: number for number, ring in enumerate(self.rings) for spot_ in ring}

    @cached_property
    def is_ideal(self) -> bool:
        return self.difference is None

    @cached_property
    def difference(self) -> str | None:
        """What is not ideal about this ring; None: it is ideal."""
        members = self.members
        count = len(members)
        length = min(self.successors, count - 1)
        around = [member.me for member in members] * 2  # so that a slice need not turn round
        for at, member in enumerate(members):
            before = around[at - 1] if count > 1 else None
            if member.predecessor != before:
                wanted = "nobody" if before is None else name(before)
                return f"{member}; the predecessor should be {wanted}"
            exact = tuple(around[at + 1 : at + 1 + length])
            if member.successors != exact:
                return f"{member}; the successors should be {' '.join(map(name, exact))}"
        return None

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.members))


def _by_spot(member: Member) -> int:
    return member.spot


def snapshot(rings: Iterable[RingLike], before: RingView | None = None) -> RingView:
    """The members among the cores of all machines that are up.

    With an earlier view of the same cluster it is cheaper: who has not changed is not read again.
    """
    known = {} if before is None else before.by_contact
    members, quiet, small, successors = [], True, 0, 0
    for ring in rings:
        standing = ring.standing
        if ring.asking:
            quiet = False
        if standing == "member":
            successors = ring.settings.successors
            members.append(_member(ring, known.get(ring.me)))
        elif standing == "small":
            small += 1
    return RingView(members, successors=successors, quiet=quiet, small=small)


def _member(ring: RingLike, known: Member | None) -> Member:
    successors = tuple(ring.successors)
    if (
        known is not None
        and known.asking == ring.asking
        and known.predecessor == ring.predecessor
        and known.successors == successors
    ):
        return known
    return Member(ring.me, successors, ring.predecessor, asking=ring.asking)


def principals(view: RingView) -> list[Contact]:
    return [member.me for member in view.principals]


def is_ideal(view: RingView) -> bool:
    return view.is_ideal


def ring_members(view: RingView) -> list[Contact]:
    return [member.me for member in view.members if member.spot in view.on_a_ring]


def appendages(view: RingView) -> list[Contact]:
    return [member.me for member in view.members if member.spot not in view.on_a_ring]


def may_fail(view: RingView, contact: Contact, successors: int) -> bool:
    """Fail's preconditions in the model: nobody is left without a live successor, and a principal
    fails only if there are more than `successors` + 1 of them.

    A member that is asking may be about to take over what it was told: it must do no harm either if
    it already had.
    """
    victim = spot(contact)
    if victim not in view.by_spot:
        return True
    return all(
        _may_fail(possible, victim, successors) for possible in (view, _after_all_answers(view))
    )


def _may_fail(view: RingView, victim: int, successors: int) -> bool:
    alive = view.by_spot
    for member in view.members:
        if member.spot != victim and not any(
            entry in alive and entry != victim for entry in member.spots
        ):
            return False
    return victim in view.skipped or len(view.principals) > successors + 1


def _after_all_answers(view: RingView) -> RingView:
    """The state as if every node that asks had been answered by the last node it would ask."""
    if not any(member.asking for member in view.members):
        return view
    return RingView(
        [_after_the_answer(view, member) for member in view.members], successors=view.successors
    )


def _after_the_answer(view: RingView, member: Member) -> Member:
    if not member.asking or not member.successors:
        return member
    asked = view.by_spot.get(member.spots[0])
    if asked is None:
        return member
    if asked.predecessor is not None:
        nearer = view.by_spot.get(spot(asked.predecessor))
        if nearer is not None and between(member.spot, nearer.spot, asked.spot):
            asked = nearer
    taken = (asked.me, *asked.successors)[: view.successors]
    return Member(member.me, taken, member.predecessor, asking=True)


def effective_step(view: RingView) -> str | None:
    """A step of the protocol that would change this state, in words; None if there is none."""
    for member in view.members:
        step_ = _effective_step_of(view, member)
        if step_ is not None:
            return step_
    return None


def _effective_step_of(view: RingView, member: Member) -> str | None:
    if not member.successors:
        return None
    alive, me = view.by_spot, name(member.me)
    head = alive.get(member.spots[0])
    if head is None:
        return f"{me} drops {name(member.successors[0])}, which is dead"
    taken = [head.spot, *head.spots]
    if member.spot in taken:
        taken = taken[: taken.index(member.spot)]
    if member.spots != taken[: view.successors]:
        return f"{me} stabilizes from its successor {name(head.me)}"
    if head.predecessor is not None:
        nearer = spot(head.predecessor)
        if nearer in alive and between(member.spot, nearer, head.spot):
            return f"{me} stabilizes from the predecessor of {name(head.me)}"
        if nearer == member.spot:
            return None
    # It has no predecessor, or a dead one, or one behind us: any other would be in between.
    return f"{name(head.me)} rectifies with {me}"
