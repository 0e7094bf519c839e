"""A subscription against the plain story of what it sent: order, credit, turns and losses."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from hocket.core.partition import subscription as module
from hocket.core.partition.subscription import (
    Advanced,
    CreditGiven,
    Effect,
    Progress,
    Read,
    ReadDone,
    Send,
    Sought,
    Subscription,
    TellMoved,
)
from tests.support.threads import LONG

BATCH = 3  # records; a read ends where a batch does
BATCH_BYTES = 40
READ_BYTES_MAX = 100  # instead of a mebibyte, so that a read is often cut short by it


class SubscriptionAgainstStory(RuleBasedStateMachine):
    """`position` is where each partition's consumer must be told to go on, record by record."""

    def __init__(self) -> None:
        super().__init__()
        self._usual, module.READ_BYTES_MAX = module.READ_BYTES_MAX, READ_BYTES_MAX

    @initialize(
        starts=st.lists(st.integers(0, 20), min_size=1, max_size=4), credit=st.integers(0, 200)
    )
    def begin(self, starts: list[int], credit: int) -> None:
        self.log_start = dict.fromkeys(range(len(starts)), 0)
        self.end = dict.fromkeys(range(len(starts)), 10)
        self.position = dict(enumerate(starts))
        self.moves = dict.fromkeys(range(len(starts)), 0)
        self.credit = credit
        self.under_way: dict[int, Read] = {}
        self.empty_to: dict[int, int] = {}  # the end up to which a read has found nothing
        self.waits: dict[int, list[int]] = {}  # ready partition -> who was read since it is
        progress = [(number, Progress(start, 10)) for number, start in enumerate(starts)]
        self.subject = Subscription(progress, credit)
        self.hear(self.subject.begin())

    def teardown(self) -> None:
        module.READ_BYTES_MAX = self._usual

    def partition(self, which: int) -> int:
        return which % len(self.position)

    # --- what happens ----------------------------------------------------------------------------

    some = st.integers(0, 3)

    @rule(amount=st.integers(0, 300))
    def credit_given(self, amount: int) -> None:
        self.credit += amount
        self.hear(self.subject.step(CreditGiven(amount)))

    @rule(which=some, appended=st.integers(0, 20), removed=st.sampled_from([0, 0, 0, 5, 25]))
    def advanced(self, which: int, appended: int, removed: int) -> None:
        number = self.partition(which)
        self.end[number] += appended
        self.log_start[number] = min(self.log_start[number] + removed, self.end[number])
        self.hear(
            self.subject.step(Advanced(number, self.log_start[number], self.end[number])),
        )

    @rule(which=some)
    def read_done(self, which: int) -> None:
        if not self.under_way:
            return
        number = sorted(self.under_way)[which % len(self.under_way)]
        read = self.under_way.pop(number)
        batches, size, next_offset = 0, 0, read.offset
        while next_offset < read.end and (not batches or size + BATCH_BYTES <= read.bytes_max):
            batches, size = batches + 1, size + BATCH_BYTES
            next_offset = min(read.end, (next_offset // BATCH + 1) * BATCH)
        effects = self.subject.step(ReadDone(number, read.moves, next_offset, size))
        if read.moves == self.moves[number]:
            assert effects.pop(0) == Send(number, self.position[number])
            assert read.offset == self.position[number]
            self.position[number] = next_offset
            self.credit -= size
        self.hear(effects)

    @rule(which=some)
    def read_found_nothing(self, which: int) -> None:
        if not self.under_way:
            return
        number = sorted(self.under_way)[which % len(self.under_way)]
        read = self.under_way.pop(number)
        if read.moves == self.moves[number]:
            self.empty_to[number] = read.end
        self.hear(self.subject.step(ReadDone(number, read.moves, read.offset, 0)))

    @rule(which=some, fraction=st.sampled_from([0.0, 0.5, 1.0]))
    def sought(self, which: int, fraction: float) -> None:
        number = self.partition(which)
        start, end = self.log_start[number], self.end[number]
        offset = start + int(fraction * (end - start))
        first, *rest = self.subject.step(Sought(number, offset))
        assert first == TellMoved(number, offset, 0)
        self.position[number] = offset
        self.moves[number] += 1
        self.waits.pop(number, None)
        self.empty_to.pop(number, None)
        self.hear(rest)

    @rule()
    def topic_grows(self) -> None:
        number = len(self.position)
        if number < 5:
            self.log_start[number], self.end[number], self.position[number] = 0, 0, 0
            self.moves[number] = 0
            self.subject.add(number, Progress(0, 0))

    # --- what it does about it -------------------------------------------------------------------

    def hear(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, TellMoved):
                self.lost(effect)
            else:
                assert isinstance(effect, Read), "sent without having read"
                self.reads(effect)
        self.note_who_waits()

    def lost(self, effect: TellMoved) -> None:
        number = effect.partition
        assert effect.offset == self.log_start[number]
        assert effect.lost == self.log_start[number] - self.position[number] > 0
        self.position[number] = effect.offset
        self.moves[number] += 1

    def reads(self, read: Read) -> None:
        number = read.partition
        assert number not in self.under_way, "two reads of one partition at once"
        assert (read.offset, read.moves) == (self.position[number], self.moves[number])
        assert self.log_start[number] <= read.offset < read.end == self.end[number]
        left = self.credit - sum(other.bytes_max for other in self.under_way.values())
        assert 0 < read.bytes_max <= min(left, READ_BYTES_MAX), "a read without credit for it"
        self.under_way[number] = read
        self.waits.pop(number, None)
        for waiting, served in self.waits.items():
            served.append(number)
            assert served.count(number) <= 1, f"{waiting} starves while {number} is served again"

    def note_who_waits(self) -> None:
        for number, position in self.position.items():
            has_more = max(position, self.log_start[number]) < self.end[number]
            is_empty = self.empty_to.get(number) == self.end[number]
            if has_more and not is_empty and number not in self.under_way:
                self.waits.setdefault(number, [])
            else:
                self.waits.pop(number, None)

    # --- what is always so -----------------------------------------------------------------------

    @invariant()
    def nobody_waits_while_there_is_credit(self) -> None:
        if hasattr(self, "subject"):
            left = self.credit - sum(read.bytes_max for read in self.under_way.values())
            assert left <= 0 or not self.waits
            assert self.subject.credit == self.credit


TestSubscriptionAgainstStory = SubscriptionAgainstStory.TestCase
TestSubscriptionAgainstStory.settings = settings(
    max_examples=2_000 if LONG else 50, stateful_step_count=40, report_multiple_bugs=False
)
