"""How long to wait before trying again: twice as long each time, and by chance a bit less."""

from __future__ import annotations

from random import Random

FIRST_US = 20_000
MOST_US = 5_000_000


class Backoff:
    """The delays of one series of tries; `reset` begins a new series."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next_us = FIRST_US

    def next_us(self) -> int:
        delay = self._next_us
        self._next_us = min(2 * delay, MOST_US)
        # Up to half of it is left to chance, so that clients that lost one broker at once do not
        # come back at once.
        return round(delay * (0.5 + 0.5 * self._random.random()))

    def reset(self) -> None:
        self._next_us = FIRST_US
