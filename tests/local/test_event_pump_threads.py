"""EventPump with several threads: a slow listener delays no other queue, and each keeps its order.

The contract suite runs on such pumps too, as a world of its own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from hocket.errors import Aborted, Closed, OutOfRange, WrongThread, WrongType
from hocket.local import EventPump
from hocket.local.strand import Crew, Strand, Word
from tests.support.queues.listeners import History
from tests.support.queues.worlds import World, crew_rests, numbered
from tests.support.threads import Running, until

KINDS = ["full-event", "mixed"]


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param, 1, threads=3) as made:
        yield made


def pairs(world: World, count: int) -> list[tuple[Any, Any]]:
    client, server = world.brokers()
    return [world.connected(client, server) for _ in range(count)]


# --- listeners -----------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_a_slow_listener_delays_the_others_on_one_thread_and_none_on_several(threads: int):
    with World("full-event", 1, threads) as world:
        (slow_mine, slow_theirs), (mine, theirs) = pairs(world, 2)
        go_on = threading.Event()
        stuck = History(on_received=lambda _message: go_on.wait(20))
        history = History()
        slow_theirs.set_listener(stuck)
        theirs.set_listener(history)
        slow_mine.send(b"slow")
        until(lambda: stuck.messages)
        for message in numbered(50):
            slow_mine.send(message)
            mine.send(message)
        if threads > 1:
            until(lambda: len(history.messages) == 50)
        assert stuck.messages == [b"slow"]
        assert history.messages == ([] if threads == 1 else numbered(50))
        go_on.set()
        until(lambda: len(stuck.messages) == 51 and len(history.messages) == 50)
        assert stuck.messages == [b"slow", *numbered(50)]


class OneAtATime(History):
    """Notes whether two of its methods ever ran at once."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: list[None] = []
        self.at_once = 0

    def note(self, *event: Any) -> None:
        self.busy.append(None)
        self.at_once = max(self.at_once, len(self.busy))
        super().note(*event)
        self.busy.pop()


def test_what_happens_on_one_queue_is_told_one_at_a_time_and_in_order(world: World):
    ends = pairs(world, 6)
    messages = numbered(300)
    histories = {end: OneAtATime() for pair in ends for end in pair}
    for end, history in histories.items():
        end.set_listener(history)

    def send(end: Any) -> None:
        for message in messages:
            end.send_wait(message, timeout=20)

    senders = [world.thread(send, end) for end in histories]
    for sender in senders:
        sender.result()
    for mine, _theirs in ends:
        mine.close()
    until(lambda: all(history.reasons for history in histories.values()))
    for history in histories.values():
        assert history.messages == history.handed_over == messages
        assert history.events[-1] == ("closed", None)
        assert history.at_once == 1
    told_by = set().union(*(history.threads for history in histories.values()))
    assert told_by <= world.listening_threads(world.client_pump)
    assert len(told_by) > 1


def test_a_busy_queue_lets_the_others_have_their_turn():
    pump = EventPump(threads=2)
    busy, other = pump.strand(), pump.strand()
    told, go_on = threading.Event(), threading.Event()

    def again() -> None:
        if not told.is_set():
            busy.post_if_open(again)

    held = pump.strand()
    held.post_if_open(lambda: go_on.wait(20))  # one of the two threads
    busy.post_if_open(again)
    with pump:
        other.post_if_open(told.set)
        assert told.wait(20)
        go_on.set()


def test_errors_of_listeners_are_reported_and_the_next_message_follows(world: World):
    ((mine, theirs),) = pairs(world, 1)

    def complain(message: Any) -> None:
        raise LookupError(message)

    history = History(on_received=complain)
    theirs.set_listener(history)
    for message in numbered(3):
        mine.send(message)
    assert [error.args for error in world.take_errors(3)] == [(m,) for m in numbered(3)]
    assert history.messages == numbered(3)
    world.client_pump.strand().post_if_open(lambda: complain("an event itself"))
    assert [error.args for error in world.take_errors(1)] == [("an event itself",)]


