"""The state of a group on its way to a node whose log lies too far behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.core.raft.messages import Snapshot
from hocket.core.raft.raft import Raft
from hocket.errors import HocketError, OutOfRange
from hocket.log.model import LogEnd, RawEntries
from hocket.log.replicated import ReplicatedLogs
from hocket.node.raft_mail import Letter, State, packed_state
from hocket.wire.entry import unpack_header


class StateSending:
    """`lost` is told of a node that could not be sent the state, and why."""

    def __init__(
        self,
        raft: Raft,
        log: ReplicatedLogs,
        post: Callable[[str, Letter], None],
        lost: Callable[[str, HocketError], None],
    ) -> None:
        self._raft = raft
        self._group = raft.group.id
        self._log = log
        self._post = post
        self._lost = lost

    def send(self, to: str, message: Snapshot) -> None:
        """The state of now, and where the receiver's log begins: behind the snapshot's entry.

        The entries from there on follow; the first one says behind which checksum.
        """
        first = message.index + 1
        end = self._log.bounds(self._group)[2]
        if first == end.next_index:
            self._post_state(to, message, end)
            return
        tell = partial(self._begin_was_read, to, message)
        try:
            found = self._log.read_raw(
                self._group, first, end_index=first + 1, bytes_max=1, done=tell
            )
        except HocketError as error:
            self._lost(to, error)
            return
        if found is not None:
            tell(found)

    def _begin_was_read(self, to: str, message: Snapshot, found: RawEntries | HocketError) -> None:
        if isinstance(found, HocketError):
            self._lost(to, found)
            return
        header = unpack_header(b"".join(found.slices))
        begin = LogEnd(header.index, header.base_offset, header.previous_crc, message.index_term)
        self._post_state(to, message, begin)

    def _post_state(self, to: str, message: Snapshot, begin: LogEnd) -> None:
        start = self._raft.group.outline.start
        if start != message.index:  # the state would tell no terms of what is before that
            self._lost(to, OutOfRange(f"the log begins behind entry {start} by now"))
            return
        snapshot = self._log.take_snapshot(self._group)
        state = State(snapshot.end, begin, snapshot.log_start, snapshot.state)
        data = packed_state(state, message.configuration)
        self._post(to, Letter(self._group, message, data, 0, 1))
