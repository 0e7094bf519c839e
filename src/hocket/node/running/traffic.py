"""What a node holds, and what it has taken and given since it was opened: for people.

Counted by the batch, never by the record.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Traffic:
    """Bytes are those of batches, as they are stored. What was delivered twice is given twice."""

    records_taken: int = 0
    bytes_taken: int = 0
    records_given: int = 0
    bytes_given: int = 0


@dataclass(slots=True)
class Holdings:
    topics: int = 0
    partitions: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0  # of partitions' own files; what is younger is in the write-ahead log
    durability: dict[str, int] = field(default_factory=dict)  # how many topics have which