def test_calls_that_wait_are_refused_on_each_of_the_pumps_threads(world: World):
    ((mine, theirs),) = pairs(world, 1)
    outcomes: list[type[BaseException] | None] = []

    def wait_here(_message: Any = None) -> None:
        try:
            mine.receive_wait(timeout=20)
        except WrongThread as refused:
            outcomes.append(type(refused))

    theirs.set_listener(History(on_received=wait_here))
    mine.send(b"x")
    until(lambda: outcomes == [WrongThread])
    world.client_pump.post(wait_here)
    until(lambda: outcomes == [WrongThread] * 2)
    theirs.send(b"elsewhere it waits")
    assert mine.receive_wait(timeout=20) == b"elsewhere it waits"


# --- what is posted to the pump itself -----------------------------------------------------------


def test_posts_and_timers_run_on_the_pumps_own_thread_in_order():
    order: list[int] = []
    threads: set[threading.Thread] = set()
    with EventPump("several", threads=4) as pump:
        for number in range(500):
            pump.post(lambda number=number: order.append(number))
            pump.post(lambda: threads.add(threading.current_thread()))
        done = threading.Event()
        pump.call_later(0, lambda: (threads.add(threading.current_thread()), done.set()))
        assert done.wait(20)
    assert order == list(range(500))
    assert [thread.name for thread in threads] == ["several"]


@pytest.mark.parametrize(
    ("threads", "error"), [(0, OutOfRange), (-1, OutOfRange), ("2", WrongType), (True, WrongType)]
)
def test_a_number_of_threads_that_makes_no_sense_is_refused(threads: Any, error: type[Exception]):
    with pytest.raises(error):
        EventPump(threads=threads)


def test_the_repr_tells_the_threads():
    assert "threads" not in repr(EventPump())
    assert "3 threads" in repr(EventPump(threads=3))


# --- the end -------------------------------------------------------------------------------------


def test_stop_drains_tells_the_end_and_leaves_no_thread():
    with World("full-event", 2, threads=3) as world:
        mine, theirs, my_history, their_history = world.heard_pair()
        for message in numbered(200):
            mine.send_wait(message, timeout=20)
        world.server_pump.stop()
        until(lambda: my_history.reasons)
        assert their_history.messages == numbered(200)
        assert type(their_history.events[-1][1]) is type(my_history.reason) is Aborted
        assert my_history.reason.undelivered == []
        assert not any(thread.is_alive() for thread in world.server_pump._crew._threads)
        assert world.server_pump._crew.thread_ids == set()
        assert theirs.send(b"x") is False


def test_stop_without_draining_drops_what_is_queued_and_still_tells_the_end():
    with World("full-event", 2, threads=2) as world:
        mine, theirs, my_history, _ = world.heard_pair()
        go_on = threading.Event()
        history = History(on_received=lambda _message: go_on.wait(20))
        theirs.set_listener(history)
        mine.send(b"held")
        until(lambda: history.messages)
        dropped: list[str] = []
        theirs._pump.post_if_open(lambda: dropped.append("an ordinary event"))
        theirs._pump.post_last(lambda: history.note("a word"))
        with Running(world.server_pump.stop, False) as stopping:
            until(lambda: world.server_pump.stopping)
            go_on.set()
            stopping.result()
        until(lambda: my_history.reasons)
        assert dropped == []
        assert [event[0] for event in history.events] == ["received", "a word", "closed"]


def test_a_listener_may_stop_its_pump():
    with World("full-event", 2, threads=2) as world:
        mine, theirs = world.pair()
        my_history = History()
        mine.set_listener(my_history)
        history = History(on_received=lambda _message: world.server_pump.stop())
        theirs.set_listener(history)
        mine.send(b"stop")
        until(lambda: my_history.reasons and history.reasons)
        until(lambda: not world.server_pump.running)
        assert history.messages == [b"stop"]


def test_a_pump_that_never_started_runs_what_was_posted_when_it_stops():
    ran: list[str] = []
    pump = EventPump(threads=2)
    strand = pump.strand()
    strand.post_if_open(lambda: ran.append("event"))
    pump.post(lambda: ran.append("post"))
    pump.stop()
    assert sorted(ran) == ["event", "post"]
    assert strand.stopping
    assert strand.post_if_open(lambda: ran.append("late")) is False
    strand.post_last(lambda: ran.append("later"))  # too late for that, too
    assert sorted(ran) == ["event", "post"]


