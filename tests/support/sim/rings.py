"""Rings made by hand, for tests of what looks at rings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from hocket.core.ring.contact import Contact
from hocket.core.ring.settings import RingSettings
from hocket.sim.ring_view import Member, RingView


def at(position: int, incarnation: int = 1) -> Contact:
    return Contact(position, f"n{position}", incarnation, f"n{position}:1")


def member(
    position: int,
    successors: Sequence[int | Contact],
    predecessor: int | Contact | None = None,
    *,
    asking: bool = False,
) -> Member:
    return Member(
        at(position),
        [at(entry) if isinstance(entry, int) else entry for entry in successors],
        at(predecessor) if isinstance(predecessor, int) else predecessor,
        asking=asking,
    )


def ideal(positions: Sequence[int], r: int) -> dict[int, Member]:
    """By position, to be made worse."""
    around = [*positions, *positions]
    return {
        position: member(
            position,
            around[place + 1 : place + 1 + min(r, len(positions) - 1)],
            around[place - 1] if len(positions) > 1 else None,
        )
        for place, position in enumerate(positions)
    }


def view(members: Iterable[Member], r: int = 2, *, quiet: bool = True, small: int = 0) -> RingView:
    return RingView(members, successors=r, quiet=quiet, small=small)


@dataclass
class Registry:
    version: int = -1
    members: tuple[Contact, ...] = ()


@dataclass
class Ring:
    """What is looked at of the production core."""

    me: Contact
    successors: list[Contact] = field(default_factory=list)
    predecessor: Contact | None = None
    standing: str = "member"
    asking: bool = False
    settings: RingSettings = field(default_factory=lambda: RingSettings(successors=2))
    small: Registry = field(default_factory=Registry)


def rings(members: Iterable[Member], r: int = 2) -> list[Ring]:
    return [
        Ring(
            each.me,
            list(each.successors),
            each.predecessor,
            asking=each.asking,
            settings=RingSettings(successors=r),
        )
        for each in members
    ]
