"""Majorities: of one set of voters, and of both sets while the membership changes.

A *half* is the voters of one configuration. A joint configuration has two halves, and what it
decides needs the majority of each (Raft paper, section 6; dissertation 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def reached(values: Sequence[int]) -> int:
    """The greatest number that a majority of one half has reached."""
    return sorted(values)[(len(values) - 1) // 2]


def outcome(halves: Iterable[Sequence[str]], votes: Mapping[str, bool]) -> bool | None:
    """True: each half has a majority of yes. False: one cannot get it any more. None: open."""
    verdicts = [_of_half(half, votes) for half in halves]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _of_half(half: Sequence[str], votes: Mapping[str, bool]) -> bool | None:
    needed = len(half) // 2 + 1
    if sum(votes.get(peer, False) for peer in half) >= needed:
        return True
    open_or_yes = sum(votes.get(peer, True) for peer in half)
    return None if open_or_yes >= needed else False
