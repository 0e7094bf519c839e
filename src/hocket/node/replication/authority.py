"""Whether nobody else can lead a group yet: what a leader needs to know before it leases messages.

Whatever is an entry of the log needs no such knowledge: it counts when it is committed. A lease is
given at once, and a leader that stood still, or was cut off, must not give one: the next leader may
have ended its time of withholding by then. So a leader leases only for a while after a majority has
confirmed, when asked, that it follows; the time counts from the question, wherever the answers
were meanwhile. Whoever has confirmed that elects nobody else for the least election timeout, unless
it sees that the leader is gone: its link has ended, and dialling it again is refused. Something
between the two nodes can look like that, while the leader lives. So a new leader counts the leases
of the former one as if they were given until an election timeout after it has begun itself
(`outlasts_us`).
"""

from __future__ import annotations

from collections.abc import Callable

from hocket.core.raft.group import Group


class Authority:
    """`may`: this node leads the group, and is not about to hand it over."""

    def __init__(
        self,
        group: Group,
        now_us: Callable[[], int],
        read: Callable[[Callable[[bool], None]], None],
        may: Callable[[], bool],
    ) -> None:
        self._group = group
        self._now_us = now_us
        self._read = read
        self._may = may
        election_us = group.host.settings.election_us
        self._lasts_us = election_us * 9 // 10  # clocks may go a little differently
        self.outlasts_us = election_us  # so long after another one has begun it is over for certain
        self._renewed_us = election_us // 4  # it is asked for again when it is so old
        self._since = (-1, 0)  # the term, and when it was asked for
        self._is_asking = False

    def holds(self) -> bool:
        """Whether this node may lease messages now. Asks for more time before that is over."""
        term, since_us = self._since
        age_us = self._now_us() - since_us
        if term != self._group.term or not self._may() or age_us >= self._lasts_us:
            return False
        if age_us >= self._renewed_us and not self._is_asking:
            self.confirm(_nothing)
        return True

    def confirm(self, answered: Callable[[bool], None]) -> None:
        """Ask the others; `answered` is told whether this node leads."""
        term, asked_us = self._group.term, self._now_us()
        self._is_asking = True

        def heard(leads: bool) -> None:
            self._is_asking = False
            if leads and self._may() and self._group.term == term:
                self._since = max(self._since, (term, asked_us))
            answered(leads)

        self._read(heard)


def _nothing(_leads: bool) -> None:
    pass
