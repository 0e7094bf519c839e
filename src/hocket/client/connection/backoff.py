"""How long to wait before trying again: longer each time, and never two clients in step."""

from __future__ import annotations

from random import Random

FIRST_US = 20_000
MOST_US = 5_000_000


class Backoff:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._next_us = FIRST_US

    def next_us(self) -> int:
        delay = self._next_us
        self._next_us = min(2 * delay, MOST_US)
        # Half of it by chance: clients that lost one broker at once come back one by one.
        return round(delay * (0.5 + 0.5 * self._random.random()))

    def reset(self) -> None:
        self._next_us = FIRST_US
