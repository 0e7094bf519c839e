"""How a thread waits for a condition that another thread brings about; `aio` adds coroutines.

Rule 1: whoever waits announces itself in a `Waiters` list FIRST and looks again AFTERWARDS.
Rule 2: whoever changes the condition makes the change FIRST and looks into the list AFTERWARDS.

One of the two therefore sees the other, and no lock is needed on the fast path, where nobody
waits and rule 2 costs one look at an empty list. (A lock costs 230 ns a pair here and a Condition
far more; a whole small write costs less than both.) It rests on the GIL, which orders the two
steps of one thread as every other thread sees them; on a build without it `hocket.local` refuses
to load rather than lose a wake-up now and then.

A wake-up is a hint to look again, never a hand-over: what was waited for stays where it is until
somebody takes it, so a waiter that is cancelled loses nothing and passes the hint on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from threading import TIMEOUT_MAX, Lock
from time import monotonic, sleep
from typing import TypeVar

from hocket.deadline import Deadline

T = TypeVar("T")
Wake = Callable[[], bool]  # True: the waiter was woken; False: it is gone, wake the next

# How often a thread looks, letting the GIL go in between, before it sleeps. A sleeping thread
# takes 25 us and more to wake, and a partner on the same core answers within two or three looks. On
# different cores both then queue for the GIL, which is a sleep as well: more looks only stretch the
# tail (round trip p99 by a half from 10 to 100 looks, p50 unchanged).
SPINS = 10
# A turn is over when whoever was next has let the core go. A partner does so within microseconds; a
# busy process has it for its slice, milliseconds each time. Whoever loses that much sleeps instead:
# ten slices would be added to every wait, beyond the deadline of a brief one.
SPIN_SECONDS_MAX = 0.001
# More spinning threads than cores only keep the partner off them, so the others sleep at once.
_turns_to_spin = [None] * (os.cpu_count() or 1)
# Lets another thread run. Not every system has it; to sleep for no time does the same.
sched_yield: Callable[[], None] = getattr(os, "sched_yield", partial(sleep, 0))


def refuse_without_gil(gil_enabled: bool) -> None:
    if not gil_enabled:
        raise ImportError(
            "hocket.local relies on the GIL for the order of its lock-free steps; "
            "run a free-threaded Python with PYTHON_GIL=1"
        )


refuse_without_gil(getattr(sys, "_is_gil_enabled", lambda: True)())


class Waiters(list[Wake]):
    """Those who wait for one condition, oldest first; falsy while nobody waits."""

    __slots__ = ()

    def wake_one(self) -> None:
        while self:
            try:
                wake = self.pop(0)
            except IndexError:  # another thread woke the last one between the look and the pop
                return
            if wake():
                return

    def wake_all(self) -> None:
        for _ in range(len(self)):
            self.wake_one()

    def withdraw(self, wake: Wake) -> bool:
        """Take a waiter off the list; False if its wake-up had already been sent."""
        try:
            self.remove(wake)
        except ValueError:
            return False
        return True

    def done(self, wake: Wake, *, used: bool) -> None:
        """End one wait: a wake-up that was sent and not used goes to the next waiter."""
        if not used and not self.withdraw(wake):  # used: it is in the list no more
            self.wake_one()


class SleepingThread:
    """One sleep of one thread, until `wake` is called."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = Lock()
        self._lock.acquire()

    def wake(self) -> bool:
        try:
            self._lock.release()
        except RuntimeError:  # woken twice
            return False
        return True

    def sleep(self, seconds: float | None) -> bool:
        """Sleep for at most `seconds`; False if the time ran out."""
        return self._lock.acquire(True, -1 if seconds is None else min(seconds, TIMEOUT_MAX))


def spin(attempt: Callable[[], T | None], seconds: float | None = None) -> T | None:
    """Call `attempt` a few times, letting others run in between; None if it gave nothing.

    At least once, and then while less than `seconds` have passed and others run only briefly.
    """
    try:
        _turns_to_spin.pop()
    except IndexError:
        return None
    seconds_max = SPIN_SECONDS_MAX if seconds is None else min(seconds, SPIN_SECONDS_MAX)
    try:
        end = monotonic() + seconds_max
        for _ in range(SPINS):
            sched_yield()
            result = attempt()
            if result is not None or monotonic() >= end:
                return result
        return None
    finally:
        _turns_to_spin.append(None)


def wait(attempt: Callable[[], T | None], waiters: Waiters, deadline: Deadline, what: str) -> T:
    """Call `attempt` until it gives something other than None, asleep in between."""
    result = spin(attempt, deadline.remaining())
    if result is not None:
        return result
    while True:
        sleeper = SleepingThread()
        waiters.append(sleeper.wake)
        used = False
        try:
            result = attempt()
            if result is not None:
                return result
            woken = sleeper.sleep(deadline.remaining())
            result = attempt()
            used = woken
            if result is not None:
                return result
            if not woken:
                raise deadline.missed(what)
        finally:
            waiters.done(sleeper.wake, used=used)
