"""Runs a broker on a damaged store, and judges what it does by what it had acknowledged.

It may start whole; it may start and name what is damaged; it may refuse to start and say what to
do. It fails by anything else: a crash, a wrong record, a loss that nobody named, rights that are
not those of the last moment, an offset given twice, a partition that does not go on after
`accept-loss`, a `log verify` that says something else than the broker.
"""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Any, Literal

from hocket import frames
from hocket.core.metadata.metadata import GROUP
from hocket.errors import CorruptData, HocketError, UnknownProducer
from hocket.frames import unpacked
from hocket.log.model import VITAL
from hocket.wire import batch as batches
from tests.support.damage.cases import Case, Harm, harm_of
from tests.support.damage.life import Ended, Life, Talk
from tests.support.damage.places import Mapped
from tests.support.damage.reading import ENDLESS, Named, Reading, Record, read
from tests.support.damage.store import Known, Partition, Store
from tests.support.damage.world import Losses, SimulatedWorld, World

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


def judged(case: Case, store: Store, found: Mapped, world: World | None = None) -> Outcome:
    """What a broker makes of this case; in memory, unless the world is another one."""
    files = case.damaged(store.files)
    assert files is not None
    outcome = Outcome(case.name)
    world = world or SimulatedWorld(store.now_us)
    try:
        harm = harm_of(case, store, found)
        _Judge(outcome, store, harm, world).judge(files)
        if harm.keeps and files[harm.keeps] not in world.files().values():
            outcome.fail("a file of another store was used again:", harm.keeps)
    except Exception:  # whatever it is, the broker ended by it
        outcome.fail("crash:", *traceback.format_exc().splitlines()[-7:])
    finally:
        world.over()
    return outcome


