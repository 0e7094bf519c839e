"""Runs a broker on a damaged store, and judges what it does by what it had acknowledged.

It may start whole; it may start and name what is damaged; it may refuse to start and say what to
do. It fails by anything else: a crash, a wrong record, a loss that nobody named, rights that are
not those of the last moment, an offset given twice, a partition that does not go on after
`accept-loss`, a `log verify` that says something else than the broker.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket import frames
from hocket.core.metadata.metadata import GROUP
from hocket.errors import CorruptData, HocketError
from hocket.frames import packed, unpacked
from hocket.log.model import Report
from hocket.log.verify import accept_loss, verify
from hocket.wire import batch as batches
from tests.support.damage.cases import Case, Harm, harm_of
from tests.support.damage.life import SECOND, SimulatedLife, Talk, disk_with, files_of
from tests.support.damage.places import Mapped
from tests.support.damage.reading import ENDLESS, Named, Reading, Record, read
from tests.support.damage.store import Known, Partition, Store

Verdict = Literal["whole", "named", "refused", "failed"]
_INSTRUCTION = re.compile(
    r"accept-loss|hocket log |put .*back|from a copy|a copy of the data|install that version|"
    r"name another"
)
_MARK = b"published behind the damage"


@dataclass
class Outcome:
    name: str
    verdict: Verdict = "whole"
    failures: list[str] = field(default_factory=list)
    said: str = ""  # by a broker that refused

    def fail(self, *words: object) -> None:
        self.verdict = "failed"
        self.failures.append(" ".join(map(str, words)))


@dataclass
class Seen:
    """One partition, as a broker shows it."""

    start: int
    end: int
    reading: Reading
    problem: str  # after all of it was read
    first_problem: str  # when the broker had just started

    @property
    def named(self) -> Named:
        return Named.of([self.problem])


def judged(case: Case, store: Store, found: Mapped) -> Outcome:
    files = case.damaged(store.files)
    assert files is not None
    outcome = Outcome(case.name)
    try:
        _Judge(outcome, store, harm_of(case, store, found)).judge(files)
    except Exception:  # noqa: BLE001  # whatever it is, the broker ended by it
        outcome.fail("crash:", *traceback.format_exc().splitlines()[-7:])
    return outcome


class _Judge:
    def __init__(self, outcome: Outcome, store: Store, harm: Harm) -> None:
        self.outcome = outcome
        self.fail = outcome.fail
        self.known: Known = store.known
        self.harm = harm
        self.now_us = store.now_us
        self.lives = 0
        self.staged: dict[Partition, set[bytes]] = {at: set() for at in self.known.groups}
        for each in self.known.transactions:
            for at, values in each.values.items():
                self.staged[at] |= set(values)

    # --- the whole of it ---------------------------------------------------------------------

    def judge(self, files: dict[str, bytes]) -> None:
        report = self._verified(files)
        life = self._begin(files)
        if isinstance(life, HocketError):
            self._refused(str(life), report)
            return
        talk = life.connect(self.known.admin)
        seen = self.look(talk)
        self._check_rights(life, talk)
        self._check_warned(life, seen)
        for at, each in seen.items():
            self._check_records(at, each)
        life.scrub()
        for at in seen:
            self._check_reported(at, talk, report)
        self._check_nothing_else(report)
        damaged = {at for at, each in seen.items() if each.problem}
        self._check_indexes(talk, damaged)
        published = self._publish(talk, seen)
        self._check_transactions(talk, damaged)
        life.tick(11)
        life.checkpoint()
        life.close()
        self.now_us = life.scheduler.now_us()
        files = files_of(life.disk)
        if damaged:
            self.outcome.verdict = "named" if self.outcome.verdict == "whole" else "failed"
        self._look_again(files, seen, published)
        if damaged:
            self._accept(files, damaged, published)

    def _begin(self, files: dict[str, bytes]) -> SimulatedLife | HocketError:
        self.lives += 1
        try:
            return SimulatedLife(
                disk_with(files), seed=f"life {self.lives}", start_us=self.now_us + SECOND
            )
        except HocketError as error:
            return error

    def _verified(self, files: dict[str, bytes]) -> Report | HocketError:
        disk = disk_with(files)
        try:
            report = verify(disk)
        except HocketError as error:
            return error
        finally:
            if files_of(disk) != files:
                self.fail("`log verify` has changed the store")
        return report

    def _refused(self, said: str, report: Report | HocketError) -> None:
        self.outcome.said = said
        if self.outcome.verdict == "whole":
            self.outcome.verdict = "refused"
        if not self.harm.may_refuse:
            self.fail("it refuses to start although nothing vital is damaged:", said)
        if not _INSTRUCTION.search(said):
            self.fail("it refuses to start and does not say what to do:", said)
        if isinstance(report, Report) and not any(
            group == GROUP and not damage.accepted for group, damage in report.damage
        ):
            self.fail("it refuses to start, and `log verify` sees nothing vital:", report)

    # --- looking ---------------------------------------------------------------------------------

    def look(self, talk: Talk) -> dict[Partition, Seen]:
        seen: dict[Partition, Seen] = {}
        topics = {each.name: each.config for each in self._ask(talk, frames.ListTopics).topics}
        if topics != self.known.topics:
            self.fail("topics are", sorted(topics), "or have another configuration")
        for topic in topics:
            before = self._ask(talk, frames.DescribeTopic, topic).topics[0].partitions
            readings = [self._read(talk, topic, each) for each in before]
            after = self._ask(talk, frames.DescribeTopic, topic).topics[0].partitions
            for one, reading, other in zip(before, readings, after, strict=True):
                at = topic, one.partition
                seen[at] = Seen(one.start, one.end, reading, other.problem, one.problem)
        return seen

    def _read(self, talk: Talk, topic: str, described: Any) -> Reading:
        tail = any(end == ENDLESS for _, end in Named.of([described.problem]).ranges)
        # What followed the damage is not known: a reader that comes there must be told.
        end = ENDLESS if tail else described.end
        return read(talk, topic, described.partition, described.start, end)

    def _ask(self, talk: Talk, kind: type, *fields: Any, **more: Any) -> Any:
        answer = talk.ask(kind, *fields, **more)
        if isinstance(answer, frames.Failure):
            raise TypeError(f"{kind.__name__} {fields}: {answer}")
        return answer

    def _check_rights(self, life: SimulatedLife, talk: Talk) -> None:
        access = self._ask(talk, frames.DescribeAccess)
        expected = self.known.access
        assert expected is not None
        if (access.users, access.roles) != (expected.users, expected.roles):
            self.fail("other rights are in force:", access)
        for user, token in self.known.tokens.items():
            if not isinstance(life.connect(token).greeting, frames.Welcome):
                self.fail(user, "cannot log in")
        for token in self.known.void_tokens:
            if isinstance(life.connect(token).greeting, frames.Welcome):
                self.fail("a token that was void is valid again")
        for (user, action, topic), allowed in self.known.allowed.items():
            if topic in ("orders", "ledger") and user != "ann":
                explained = self._ask(talk, frames.ExplainAccess, user, action, topic)
                if explained.allowed != allowed:
                    self.fail(f"{user} may {action} {topic}: {explained.allowed}, not {allowed}")
        if life.node.registering.members()[1] != self.known.members:
            self.fail("other nodes are members")

    def _check_warned(self, life: SimulatedLife, seen: dict[Partition, Seen]) -> None:
        for at, each in seen.items():
            named = Named.of([each.first_problem])
            said = Named.of(life.warnings)
            if not (named.ranges <= said.ranges and named.points <= said.points):
                self.fail(f"no warning at the start of what {at} has lost:", each.first_problem)

    def _check_records(self, at: Partition, seen: Seen) -> None:
        known, records = self.known.records[at], seen.reading.records
        start = self.known.starts[at]
        if seen.start > start or (seen.start < start and not seen.problem):
            self.fail(f"{at} starts at {seen.start}, not {self.known.starts[at]}")
        self._check_right(at, records)
        missing = known.keys() - records.keys()
        told = Named.of(seen.reading.errors)
        for offset in sorted(missing):
            if offset not in self.harm.records.get(at, ()):
                self.fail(f"{at} has lost {offset}, which was whole:", seen.problem)
            if not told.covers(offset):
                self.fail(f"{at} has lost {offset}, and its reader was told {seen.reading.errors}")
            if not seen.named.covers(offset):
                self.fail(f"{at} has lost {offset}, and describe says {seen.problem!r}")
        if seen.reading.stopped_at is not None:
            self.fail(f"a reader of {at} stopped at {seen.reading.stopped_at}, and knows not why")
        is_concerned = self.known.groups[at] in self.harm.groups or self.harm.tells_nothing
        if seen.problem and not is_concerned:
            self.fail(f"{at} is not damaged and is said to be:", seen.problem)

    def _check_right(self, at: Partition, records: dict[int, Record]) -> None:
        known, removed = self.known.records[at], self.known.removed[at]
        for offset, record in records.items():
            if known.get(offset) == record or removed.get(offset) == record.value:
                continue
            if record.value == _MARK or (
                offset >= self.known.ends[at] and record.value in self.staged[at]
            ):
                continue  # stored after the damage
            self.fail(f"{at} serves at {offset}: {record}, not {known.get(offset)}")

    # --- `log verify` ------------------------------------------------------------------------

    def _check_reported(self, at: Partition, talk: Talk, report: Report | HocketError) -> None:
        """`log verify` names what the broker does, once the broker has read everything, too."""
        described = self._ask(talk, frames.DescribeTopic, at[0]).topics[0].partitions
        problem = described[at[1]].problem
        named = Named.of([problem])
        if isinstance(report, HocketError):
            self.fail("the broker starts, and `log verify` says:", report)
            return
        group = self.known.groups[at]
        said = Named.of(str(each) for number, each in report.damage
                        if number == group and not each.accepted)  # fmt: skip
        for offset in self.known.records[at]:
            if said.covers(offset) != named.covers(offset):
                self.fail(f"{at} at {offset}: broker {problem!r}, `log verify` {report.damage}")
                return
        if bool(said) != bool(named):
            self.fail(f"{at}: the broker says {problem!r}, `log verify` {report.damage}")

    def _check_nothing_else(self, report: Report | HocketError) -> None:
        if isinstance(report, Report):
            for group, damage in report.damage:
                if group not in self.known.groups.values() and not damage.accepted:
                    self.fail(f"`log verify` names {damage} of log {group}, the broker does not")

    # --- indexes, producers, transactions ----------------------------------------------------

    def _check_indexes(self, talk: Talk, damaged: set[Partition]) -> None:
        for topic, indexes in self.known.indexes.items():
            now = {each.name: each for each in self._ask(talk, frames.ListIndexes, topic).indexes}
            for index in indexes:
                for part in index.partitions:
                    at = topic, part.partition
                    there = now[index.name].partitions if index.name in now else ()
                    found = next((p for p in there if p.partition == part.partition), None)
                    if at not in damaged and found != part:
                        self.fail(f"index {index.name} of {at} is at {found}, not {part}")
                    elif found is not None and found.position > part.position:
                        self.fail(f"index {index.name} of {at} went on to {found}")
        opened = self._ask(talk, frames.OpenProducer, "orders", self.known.producer)
        for number, sequence in enumerate(unpacked(opened.sequences)):
            at = "orders", number
            expected = self.known.sequences.get(at, 0)
            if at not in damaged and sequence != expected:
                self.fail(f"a producer of {at} is expected at {sequence}, not {expected}")

    def _check_transactions(self, talk: Talk, damaged: set[Partition]) -> None:
        for each in self.known.transactions:
            answer = talk.ask(
                frames.CommitTransaction, each.name, each.number, each.participants
            )
            if isinstance(answer, frames.Failure):
                if damaged.isdisjoint(each.values):
                    self.fail(f"transaction {each.name} cannot be committed:", answer)
                continue
            for at, values in each.values.items():
                described = self._ask(talk, frames.DescribeTopic, at[0]).topics[0].partitions
                end = described[at[1]].end
                reading = read(talk, *at, self.known.ends[at], end)
                stored = [record.value for record in reading.records.values()]
                if not set(values) <= set(stored):
                    self.fail(f"transaction {each.name} is committed, and {at} has {stored}")

    def _publish(
        self, talk: Talk, seen: dict[Partition, Seen], *, must: bool = False
    ) -> dict[Partition, int]:
        """A record in each partition, at which offset; one that refuses must be damaged."""
        published: dict[Partition, int] = {}
        for at, each in seen.items():
            answer = talk.ask(frames.Publish, *at, payload=_one_batch(self.now_us))
            if isinstance(answer, frames.Published):
                published[at] = answer.offset
                if answer.offset < self.known.ends[at] and not must:
                    self.fail(f"{at} gives offset {answer.offset} a second time")
                again = read(talk, *at, answer.offset, answer.offset + 1).records
                if again.get(answer.offset, None) is None:
                    self.fail(f"{at} has taken a record at {answer.offset} that cannot be read")
            elif must:
                self.fail(f"{at} takes nothing after `accept-loss`:", answer)
            elif not each.problem:
                self.fail(f"{at} is whole and takes nothing:", answer)
            elif answer.code != CorruptData.code or not _INSTRUCTION.search(answer.message):
                self.fail(f"{at} takes nothing, and does not say what to do:", answer)
        return published

    # --- the next lives --------------------------------------------------------------------------

    def _look_again(
        self, files: dict[str, bytes], before: dict[Partition, Seen],
        published: dict[Partition, int],
    ) -> None:  # fmt: skip
        """Another start: what was lost is still named, and nothing else is."""
        life = self._begin(files)
        if isinstance(life, HocketError):
            self.fail("after an orderly end it does not start again:", life)
            return
        talk = life.connect(self.known.admin)
        for at, each in self.look(talk).items():
            self._check_right(at, each.reading.records)
            known = self.known.records[at]
            gone = (before[at].reading.records.keys() & known.keys()) - each.reading.records.keys()
            gone = {offset for offset in gone if offset >= each.start}
            if gone:
                self.fail(f"{at} has lost {gone} by a restart: {each.problem!r}")
            if before[at].problem and not each.named:
                self.fail(f"{at} has forgotten its damage: {before[at].problem}")
            if each.problem and not before[at].problem:
                self.fail(f"{at} is damaged since a restart: {each.problem}")
            if at in published and published[at] not in each.reading.records:
                self.fail(f"{at} has lost what was published after the damage: {each.problem!r}")
        self._check_rights(life, talk)
        life.kill()

    def _accept(
        self, files: dict[str, bytes], damaged: set[Partition], published: dict[Partition, int]
    ) -> None:
        """The operator accepts the losses, and every partition goes on."""
        disk = disk_with(files)
        for at in damaged:
            accept_loss(disk, self.known.groups[at])
        report = verify(disk)
        if not report.ok:
            self.fail("all losses are accepted, and `log verify` says", report.damage)
        life = self._begin(files_of(disk))
        if isinstance(life, HocketError):
            self.fail("after `accept-loss` it does not start:", life)
            return
        talk = life.connect(self.known.admin)
        seen = self.look(talk)
        for at, each in seen.items():
            self._check_right(at, each.reading.records)
            if each.problem or each.reading.errors or each.reading.stopped_at is not None:
                self.fail(f"after `accept-loss` {at} says {each.problem!r},", each.reading)
            if at in published and published[at] not in each.reading.records:
                self.fail(f"after `accept-loss` {at} has lost what was published before it")
        self._check_rights(life, talk)
        self._publish(talk, seen, must=True)
        life.tick(11)
        life.close()


def _one_batch(timestamp: int) -> bytes:
    return bytes(batches.encode([_MARK], timestamps=timestamp))


def run(names: list[str], find: Callable[[str], Case], store: Store, found: Mapped) -> list[Outcome]:
    return [judged(find(name), store, found) for name in names]
