"""Reporting records that a query should have read and that are gone, with their exact offsets."""

from __future__ import annotations

import logging

from hocket.errors import HocketError

log = logging.getLogger("hocket.spark")


class DataLoss(HocketError):
    """Records that the query should have read are gone; the message names their offsets.

    `start` and `end` are half-open like every range of offsets. `end` is None where it is not known
    how many records there were, as in a topic that was deleted.
    """

    def __init__(
        self, message: str, *, topic: str = "", partition: int = 0, start: int = 0,
        end: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(message)
        self.topic = topic
        self.partition = partition
        self.start = start
        self.end = end


REMEDY = (
    "The query stops, since what it would have made of them is lost. To go on without them set the "
    "option failOnDataLoss to false; to keep it from happening set holdRetention to true, or keep "
    "more of the topic (hocket topic alter)"
)


def report(
    topic: str, partition: int, start: int, end: int | None, why: str, *, fail: bool
) -> None:
    """Raise DataLoss, or log a warning with the same words if failOnDataLoss is false."""
    if end is None:
        which = f"the records from offset {start} on are gone, nobody knows how many"
    else:
        which = f"{end - start} records are gone, offsets {start} to {end} (that one excluded)"
    text = f"topic {topic!r}, partition {partition}: {which}; {why}"
    if fail:
        raise DataLoss(f"{text}. {REMEDY}", topic=topic, partition=partition, start=start, end=end)
    log.warning("%s. The query goes on without them (failOnDataLoss=false)", text)