class _Judge:
    def __init__(self, outcome: Outcome, store: Store, harm: Harm, world: World) -> None:
        self.outcome = outcome
        self.fail = outcome.fail
        self.known: Known = store.known
        self.harm = harm
        self.world = world
        self.staged: dict[Partition, set[bytes]] = {at: set() for at in self.known.groups}
        for each in self.known.transactions:
            for at, values in each.values.items():
                self.staged[at] |= set(values)

    # --- the whole of it ---------------------------------------------------------------------

    def judge(self, files: dict[str, bytes]) -> None:
        world = self.world
        world.put(files)
        losses = world.verify()
        if world.files() != files:
            self.fail("`log verify` has changed the store")
        life = world.begin()
        if isinstance(life, HocketError):
            self._refused(str(life), losses)
            return
        talk = life.connect(self.known.admin)
        seen = self.look(talk)
        self._check_rights(life, talk)
        self._check_warned(life, seen)
        for at, each in seen.items():
            self._check_records(at, each)
        self._check_verified(life, talk, losses)
        damaged = {at for at, each in seen.items() if each.problem}
        self._check_indexes(talk, damaged)
        published = self._publish(talk, seen)
        self._check_transactions(life, talk, damaged)
        life.rest()
        life.close()
        if damaged and self.outcome.verdict == "whole":
            self.outcome.verdict = "named"
        self._look_again(seen, published)
        if damaged:
            self._accept(damaged, published)

    def _refused(self, said: str, losses: Losses | HocketError) -> None:
        self.outcome.said = said
        if self.outcome.verdict == "whole":
            self.outcome.verdict = "refused"
        if not self.harm.may_refuse:
            self.fail("it refuses to start although nothing vital is damaged:", said)
        if not _INSTRUCTION.search(said):
            self.fail("it refuses to start and does not say what to do:", said)
        if isinstance(losses, HocketError):
            return
        if losses.keys().isdisjoint(VITAL):
            self.fail("it refuses to start, and `log verify` sees nothing vital:", losses)
        elif "accept-loss" in said:
            self._repair()

    def _repair(self) -> None:
        """The operator accepts even this: the broker starts, and goes on with what is left."""
        for which in (GROUP, None):
            self.world.accept_loss(which)
            life = self.world.begin()
            if isinstance(life, HocketError):
                self.fail("what is lost is accepted, and it does not start:", life)
                return
            talk = life.connect(self.known.admin)
            if isinstance(talk.greeting, frames.Welcome):  # else the admin himself was lost
                self._publish(talk, self.look(talk, whole=False), must=which is None)
            life.rest()
            life.close()

    # --- looking ---------------------------------------------------------------------------------

    def look(self, talk: Talk, *, whole: bool = True) -> dict[Partition, Seen]:
        """All partitions, read; with `whole`, the topics must be those that are known."""
        seen: dict[Partition, Seen] = {}
        topics = {each.name: each.config for each in self._ask(talk, frames.ListTopics).topics}
        if whole and topics != self.known.topics:
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

    def _check_rights(self, life: Life, talk: Talk, *, again: bool = False) -> None:
        access = self._ask(talk, frames.DescribeAccess)
        expected = self.known.access
        assert expected is not None
        if (access.users, access.roles) != (expected.users, expected.roles):
            self.fail("other rights are in force:", access)
        cluster = self._ask(talk, frames.DescribeCluster)
        if cluster.replication != self.known.replication:
            self.fail("another default is in force:", cluster)
        if again:
            return  # what follows from them was looked at
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
        members = life.members()
        if members is not None and members != self.known.members:
            self.fail("other nodes are members")

    def _check_warned(self, life: Life, seen: dict[Partition, Seen]) -> None:
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
        if self.harm.torn:
            missing -= self.harm.records.get(at, set())
        told = Named.of(seen.reading.errors)
        if whole := missing - self.harm.records.get(at, set()):
            self.fail(f"{at} has lost {_in_short(whole)}, which was whole: {seen.problem!r}")
        if silent := {offset for offset in missing if not told.covers(offset)}:
            self.fail(f"silent loss: {at} lacks {_in_short(silent)}; its reader was told", told)
        if silent := {offset for offset in missing if not seen.named.covers(offset)}:
            self.fail(f"silent loss: {at} lacks {_in_short(silent)}; describe: {seen.problem!r}")
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

    def _check_verified(self, life: Life, talk: Talk, losses: Losses | HocketError) -> None:
        """`log verify` names what the broker does, once the broker has read everything, too."""
        if isinstance(losses, HocketError):
            self.fail("the broker starts, and `log verify` says:", losses)
            return
        life.scrub()
        for at, group in self.known.groups.items():
            described = self._ask(talk, frames.DescribeTopic, at[0]).topics[0].partitions
            problem = described[at[1]].problem
            named = Named.of([problem])
            said = Named.of(map(str, losses.get(group, ())))
            differ = any(said.covers(at) != named.covers(at) for at in self.known.records[at])
            if differ or (life.is_simulated and bool(said) != bool(named)):
                self.fail(f"{at}: the broker says {problem!r}, `log verify` {losses.get(group)}")
        for group in losses.keys() - self.known.groups.values():
            self.fail(f"`log verify` names {losses[group]} of log {group}, the broker does not")

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
        if not self.known.producer:
            return
        opened = talk.ask(frames.OpenProducer, "orders", self.known.producer)
        if isinstance(opened, frames.Failure):
            # Batches of the producer are lost: which of those that it sends again are repetitions?
            if opened.code != UnknownProducer.code or not damaged & {("orders", 0), ("orders", 1)}:
                self.fail("a producer cannot go on:", opened)
            return
        for number, sequence in enumerate(unpacked(opened.sequences)):
            at = "orders", number
            expected = self.known.sequences.get(at, 0)
            if at not in damaged and sequence != expected:
                self.fail(f"a producer of {at} is expected at {sequence}, not {expected}")

    def _check_transactions(self, life: Life, talk: Talk, damaged: set[Partition]) -> None:
        for each in self.known.transactions:
            if not life.is_simulated and damaged.intersection(each.values):
                continue  # that may take longer than anybody wants to wait
            try:
                answer = talk.ask(
                    frames.CommitTransaction, each.name, each.number, each.participants
                )
            except Ended as ended:
                # Decided, and what was staged cannot be read: it can be neither published nor not.
                if "cannot be published" not in " ".join(life.warnings):
                    self.fail(f"transaction {each.name}:", ended)
                continue
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
            answer = talk.ask(frames.Publish, *at, payload=_one_batch())
            if isinstance(answer, frames.Published):
                published[at] = answer.offset
                is_again = answer.offset < self.known.ends.get(at, 0)
                if is_again and not must and not self.harm.torn:
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

    def _look_again(self, before: dict[Partition, Seen], published: dict[Partition, int]) -> None:
        """Another start: what was lost is still named, and nothing else is."""
        life = self.world.begin()
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
                self.fail(f"{at} has lost {_in_short(gone)} by a restart: {each.problem!r}")
            # Zeros that were cut off a segment are there again when the segment has grown.
            is_back = known.keys() <= each.reading.records.keys()
            is_back &= "groups/" in before[at].problem
            if before[at].problem and not each.named and not is_back:
                self.fail(f"{at} has forgotten its damage: {before[at].problem}")
            if each.problem and not before[at].problem:
                self.fail(f"{at} is damaged since a restart: {each.problem}")
            if at in published and published[at] not in each.reading.records:
                self.fail(f"{at} has lost what was published after the damage: {each.problem!r}")
        self._check_rights(life, talk, again=True)
        life.kill()

    def _accept(self, damaged: set[Partition], published: dict[Partition, int]) -> None:
        """The operator accepts the losses, and every partition goes on."""
        for at in damaged:
            self.world.accept_loss(self.known.groups[at])
        losses = self.world.verify()
        if losses:
            self.fail("all losses are accepted, and `log verify` says", losses)
        life = self.world.begin()
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
        self._check_rights(life, talk, again=True)
        self._publish(talk, seen, must=True)
        life.rest()
        life.close()


def _in_short(offsets: set[int]) -> str:
    return f"{len(offsets)} records from {min(offsets)} to {max(offsets)}"


def _one_batch() -> bytes:
    return bytes(batches.encode([_MARK], timestamps=1_700_000_000_000_000))
