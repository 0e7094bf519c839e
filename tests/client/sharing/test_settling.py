"""Whatever is said about messages, in any order: the broker is told exactly that, once."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from itertools import pairwise, repeat

import pytest
from hypothesis import given, settings, strategies as st

from hocket.client_core.consuming.attachment import TIDY_US
from hocket.client_core.consuming.message import Message
from hocket.client_core.sharing.message import SharedMessage
from hocket.client_core.sharing.progress import LAPSED_MAX, SharedProgress
from hocket.client_core.sharing.ranges import in_words, ranges_of
from tests.support.client.sharing import Sharing, triples
from tests.support.threads import LONG, Running

COUNT = 12
TERMINAL = {"ack", "nack", "reject"}
ARGUMENTS = {"ack": [()], "nack": [(), (5,)], "reject": [(), ("bad",)], "extend": [(), (60,)]}

saying = st.tuples(
    st.just("say"),
    st.sampled_from(list(ARGUMENTS)).flatmap(
        lambda action: st.tuples(st.just(action), st.sampled_from(ARGUMENTS[action]))
    ),
    st.integers(0, COUNT - 1),
    st.integers(1, COUNT),  # how many from there on: one is a message, more a batch
)
happening = st.tuples(st.sampled_from(["wait", "answer"]))


@settings(max_examples=500 if LONG else 40, deadline=None)
@given(st.lists(st.one_of(saying, saying, saying, happening), max_size=40))
def test_what_is_said_is_told_exactly(steps):
    one = Sharing(prefetch=4 * COUNT)
    one.lease((0, COUNT, 1))
    batch = one.core.next_batch()
    assert len(batch) == COUNT
    one.settles()
    expected: Counter[tuple[str, int]] = Counter()
    settled: set[int] = set()
    told: Counter[tuple[str, int]] = Counter()
    open_settles = []

    def listen() -> None:
        for settle in one.settles():
            open_settles.append(settle)
            for _, start, end in triples(settle.ranges):
                told.update((settle.action, offset) for offset in range(start, end))

    for step in steps:
        if step[0] == "wait":
            one.stage.advance(TIDY_US)
        elif step[0] == "answer" and open_settles:
            one.answer(open_settles.pop(0))
        elif step[0] == "say":
            _, (action, arguments), first, count = step
            last = min(COUNT, first + count)
            whom = batch.messages()[first] if count == 1 else part_of(batch, first, last)
            getattr(whom, action)(*arguments)
            meant = set(range(first, last)) - settled
            expected.update((action, offset) for offset in meant)
            if action in TERMINAL:
                settled |= meant
        listen()
    one.stage.advance(TIDY_US)
    listen()
    assert told == expected
    assert one.held.keys() == set(range(COUNT)) - settled
    for settle in open_settles:
        one.answer(settle)
    assert one.core.are_committed(one.core.acked_so_far())
    assert one.core.refused == 0


def part_of(batch, first, last):
    return type(batch)(
        batch._kind, batch._batch, batch.offset + first, batch.offset + last, batch.topic,
        batch._progress, batch.delivery_count,
    )  # fmt: skip


@given(st.lists(st.integers(0, 40)))
def test_ranges_are_the_offsets_in_order(offsets):
    ranges = ranges_of(offsets)
    assert [each for start, end in ranges for each in range(start, end)] == sorted(set(offsets))
    assert all(end < start for (_, end), (start, _) in pairwise(ranges))


def test_ranges_in_words():
    assert in_words([(3, 4), (7, 10)]) == "3, 7 to 9"


# --- from many threads ---------------------------------------------------------------------------


def message(progress: SharedProgress, offset: int) -> Message:
    return tuple.__new__(SharedMessage, (b"", None, {}, "t", 0, offset, 0, 1, progress))


@pytest.fixture
def wild_switching():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("wild_switching")
def test_what_many_threads_say_is_all_heard():
    threads, each = 8, 1500 if not LONG else 20_000
    lock = threading.Lock()
    heard: Counter[str] = Counter()
    aroused = []

    def gather(progress: SharedProgress) -> None:
        for verdict, offsets, _ in progress.gather(0):
            heard[verdict.action] += len(offsets)

    def arouse(progress: SharedProgress) -> None:
        with lock:
            progress.awake = True
            aroused.append(progress)
            if progress.hurries:
                gather(progress)

    progress = SharedProgress(0, keyed=False, arouse=arouse)
    progress.hand_out(range(threads * each), repeat(1), 0)

    def settle(thread: int) -> None:
        for n in range(each):
            said = message(progress, n * threads + thread)
            (said.ack if n % 3 else said.nack)()

    running = [Running(settle, thread).__enter__() for thread in range(threads)]
    while not all(thread.done for thread in running):
        if aroused:
            with lock:
                aroused.clear()
                gather(progress)
    for thread in running:
        thread.result()
    assert progress.awake or not progress.notes  # somebody is going to look, or there is nothing
    gather(progress)
    assert heard.total() == threads * each
    assert heard["nack"] == threads * ((each + 2) // 3)
    assert progress.held == {}
    assert progress.refused == []


def test_what_has_ended_is_refused_also_where_it_is_not_remembered():
    progress = SharedProgress(0, keyed=False, arouse=lambda progress: None)
    for round_ in range(2):
        progress.hand_out(range(LAPSED_MAX - 1), repeat(round_ + 1), 0)
        progress.delivered_again(range(LAPSED_MAX))
    for round_ in range(2):
        old = tuple.__new__(SharedMessage, (b"", None, {}, "t", 0, 5, 0, round_ + 1, progress))
        old.ack()
    progress.gather(0)
    assert progress.refused == [5, 5]  # the older of the two was forgotten
    new = tuple.__new__(SharedMessage, (b"", None, {}, "t", 0, LAPSED_MAX, 0, 1, progress))
    new.ack()  # it was never here, and lies behind all that was forgotten
    progress.gather(0)
    assert progress.refused == [5, 5]
