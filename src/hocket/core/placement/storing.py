"""What nodes say to each other to store a batch in a partition that another node holds.

The producer of such a batch is the node itself, under an id that follows from what is stored. So a
batch that comes again, because an answer was lost or a node has crashed, is stored once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

StoreOutcome = Literal["stored", "refused", "not_mine", "gone"]


class StoredBatch(NamedTuple):
    """A batch as it lies in a log: `end` is the number of its records, `start` is 0."""

    start: int
    end: int
    data: bytes


@dataclass(slots=True)
class StoreBatch:
    """Append this batch to a partition, unless its producer has stored it there already."""

    request: int
    group: int
    batches: tuple[StoredBatch, ...] = field(repr=False)


@dataclass(slots=True)
class BatchStored:
    """The answer to `StoreBatch`.

    `gone` is said if the deletion of the topic is committed, and never because the partition is
    not here.
    """

    request: int
    outcome: StoreOutcome
    code: str = ""  # of the error, if the outcome is "refused"
    text: str = ""  # of the error, for people


StoringMessage = StoreBatch | BatchStored
