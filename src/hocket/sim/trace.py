"""What happened in a run: a hash of everything, and the last lines for people.

Every event adds one line to the hash, so two runs are the same if their hashes are. Nothing in a
line may depend on the process it ran in: no `id`, no `hash` of a string, no order of a set. Lines
for people are kept as they came and put into words only when somebody wants to read them.
"""

from __future__ import annotations

from collections import deque
from hashlib import blake2b

HASHED_TOGETHER = 512  # lines that are encoded at once, which is cheaper
TOLD_MAX = 400  # lines for people; what was before that is forgotten


class Trace:
    def __init__(self, start_us: int) -> None:
        self._start_us = start_us
        self._digest = blake2b(digest_size=16)
        self._lines: list[str] = []
        self._told: deque[tuple[int, str, str, tuple[object, ...]]] = deque(maxlen=TOLD_MAX)

    def event(self, now_us: int, machine: str, what: str) -> None:
        """Something that only the hash needs; there are hundreds of these a second."""
        self._lines.append(f"{now_us} {machine} {what}")
        if len(self._lines) == HASHED_TOGETHER:
            self._flush()

    def tell(self, now_us: int, machine: str, text: str, *values: object) -> None:
        """Something a reader wants to know: `text` has a `{}` for each of the values.

        The values are kept until then, so they must be such as do not change: text and numbers.
        """
        self.event(now_us, machine, f"{text} {values}")
        self._told.append((now_us, machine, text, values))

    def timeline(self, count: int = TOLD_MAX) -> list[str]:
        """The newest lines, oldest first; times are seconds since the run began."""
        return [
            f"{(now_us - self._start_us) / 1e6:10.6f}  {machine:<5} {text.format(*values)}"
            for now_us, machine, text, values in list(self._told)[-count:]
        ]

    def hash(self) -> str:
        """The hash of everything that has happened so far."""
        self._flush()
        return self._digest.hexdigest()

    def _flush(self) -> None:
        if self._lines:
            self._digest.update("\n".join([*self._lines, ""]).encode())
            self._lines.clear()
