"""What can be set: for the whole store, and for one group. The defaults suit a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hocket.model import DAY_US, MINUTE_US, SECOND_US

IMAGE_IS_LARGE = 1 << 20  # a checkpoint with fewer bytes costs little more than its sync
IMAGES = 4  # checkpoints that are due for the WAL's sake write no more than its bytes, over this
IMAGE_BYTES_A_SECOND = 1 << 20  # written of states where little else is written ...
HURRIED_BYTES_A_SECOND = 16 << 20  # ... and where entries have to leave memory
INTERVALS_MAX = 12  # but no checkpoint waits for longer than so many intervals


class CheckpointDue(NamedTuple):
    """A checkpoint is due after so many bytes of WAL; or after so much time, in microseconds, and
    after less if entries have to leave memory."""

    wal_bytes: int
    interval_us: int
    spacing_us: int


@dataclass(frozen=True, slots=True)
class GroupSettings:
    memory_retention_us: int = 10 * MINUTE_US
    memory_bytes_max: int = 256 << 20  # wins over the time
    segment_bytes_max: int = 64 << 20
    is_awaited: bool = True  # somebody waits until entries are durable: they are written at once
    may_leave: bool = False  # old segments may go to a storage tier, if there is one


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Limits of a store. Tests make them tiny, so that every edge is met often."""

    where: str = "the data directory"  # for messages
    new_store_id: str = ""  # of a store that is created; by chance if empty
    new_groups: tuple[int, ...] = ()  # that a store which is created has from the beginning
    wal_file_bytes: int = 64 << 20  # new WAL files double in size up to this
    wal_file_bytes_min: int = 1 << 20  # the first WAL file, so that a small broker starts at once
    wal_files_ready: int = 1  # how many WAL files are made ahead of use
    # How many that are free again are kept for further use, where the disk has ample room. A file
    # is free when a checkpoint is through, and the next is made when one is full, before that: were
    # no more kept than are made, each would be filled with zeros and used once.
    wal_files_kept: int = 2
    commit_bytes_max: int = 16 << 20  # of one group commit (a larger entry goes alone)
    undurable_bytes_max: int = 64 << 20  # with more appended and not durable it is `congested`
    unwritten_bytes_max: int = 256 << 20  # with more not in segments yet it is `congested`
    waiting_bytes_max: int = 64 << 20  # of one group, durable and not applied: then it is `Busy`
    wal_kept_bytes_max: int = 256 << 20  # with more kept for groups that wait, they are carried on
    checkpoint_bytes: int = 32 << 20  # a checkpoint is due after this much WAL ...
    checkpoint_interval_us: int = 5 * SECOND_US  # ... or this much time, if anything was appended
    checkpoint_spacing_us: int = 50_000  # at least, between checkpoints for the sake of memory
    mark_after_us: int = 200_000  # a log that is idle this long marks in the WAL what is durable
    retry_us: int = SECOND_US  # a full disk is tried again after this
    slab_bytes: int = 1 << 20
    slab_bytes_min: int = 4 << 10
    index_interval_bytes: int = 64 << 10
    reserve_bytes: int = 1 << 20  # kept aside so that a full disk can still be tidied
    wal_reserve_bytes: int = 256 << 10  # the same, for the entries that say what is to be removed
    scrub_interval_us: int = DAY_US  # between two passes of the scrub; 0: never by itself
    scrub_step_bytes: int = 1 << 20  # how much the scrub reads in one tick

    def checkpoint_after(self, image_bytes: int) -> CheckpointDue:
        """When the next one is due, if the last one took so many bytes beside its segments.

        A large state (a million delayed messages) must not be written over and over: neither in a
        log that is busy nor in one where little happens. Recovery from a crash reads as much WAL
        as this allows. That is less than what would make producers wait for the checkpoint.
        """
        if image_bytes < IMAGE_IS_LARGE:
            image_bytes = 0
        longest_us = INTERVALS_MAX * self.checkpoint_interval_us
        return CheckpointDue(
            max(self.checkpoint_bytes, min(IMAGES * image_bytes, self.unwritten_bytes_max // 2)),
            max(
                self.checkpoint_interval_us,
                min(image_bytes * SECOND_US // IMAGE_BYTES_A_SECOND, longest_us),
            ),
            max(
                self.checkpoint_spacing_us,
                min(image_bytes * SECOND_US // HURRIED_BYTES_A_SECOND, longest_us),
            ),
        )
