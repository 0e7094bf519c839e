"""Which offsets a `Start` means: the question that an open, a seek and FindOffsets ask.

"earliest", "latest" and an offset are answered at once. A time may have to ask the disk: the log
knows which batch reaches that time, and the batch itself says which of its records does. So the
answer to a question may come turns later, when the topic is gone or nobody waits any more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hocket.core.session.session import failure, offset_of
from hocket.errors import HocketError, UnknownTopic
from hocket.log.model import OffsetDone, ReadResult
from hocket.model import Start
from hocket.node.running.partitions import Hosted
from hocket.node.wiring import Wiring
from hocket.wire.batch import parse

Found = Callable[[dict[int, int]], None]  # partition -> offset


class StartOffsets:
    """One request's question: the offset that a start means in each of some partitions.

    `found` is called with all the offsets, each within its partition. If one of them cannot be
    found, or `found` raises, the request is answered with the error instead.
    """

    def __init__(
        self,
        wiring: Wiring,
        connection: int,
        request: int,
        partitions: dict[int, Hosted],
        found: Found,
    ) -> None:
        self._wiring = wiring
        self._connection = connection
        self._request = request
        self._partitions = partitions
        self._found = found
        self._offsets: dict[int, int] = {}
        self._failed = False

    def resolve(self, start: Start) -> None:
        for number, hosted in self._partitions.items():
            core = hosted.core
            offset = offset_of(start, log_start=core.start, end=core.high_watermark)
            have = partial(self._have, number)
            if offset is None:
                TimeSearch(self._wiring, hosted, start.value, have).begin()
            else:
                have(offset)
        if not self._partitions:
            self._found(self._offsets)

    def _have(self, number: int, offset: int | HocketError) -> None:
        if self._failed:
            return
        if isinstance(offset, HocketError):
            self._fail(offset)
            return
        core = self._partitions[number].core
        self._offsets[number] = min(max(offset, core.start), core.high_watermark)
        if len(self._offsets) == len(self._partitions):
            self._have_all()

    def _have_all(self) -> None:
        # The disk may have been asked: then nobody else hears of what goes wrong from here on.
        try:
            if not all(map(self._wiring.partitions.holds, self._partitions.values())):
                raise UnknownTopic("the topic was deleted meanwhile")
            self._found(self._offsets)
        except HocketError as error:
            self._fail(error)

    def _fail(self, error: HocketError) -> None:
        self._failed = True
        self._wiring.network.send(self._connection, failure(self._request, error))


class TimeSearch:
    """The first record of one partition that is not older than a time."""

    def __init__(self, wiring: Wiring, hosted: Hosted, time_us: int, done: OffsetDone) -> None:
        self._wiring = wiring
        self._hosted = hosted
        self._time_us = time_us
        self._done = done

    def begin(self) -> None:
        log = self._wiring.log
        offset = log.offset_at_time(self._hosted.group, self._time_us, self._batch_found)
        if offset is not None:
            self._batch_found(offset)

    def _batch_found(self, offset: int | HocketError) -> None:
        """The log knows the first offset of a batch that reaches the time; open that batch."""
        hosted = self._hosted
        is_gone = not self._wiring.partitions.holds(hosted)
        if isinstance(offset, HocketError) or is_gone or offset >= hosted.core.high_watermark:
            self._done(offset)
            return
        try:
            read = self._wiring.log.read(
                hosted.group, offset, bytes_max=1, end_offset=offset + 1, done=self._batch_read
            )
        except HocketError as error:
            self._done(error)
            return
        if read is not None:
            self._batch_read(read)

    def _batch_read(self, read: ReadResult | HocketError) -> None:
        if isinstance(read, HocketError):
            self._done(read)
            return
        try:
            offset = first_record_at(read, self._time_us)
        except HocketError as error:  # a producer may write nonsense with a right checksum
            self._done(error)
        else:
            self._done(offset)


def first_record_at(read: ReadResult, time_us: int) -> int:
    if not read.slices:
        return read.end_offset
    batch = parse(read.slices[0], verify=False)
    later = (at for at, stamp in enumerate(batch.timestamps()) if stamp >= time_us)
    return batch.base_offset + next(later, batch.count)
