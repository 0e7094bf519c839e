"""Who was not let in before anybody knew who it is: TLS handshakes that failed, and nodes' hellos.

Each is a line of the log for people and an entry of the audit log, as long as there are few. Of a
flood the first of each minute are named, and the others are counted, with where they came from.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from time import monotonic

from hocket.node.identity import audit
from hocket.node.identity.ration import Ration

log = logging.getLogger("hocket.links")

LINES_MAX = 20  # that name somebody, in a minute
COUNTED_MAX = 1_000  # addresses that are told apart in a minute
SHOWN_MAX = 10  # addresses in one line, those with most refusals
_OTHERS = "others"


class Refusals:
    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._ration = Ration(LINES_MAX, self._say_rest, clock)
        self._left_out: Counter[str] = Counter()  # by address

    def handshake(self, address: str, why: str) -> None:
        """TLS was begun with somebody at this port, and did not come about."""
        if self._takes(address):
            log.info("the TLS handshake with %s failed: %s", address, why)
            audit.handshake_refused(address, why)

    def link(self, address: str, node: str, code: str, why: str) -> None:
        """Somebody who says that it is a node, with this store id, is not let in."""
        if self._takes(address):
            log.warning("refused a link from %s: %s", address, why)
            audit.link_refused(address, node, code, why)

    def node(self, address: str, why: str) -> None:
        """A node that this one has called, or was to call, is not believed. The links log it."""
        if self._takes(address):
            audit.node_refused(address, why)

    def tick(self) -> None:
        self._ration.tick()

    def _takes(self, address: str) -> bool:
        if self._ration.take():
            return True
        is_counted = address in self._left_out or len(self._left_out) < COUNTED_MAX
        self._left_out[address if is_counted else _OTHERS] += 1
        return False

    def _say_rest(self, count: int) -> None:
        most = self._left_out.most_common(SHOWN_MAX)
        rest = len(self._left_out) - len(most)
        self._left_out.clear()
        shown = ", ".join(f"{address} ({times})" for address, times in most)
        audit.more_refused(count, shown + (f", and {rest} more addresses" if rest else ""))
