"""Takes old segments to a storage tier, fetches them when they are read, and removes them there.

Rule 1: a segment leaves the disk in this order: the place keeps it, and has handed it out again
        whole; the stub is durable; its file is removed. A crash at any point leaves the file, or
        the stub and what the place keeps.
Rule 2: what the place keeps is removed only when a published checkpoint has the segment no more.
Rule 3: nothing here waits for the place. A read that does is told an error at its deadline, and
        whatever else is asked of the node goes on.

Only segments go of which a published checkpoint says that others follow them: no start of the node
adds entries to such a segment. Files of segments, and those that were fetched, are removed by the
worker `read`, on which all reads run, in order: so no read that has begun misses its file.

The calls of the place run on an executor of their own, which nobody drains: a call that hangs keeps
no node from closing. What a crash leaves in the place is found by a sweep, at the start and then
once a day: keys of segments that this store does not have.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from hocket.deadline import in_seconds
from hocket.log.checkpoint import GroupRecord
from hocket.log.directory import Format
from hocket.log.group import GroupLog
from hocket.log.model import Damage, GroupStats
from hocket.log.segment import Segment, group_directory, segment_path
from hocket.log.settings import LogSettings
from hocket.log.tier import jobs
from hocket.log.tier.place import AwayError, StorageTier
from hocket.log.tier.stub import ENDING, Stub, key_of, stub_path
from hocket.ports import Clock, Disk, Executor

log = logging.getLogger("hocket.log")

T = TypeVar("T")
TICKS_A_SECOND = 10  # `tick` is called about every 100 ms: the wall clock may jump
GROUPS_A_TICK = 100  # looked at for segments that may go
FETCHERS = 4  # segments that are fetched at once
RETRY_TICKS = 1 * TICKS_A_SECOND  # after a failure; doubled with each that follows
RETRY_TICKS_MAX = 300 * TICKS_A_SECOND
READ_WORKER, RECORD_WORKER = "read", "checkpoint"  # of the store's own executor
Then = Callable[[AwayError | None], None]
Published = Callable[[], dict[int, GroupRecord]]  # the groups of the last checkpoint


@dataclass(slots=True)
class _Retry:
    """When something that failed is tried again."""

    at: int = 0
    pause: int = 0

    def failed(self, now: int) -> None:
        self.pause = min(max(2 * self.pause, RETRY_TICKS), RETRY_TICKS_MAX)
        self.at = now + self.pause

    def went_well(self) -> None:
        self.at = self.pause = 0


@dataclass(slots=True, eq=False)
class _Need:
    """A read that waits for segments."""

    lacks: set[Segment]
    segments: tuple[Segment, ...]
    then: Then | None  # None: it was answered
    expires: int


@dataclass(slots=True, eq=False)
class _Fetch:
    segment: Segment
    needs: list[_Need] = field(default_factory=list)
    worker: str = ""  # empty: it waits for one
    overdue: int = 0  # the tick at which its worker counts as stuck


class Tiering:
    """One for a store; without a place it only says where segments are."""

    def __init__(
        self,
        disk: Disk,
        executor: Executor,
        clock: Clock,
        settings: LogSettings,
        groups: dict[int, GroupLog],
        store_id: str,
        form: Format,
        published: Published,
        *,
        has_stubs: bool,
    ) -> None:
        self._disk = disk
        self._executor = executor
        self._clock = clock
        self._settings = settings
        self._groups = groups
        self._store_id = store_id
        self._form = form
        self._published = published
        self._place: StorageTier | None = None
        self._calls: Executor | None = None
        self._stop: Callable[[], None] = lambda: None
        self._gate = jobs.Gate()
        self.name = ""  # of the tier
        self.problem = ""  # why the last call of the place failed, until one goes well
        self.fetched = self.stored = 0  # segments, since the start
        self.keeps_orphans = False  # there is damage: nobody knows what may be of use
        self._now = 0  # in ticks
        self._copying: Segment | None = None
        self._copy_retry = _Retry()
        self._to_look_at: deque[int] = deque()  # groups
        self._fetches: dict[Segment, _Fetch] = {}
        self._free = [f"fetch {number}" for number in range(FETCHERS)]
        self._cached: OrderedDict[Segment, int] = OrderedDict()  # least recently used first
        self._leaving: Counter[str] = Counter()  # files of fetched segments that are to be removed
        self._doomed_keys: list[str] = []
        self._doomed_groups: list[int] = []
        self._is_removing = self._is_sweeping = False
        self._remove_retry = _Retry()
        self._sweep_at = 0
        self._missing: set[Segment] = set()  # away, and not in the place, as the last sweep saw
        if has_stubs:
            self._find_away()

    # --- beginning and end -----------------------------------------------------------------------

    def _find_away(self) -> None:
        """Mark the segments whose stub is there in place of their file. At the start."""
        for group in self._groups.values():
            names = set(self._disk.list(group_directory(group.id)))
            if not any(name.endswith(ENDING) for name in names):
                continue
            for segment in group.segments:
                name = segment.path.rpartition("/")[2]
                if name not in names and stub_path(name) in names:
                    segment.away = segment.full = True
        self._disk.remove_tree(jobs.FETCHED)

    def attach(
        self,
        place: StorageTier,
        name: str,
        calls: Executor,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Use this place from now on. `calls` runs its methods; `stop` ends that, without waiting.

        To be called once, on the node's thread or before it runs.
        """
        assert self._place is None, "a store has one storage tier"
        self._place, self.name, self._calls, self._stop = place, name, calls, stop
        self._disk.remove_tree(jobs.FETCHED)
        self._disk.make_directory(jobs.FETCHED)

    def close(self) -> None:
        """Nothing is written from now on, and nobody is told anything any more."""
        self._gate.close()
        self._stop()
        self._place = None

    def tick(self, *, writes: bool, disk_is_full: bool) -> None:
        """`writes`: False once the disk has failed; then nothing goes, and reading goes on."""
        self._now += 1
        place = self._place
        if place is None:
            return
        if disk_is_full:
            for segment in list(self._cached):
                self._forget(segment)
        self._expire()
        if not writes:
            return
        if self._copying is None and self._now >= self._copy_retry.at:
            self._copy_next(place)
        if not self._is_removing and self._now >= self._remove_retry.at:
            if self._doomed_keys or self._doomed_groups:
                self._remove(place)
            elif not self._is_sweeping and self._now >= self._sweep_at and not self.keeps_orphans:
                self._sweep(place)

    # --- what goes -------------------------------------------------------------------------------

    def _copy_next(self, place: StorageTier) -> None:
        if not self._to_look_at:
            self._to_look_at.extend(self._groups)
        for _ in range(min(GROUPS_A_TICK, len(self._to_look_at))):
            group = self._groups.get(self._to_look_at[0])
            segment = self._may_leave(group, place) if group is not None else None
            if segment is not None:
                assert group is not None
                self._copy(place, group, segment)
                return
            self._to_look_at.popleft()

    def _may_leave(self, group: GroupLog, place: StorageTier) -> Segment | None:
        if not group.settings.may_leave or group.leaves:
            return None
        rules = place.rules
        here = [each for each in group.segments if not each.away]
        local_bytes = sum(each.size for each in here)
        for segment in here:
            age = (self._clock.now_us() - segment.max_timestamp) / 1e6
            is_old = rules.after is not None and age >= rules.after
            is_much = rules.local_bytes is not None and local_bytes > rules.local_bytes
            if not is_old and not is_much:
                return None
            if not self._is_closed(group, segment):
                return None
            local_bytes -= segment.size
            is_readable = segment.end_offset > group.log_start  # else it is about to be removed
            if is_readable and not _is_damaged(group, segment):
                return segment
        return None

    def _is_closed(self, group: GroupLog, segment: Segment) -> bool:
        """Whether nothing is added to it any more, also after a crash, and nobody holds it."""
        if not segment.full or (group.held_index or segment.end_index) < segment.end_index:
            return False
        record = self._published().get(group.id)
        # The last segment that the checkpoint has may be added to, after a crash.
        return record is not None and any(
            (each.first_index, each.size) == (segment.first_index, segment.size)
            for each in record.segments[:-1]
        )

    def _copy(self, place: StorageTier, group: GroupLog, segment: Segment) -> None:
        assert self._calls is not None
        self._copying = segment
        job = partial(
            jobs.copy, self._disk, place, segment.path, self._key(segment), segment.size
        )  # fmt: skip
        self._calls.submit("store", job, partial(self._copied, group, segment))

    def _copied(self, group: GroupLog, segment: Segment, result: int | BaseException) -> None:
        if self._place is None:
            return
        if not self._has(group, segment):  # retention was quicker: nobody wants the copy
            self._copying = None
            self._doomed_keys.append(self._key(segment))
            return
        if isinstance(result, BaseException):
            self._copy_failed(segment, result)
            return
        job = partial(
            jobs.record, self._disk, self._form, segment.path,
            Stub(self.name, segment.size, result),
        )  # fmt: skip
        self._executor.submit(RECORD_WORKER, job, partial(self._recorded, group, segment))

    def _recorded(self, group: GroupLog, segment: Segment, result: BaseException | None) -> None:
        if not isinstance(result, BaseException):
            self._copying = None
            self._copy_retry.went_well()
            self.problem = ""
            self.stored += 1
            if self._has(group, segment):
                segment.away = True
                self._remove_files([segment.path])
            else:  # retention was quicker
                self._remove_files([stub_path(segment.path)])
                self._doomed_keys.append(self._key(segment))
        elif isinstance(result, OSError):  # the disk is full, say: the file is still there
            self._copy_failed(segment, result)
        else:
            raise result

    def _copy_failed(self, segment: Segment, error: BaseException) -> None:
        self._copying = None
        if self._to_look_at:
            self._to_look_at.rotate(-1)  # others first: it may be this one alone
        self._copy_retry.failed(self._now)
        self._say(f"{segment.path} stays on the disk", error)

    def _say(self, what: str, error: BaseException) -> None:
        said = f"{what}: storage tier '{self.name}' failed: {type(error).__name__}: {error}"
        if not self.problem:  # one line until something goes well again
            log.warning("%s; it is tried again", said)
        self.problem = said

    # --- what is read ----------------------------------------------------------------------------

    @staticmethod
    def path_of(segment: Segment) -> str:
        """Where `need` puts a segment that is away."""
        return f"{jobs.FETCHED}/{segment.group}-{segment.path.rpartition('/')[2]}"

    def need(self, segments: Iterable[Segment], then: Then) -> None:
        """Fetch those that are away, and call `then`: at once, or later, in any case by the
        deadline. When it is called without an error, all are there for the jobs that it submits."""
        wanted = tuple(each for each in segments if each.away)
        for each in wanted:
            if each in self._cached:
                self._cached.move_to_end(each)
        lacks = {each for each in wanted if each not in self._cached}
        place = self._place
        if not lacks:
            then(None)
            return
        if place is None:
            then(AwayError("it is in a storage tier, and the plug-in for that is not enabled"))
            return
        if not self._free and all(
            self._now >= each.overdue for each in self._fetches.values() if each.worker
        ):
            then(AwayError(self._silence(place)))  # more of the same would wait as long, in vain
            return
        expires = self._now + max(1, round(place.rules.deadline * TICKS_A_SECOND))
        need = _Need(lacks, wanted, then, expires)
        for segment in list(lacks):
            fetch = self._fetches.get(segment)
            if fetch is None:
                fetch = self._fetches[segment] = _Fetch(segment)
            fetch.needs.append(need)
        self._fetch_more(place)

    def _silence(self, place: StorageTier) -> str:
        waited = in_seconds(place.rules.deadline)
        return f"storage tier '{self.name}' has not answered within {waited}"

    def _fetch_more(self, place: StorageTier) -> None:
        for fetch in list(self._fetches.values()):
            if not self._free:
                return
            # One that was fetched before and is about to be removed would go with that.
            if fetch.worker or self.path_of(fetch.segment) in self._leaving:
                continue
            self._make_room(place, fetch.segment.size)
            if self._disk.free_bytes() < fetch.segment.size + 2 * self._settings.reserve_bytes:
                error = AwayError(f"the disk of {self._settings.where} has no room to fetch it")
                self._fetch_ended(fetch, error)
                continue
            self._fetch(place, fetch)

    def _fetch(self, place: StorageTier, fetch: _Fetch) -> None:
        assert self._calls is not None
        segment = fetch.segment
        fetch.worker = self._free.pop()
        fetch.overdue = self._now + max(1, round(place.rules.deadline * TICKS_A_SECOND))
        job = partial(
            jobs.fetch, self._disk, place, self._gate, path=segment.path, key=self._key(segment),
            into=self.path_of(segment), size=segment.size,
        )  # fmt: skip
        self._calls.submit(fetch.worker, job, partial(self._was_fetched, fetch))

    def _was_fetched(self, fetch: _Fetch, result: BaseException | None) -> None:
        place = self._place
        if place is None:
            return
        self._free.append(fetch.worker)
        segment = fetch.segment
        error: AwayError | None = None
        if isinstance(result, BaseException):
            self._say(f"{segment.path} cannot be fetched", result)
            error = AwayError(
                f"storage tier '{self.name}' does not hand it out: "
                f"{type(result).__name__}: {result}"
            )
            self._remove_fetched(segment)
        else:
            self.problem = ""
            self.fetched += 1
            self._cached[segment] = segment.size
        self._fetch_ended(fetch, error)
        group = self._groups.get(segment.group)
        if group is None or segment not in group.segments:  # retention was quicker
            self._forget(segment)
        self._make_room(place, 0)
        self._fetch_more(place)

    def _fetch_ended(self, fetch: _Fetch, error: AwayError | None) -> None:
        del self._fetches[fetch.segment]
        for need in fetch.needs:
            need.lacks.discard(fetch.segment)
            if need.then is not None and (error is not None or not need.lacks):
                then, need.then = need.then, None
                then(error)

    def _expire(self) -> None:
        place = self._place
        assert place is not None
        for fetch in list(self._fetches.values()):
            for need in fetch.needs:
                if need.then is not None and self._now >= need.expires:
                    then, need.then = need.then, None
                    then(AwayError(self._silence(place)))
            fetch.needs = [need for need in fetch.needs if need.then is not None]
            if not fetch.needs and not fetch.worker and fetch.segment in self._fetches:
                del self._fetches[fetch.segment]

    def _make_room(self, place: StorageTier, size: int) -> None:
        """Let go of what was fetched and is read least, until `size` bytes more fit the cache."""
        pinned = {
            segment
            for fetch in self._fetches.values()
            for need in fetch.needs
            for segment in need.segments
        }
        used = sum(self._cached.values()) + size
        for segment in list(self._cached):
            is_last = not size and len(self._cached) == 1
            if used <= place.rules.cache_bytes or is_last:
                return
            if segment not in pinned:
                used -= self._cached[segment]
                self._forget(segment)

    def _forget(self, segment: Segment) -> None:
        if self._cached.pop(segment, None) is not None:
            self._remove_fetched(segment)

    def _remove_fetched(self, segment: Segment) -> None:
        path = self.path_of(segment)
        self._leaving[path] += 1
        job = partial(jobs.remove_files, self._disk, [path])
        self._executor.submit(READ_WORKER, job, partial(self._fetched_is_removed, path))

    def _fetched_is_removed(self, path: str, result: BaseException | None) -> None:
        self._leaving[path] -= 1
        if not self._leaving[path]:
            del self._leaving[path]
        self._files_removed(result)
        if self._place is not None:
            self._fetch_more(self._place)

    def _remove_files(self, paths: Sequence[str]) -> None:
        """Behind all reads that were submitted. What stays is removed at the next start."""
        job = partial(jobs.remove_files, self._disk, paths)
        self._executor.submit(READ_WORKER, job, self._files_removed)

    @staticmethod
    def _files_removed(result: BaseException | None) -> None:
        if isinstance(result, OSError):
            log.warning("a file that is in a storage tier cannot be removed here: %s", result)
        elif isinstance(result, BaseException):
            raise result

    # --- what is removed -------------------------------------------------------------------------

    def gone(self, segments: Iterable[Segment], groups: Iterable[int]) -> None:
        """A published checkpoint has these segments, and the logs of these groups, no more."""
        for segment in segments:
            self._forget(segment)
            self._missing.discard(segment)
            if segment.away:
                self._doomed_keys.append(self._key(segment))
        if self._place is not None:
            self._doomed_groups += groups
            for segment in [each for each in self._cached if each.group in self._doomed_groups]:
                self._forget(segment)

    def _remove(self, place: StorageTier) -> None:
        assert self._calls is not None
        keys, self._doomed_keys = self._doomed_keys, []
        groups, self._doomed_groups = self._doomed_groups, []
        self._is_removing = True
        prefixes = [f"{self._store_id}/{group}/" for group in groups]
        job = partial(jobs.remove, place, keys, prefixes)
        self._calls.submit("remove", job, partial(self._removed, keys, groups))

    def _removed(self, keys: list[str], groups: list[int], result: BaseException | None) -> None:
        self._is_removing = False
        if isinstance(result, BaseException):
            self._doomed_keys = keys + self._doomed_keys
            self._doomed_groups = groups + self._doomed_groups
            self._remove_retry.failed(self._now)
            self._say("what is deleted is still there", result)
        else:
            self._remove_retry.went_well()

    def _sweep(self, place: StorageTier) -> None:
        assert self._calls is not None
        self._is_sweeping = True
        job = partial(jobs.keys_of, place, f"{self._store_id}/")
        was_away = {
            segment for group in self._groups.values() for segment in group.segments if segment.away
        }
        self._calls.submit("remove", job, partial(self._swept, was_away))

    def _swept(self, was_away: set[Segment], found: frozenset[str] | BaseException) -> None:
        self._is_sweeping = False
        place = self._place
        if place is None:
            return
        if isinstance(found, BaseException):
            self._remove_retry.failed(self._now)
            self._say("what it keeps is not known", found)
            return
        self._remove_retry.went_well()
        self._sweep_at = self._now + max(1, round(place.rules.sweep_every * TICKS_A_SECOND))
        self._doomed_keys += sorted(found - set(self._known()))
        self._missing = {each for each in was_away if self._key(each) not in found}
        if self._missing:
            first = min(self._missing, key=lambda each: (each.group, each.base_offset))
            log.error(
                "%d segments are missing in storage tier '%s'; the first has offsets %d to %d of "
                "log %d, by the key %s",
                len(self._missing), self.name, first.base_offset, first.end_offset - 1,
                first.group, self._key(first),
            )  # fmt: skip

    def seen_in(self, stats: GroupStats, group: int) -> GroupStats:
        """The stats of a group, with what the last sweep missed of it."""
        missing = sorted(each.base_offset for each in self._missing if each.group == group)
        if missing:
            words = (
                f"{len(missing)} segments are missing in storage tier '{self.name}', the first at "
                f"offset {missing[0]}"
            )
            stats.problem = "; ".join(filter(None, (stats.problem, words)))
        return stats

    def _known(self) -> Iterator[str]:
        """The keys that this store may still need."""
        for group in self._groups.values():
            yield from map(self._key, group.segments)
        for number, record in self._published().items():
            for each in record.segments:
                path = segment_path(number, each.base_offset, each.first_index)
                yield key_of(self._store_id, path)

    def _key(self, segment: Segment) -> str:
        return key_of(self._store_id, segment.path)

    def _has(self, group: GroupLog, segment: Segment) -> bool:
        is_live = self._groups.get(group.id) is group and not group.deleted
        return is_live and segment in group.segments


def _is_damaged(group: GroupLog, segment: Segment) -> bool:
    """Whether it is known to have damage: such a segment stays, for people to look at."""
    return any(_touches(damage, segment) for damage in group.damage)


def _touches(damage: Damage, segment: Segment) -> bool:
    end = segment.end_offset if damage.end is None else damage.end
    return damage.start < segment.end_offset and segment.base_offset < end
