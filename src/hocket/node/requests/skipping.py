"""An own index is moved past messages that cannot be read, and past nothing else.

Rule 1: only what cannot be read is passed: the messages from the index's own position on. What lies
        before them is consumed and acknowledged first, so that no message is passed unseen.
Rule 2: it is a commit, in the name of whoever consumes the index: it moves the index forward only,
        and what was acknowledged stays so.

The log may have to ask its disk, so the answer may come turns later.
"""

from __future__ import annotations

from functools import partial

from hocket import frames
from hocket.core.origin import Origin
from hocket.core.partition import events
from hocket.core.session.session import failure
from hocket.errors import (
    CorruptData,
    HocketError,
    OutOfRange,
    UnknownIndex,
    UnknownTopic,
    WrongKind,
)
from hocket.frames import packed
from hocket.log.model import FileUnreadable, ReadResult
from hocket.node.requests.operations import Operation, Operations
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring
from hocket.wire.batch import iterate_entries, parse


class Skip:
    """One request to move an index past what it stands at."""

    def __init__(
        self,
        wiring: Wiring,
        operations: Operations,
        connection: int,
        frame: frames.SkipUnreadable,
        hosted: Hosted,
    ) -> None:
        self._wiring = wiring
        self._operations = operations
        self._connection = connection
        self._frame = frame
        self._hosted = hosted
        self._position = 0  # of the index

    def begin(self) -> None:
        """Raises for an index that is shared, or has not come to the offset yet."""
        frame, core = self._frame, self._hosted.core
        cursor = core.cursors.leading.get(frame.index)
        if cursor is not None and cursor.mode != "own":
            raise WrongKind(
                f"index {frame.index!r} of topic {frame.topic!r} is shared: what cannot be read is "
                "set aside by itself, as dead letters (hocket dlq list)"
            )
        self._position = max(cursor.position if cursor else 0, core.start)
        if frame.offset >= core.high_watermark:
            raise OutOfRange(
                f"offset {frame.offset} lies beyond partition {core.number}'s end at "
                f"{core.high_watermark}"
            )
        if frame.offset < self._position:
            self._commit(self._position)  # it is past that already: confirm it
            return
        try:
            read = self._wiring.log.read(
                self._hosted.group,
                self._position,
                bytes_max=1,
                end_offset=self._position + 1,
                done=self._read_later,
            )
        except CorruptData as error:
            self._found(error)
        else:
            if read is not None:
                self._found(read)

    def _read_later(self, read: ReadResult | HocketError) -> None:
        try:
            if not self._wiring.partitions.holds(self._hosted):
                raise UnknownTopic("the topic was deleted meanwhile")
            self._found(read)
        except HocketError as error:
            self._wiring.network.send(self._connection, failure(self._frame.request, error))

    def _found(self, read: ReadResult | HocketError) -> None:
        if isinstance(read, FileUnreadable):
            raise read  # the disk may hand it out later: then nothing is passed
        if isinstance(read, CorruptData) and read.end is not None:
            end = read.end
        elif isinstance(read, HocketError):
            raise read
        else:
            end = unreadable_until(read, self._position)
        offset, where = self._frame.offset, f"index {self._frame.index!r} is at {self._position}"
        if end <= self._position:
            raise OutOfRange(
                f"{where}, which can be read: consume and acknowledge what lies before offset "
                f"{offset} first (or move the index anywhere with a seek)"
            )
        if offset >= end:
            raise OutOfRange(
                f"{where}, and offsets {self._position} to {end - 1} cannot be read there; "
                f"{offset} lies behind them: name one of them"
            )
        self._commit(min(end, self._hosted.core.high_watermark))

    def _commit(self, position: int) -> None:
        index = self._frame.index
        cursor = self._hosted.core.cursors.leading.get(index)
        if cursor is None:
            raise UnknownIndex(f"index {index!r} was never in this partition, or was deleted")
        self._wiring.partitions.admit_progress(self._hosted.group)
        done = partial(self._done, position)
        operation = self._operations.begin(self._connection, self._frame.topic, 1, done)
        origin = Origin(self._connection, 0, operation)
        self._wiring.partitions.step(
            self._hosted, events.CommitIndex(origin, index, cursor.epoch, position)
        )

    def _done(self, position: int, operation: Operation) -> None:
        answer: frames.Frame = frames.Offsets(self._frame.request, packed([position]))
        if operation.error is not None:
            answer = failure(self._frame.request, operation.error)
        self._wiring.network.send(operation.connection, answer)


def unreadable_until(read: ReadResult, offset: int) -> int:
    """The end of the messages from `offset` on that cannot be read; `offset` if it can be."""
    for piece in read.slices:
        for position, header in iterate_entries(piece):
            if not header.base_offset <= offset < header.end_offset:
                continue
            try:
                batch = parse(piece, position)
            except CorruptData:
                return header.end_offset
            return batch.base_offset + batch.unreadable_run(offset - batch.base_offset)
    return offset
