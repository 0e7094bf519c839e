"""A message queue against two lists: one for each direction, and what each side knows.

One thread acts. After each act the model makes its own moves (listeners take, sides learn of a
close) and then both must agree: on every listener's history, on `closed`, on the end.
"""

import pytest
from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from hocket.errors import Aborted, Closed
from tests.support.queues.listeners import History
from tests.support.queues.worlds import World
from tests.support.threads import LONG, until

SIDES = st.sampled_from([0, 1])
MESSAGES_MAX = 3  # of a full-event queue; a mixed one is bounded per stage, and left roomy here
UNTOLD = object()


class Listener(History):
    def __init__(self):
        super().__init__()
        self.expected = []  # the messages it has to hear, in order
        self.expected_end = UNTOLD


class Side:
    def __init__(self, queue):
        self.queue = queue
        self.incoming = []  # sent by the other side, not taken here
        self.listener = None
        self.listeners = []  # all there ever were
        self.paused = False
        self.closing = False  # close was called here
        self.learned = False  # the other side's close was learned of here
        self.end_told = False
        self.refusals = 0
        self.writables_before = None  # a refusal is open since there were so many

    @property
    def reading(self):
        return self.listener is not None and not self.paused

    @property
    def writables(self):
        return sum(listener.writables for listener in self.listeners)


class QueueModel(RuleBasedStateMachine):
    kind = "full-event"
    pumps = 2
    threads = 1

    def __init__(self):
        super().__init__()
        self.world = World(self.kind, self.pumps, self.threads)
        self.aborted = False
        self.counter = 0
        self.sides = []

    def teardown(self):
        self.world.__exit__(None, None, None)

    @initialize()
    def connect(self):
        limits = {} if self.kind == "mixed" else {"messages_max": MESSAGES_MAX}
        self.sides = [Side(queue) for queue in self.world.pair(**limits)]

    # --- what the model knows ----------------------------------------------------------------

    def other(self, side):
        return self.sides[1 - self.sides.index(side)]

    def finished(self, side):
        """Nothing more will come to this side, and it has taken all there was."""
        other = self.other(side)
        return (other.closing or other.learned) and not side.incoming

    @property
    def over(self):
        return all(self.finished(side) for side in self.sides)

    # --- the acts ------------------------------------------------------------------------------

    @rule(which=SIDES, empty=st.booleans())
    def send(self, which, empty):
        side = self.sides[which]
        waiting = self.other(side).incoming
        self.counter += 1
        message = b"" if empty else b"%d" % self.counter
        took = side.queue.send(message)
        if self.aborted or side.closing or side.learned:
            assert took is False
        elif self.kind == "mixed" or len(waiting) < MESSAGES_MAX:
            assert took is True
        elif not took:
            side.refusals += 1
            side.writables_before = side.writables
        assert took is False or len(waiting) <= MESSAGES_MAX or self.kind == "mixed"
        if took:
            waiting.append(message)

    @rule(which=SIDES)
    def receive(self, which):
        side = self.sides[which]
        if self.aborted or self.over:
            closed = until(lambda: self.refusal_to_receive(side))
            assert (type(closed.__cause__) is Aborted) == self.aborted
        elif side.listener is not None:
            assert self.finished(side) or side.queue.receive() is None
        elif side.incoming:
            assert side.queue.receive_wait(timeout=10) == side.incoming.pop(0)
        elif not self.finished(side):
            assert side.queue.receive() is None

    def refusal_to_receive(self, side):
        try:
            assert side.queue.receive() is None
        except Closed as closed:
            return closed
        return None

    @rule(which=SIDES)
    def listen(self, which):
        side = self.sides[which]
        side.listener = Listener()
        side.listeners.append(side.listener)
        side.queue.set_listener(side.listener)

    @rule(which=SIDES)
    def stop_listening(self, which):
        self.sides[which].listener = None
        self.sides[which].queue.set_listener(None)

    @precondition(lambda self: any(side.listener for side in self.sides))
    @rule(which=SIDES)
    def pause_or_resume(self, which):
        side = self.sides[which]
        side.paused = not side.paused
        (side.queue.pause if side.paused else side.queue.resume)()

    @precondition(lambda self: self.counter > 3)
    @rule(which=SIDES)
    def close(self, which):
        self.sides[which].queue.close()
        self.sides[which].closing |= not self.aborted

    @precondition(lambda self: self.counter > 6)
    @rule(which=SIDES)
    def abort(self, which):
        if self.over:  # the pumps may not have come to it yet, and until then an abort is one
            until(lambda: all(side.queue.ended for side in self.sides))
        self.aborted |= not self.over
        self.sides[which].queue.abort()

    # --- what must hold after each act ----------------------------------------------------------

    @invariant()
    def both_agree(self):
        if not self.aborted:
            self.move()
        for side in self.sides:
            self.expect_end(side)
        for side in self.sides:
            for listener in side.listeners:
                self.check_history(side, listener)
            self.check_writable(side)
            if side.closing or side.learned or self.aborted:
                until(lambda side=side: side.queue.closed)
            else:
                assert not side.queue.closed

    def move(self):
        """What happens by itself; twice, because what one side learns is news to the other."""
        for side in self.sides * 2:
            if side.reading:
                side.listener.expected += side.incoming
                side.incoming.clear()
            side.learned |= self.other(side).closing and not side.incoming

    def expect_end(self, side):
        if (self.aborted or self.over) and side.listener and not side.end_told:
            side.end_told = True
            side.listener.expected_end = Aborted if self.aborted else None

    def check_history(self, side, listener):
        until(lambda: len(listener.messages) >= len(listener.expected))
        if listener.expected_end is not UNTOLD:
            until(lambda: listener.reasons)
        self.world.settle()
        assert listener.messages == listener.expected
        if listener.expected_end is UNTOLD:
            assert listener.reasons == []
        elif listener.expected_end is None:
            assert listener.reasons == [None]
        else:
            assert type(listener.reason) is Aborted
            assert listener.reason.unread == side.incoming
            assert listener.reason.undelivered == self.other(side).incoming

    def check_writable(self, side):
        if side.closing or side.learned or self.aborted:
            side.writables_before = None
        if side.writables_before is None:
            return
        assert side.writables <= side.refusals
        if side.listener and not self.other(side).incoming:
            until(lambda: side.writables > side.writables_before)
            side.writables_before = None


class OnePumpModel(QueueModel):
    pumps = 1


class ThreadsModel(QueueModel):
    threads = 2


class MixedModel(QueueModel):
    kind = "mixed"


@pytest.mark.parametrize(
    ("model", "examples"),
    [(QueueModel, 15), (OnePumpModel, 10), (ThreadsModel, 8), (MixedModel, 8)],
    ids=["full-event", "full-event-one-pump", "full-event-threads", "mixed"],
)
def test_a_queue_agrees_with_two_lists(model, examples):
    run_state_machine_as_test(
        model,
        settings=settings(
            max_examples=examples * (40 if LONG else 1),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