def test_posts_racing_with_a_stop_run_or_are_refused():
    for _ in range(20):
        pump = EventPump(threads=3).start()
        strands = [pump.strand() for _ in range(3)]
        ran: list[list[int]] = [[] for _ in strands]
        start = threading.Barrier(4)

        def post(
            which: int, strands: Any = strands, ran: Any = ran, start: Any = start
        ) -> list[int]:
            taken = []
            start.wait(10)
            number = 0
            while strands[which].post_if_open(lambda number=number: ran[which].append(number)):
                taken.append(number)
                number += 1
            return taken

        posters = [Running(post, which).__enter__() for which in range(3)]
        start.wait(10)
        pump.stop()
        assert ran == [poster.result() for poster in posters]


# --- narrow places -------------------------------------------------------------------------------


class NoPump:
    """The employer of a crew whose threads are never started."""

    thread_id = None

    def __init__(self) -> None:
        self.words: list[Word] = []
        self.errors: list[BaseException] = []

    def report(self, error: BaseException) -> None:
        self.errors.append(error)

    def speak_last(self, word: Word) -> None:
        self.words.append(word)


def crew_closed_during_a_put() -> tuple[Crew, Strand]:
    """A crew that ends between the look and the entry of a strand."""
    crew = Crew(NoPump(), "crew", 2)
    put = crew.strands.put

    def closed_meanwhile(strand: Strand) -> None:
        crew.close(drain=True)
        with pytest.raises(Closed):
            crew.strands.get_nowait()
        put(strand)

    crew.strands = _Patched(crew.strands, closed_meanwhile)
    return crew, Strand(crew)


class _Patched:
    """An event queue with another `put`: its slots cannot be replaced."""

    def __init__(self, queue: Any, put: Any) -> None:
        self._queue = queue
        self.put = put

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def test_an_event_whose_post_was_overtaken_by_the_end_is_taken_back():
    _crew, strand = crew_closed_during_a_put()
    ran: list[str] = []
    assert strand.post_if_open(lambda: ran.append("late")) is False
    assert not strand._events
    strand.run()
    assert ran == []


def test_an_event_that_was_run_before_its_post_was_refused_counts_as_taken():
    crew, strand = crew_closed_during_a_put()
    ran: list[str] = []
    refuse = crew.strands.put

    def run_and_refuse(entered: Strand) -> None:
        entered.run()  # a thread that was still at this strand
        refuse(entered)

    crew.strands.put = run_and_refuse
    assert strand.post_if_open(lambda: ran.append("in time")) is True
    assert ran == ["in time"]


def test_events_that_come_while_the_crew_ends_are_run_by_the_thread_that_is_at_it():
    crew = Crew(NoPump(), "crew", 2)
    strand = Strand(crew)
    ran: list[str] = []

    def first() -> None:
        strand._events.append(lambda: ran.append("second"))  # its post is under way
        crew.close(drain=True)
        ran.append("first")

    strand.post_if_open(first)
    strand.run()
    assert ran == ["first", "second"]


def test_a_strand_that_another_thread_runs_is_left_to_it():
    crew = Crew(NoPump(), "crew", 2)
    strand = Strand(crew)
    ran: list[str] = []
    del strand._turn[0]
    strand.post_if_open(lambda: ran.append("x"))
    strand.run()
    assert ran == []
    strand._turn.append(None)
    strand.run()
    assert ran == ["x"]


class TakenBack(deque[Any]):
    """Events of which the last is taken back just before it is popped."""

    def popleft(self) -> Any:
        if len(self) == 1:
            self.clear()
        return super().popleft()


def test_an_event_that_is_taken_back_while_the_strand_runs_is_not_missed():
    strand = Strand(Crew(NoPump(), "crew", 2))
    ran: list[str] = []
    strand._events = TakenBack([lambda: ran.append("stays"), lambda: ran.append("is taken back")])
    strand.run()
    assert ran == ["stays"]
    assert len(strand._turn) == 1


def test_a_crew_rests_when_there_is_nothing_to_do():
    with EventPump(threads=2) as pump:
        until(lambda: crew_rests(pump))
