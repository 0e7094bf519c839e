"""How long a node that keeps coming back stays away.

Every join changes the lists of its neighbours. A node that starts over and over (its process dies,
its network comes and goes) would keep them busy, so each time it waits twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.core.ring.settings import SECOND

WINDOW_US = 600 * SECOND
WAIT_US_MAX = 300 * SECOND


def wait_us(joins_us: Sequence[int], now_us: int) -> int:
    """Before it joins now, having joined at those times; nothing unless some are recent."""
    # Clocks are set back, too: what lies far ahead is as old as anything.
    recent = sum(abs(now_us - join_us) < WINDOW_US for join_us in joins_us)
    # The power is bounded before it is taken: a memory may hold many joins.
    return min(SECOND << min(recent, 10), WAIT_US_MAX) if recent else 0
