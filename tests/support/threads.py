"""What the tests share: waiting for a condition, and threads with an owner.

Nothing here sleeps in the hope that something has happened by then: `until` polls a condition and
fails, with words, at its deadline.
"""

from __future__ import annotations

import asyncio
import functools
import os
import random
import sys
import threading
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import hocket

PATIENCE = 30.0  # seconds until a wait counts as a hang; far more than any healthy wait takes
SLOWNESS = 1.0  # so many times longer waits last in a world in which nodes die
LONG = os.environ.get("HOCKET_STRESS") == "long"

# By a thread's number: whether it waits inside hocket in the process that it went on in, the newest
# last (`remote.far`).
elsewhere: dict[int, list[Callable[[], bool]]] = {}

Error = TypeVar("Error", bound=BaseException)
_PACKAGE = os.path.dirname(hocket.__file__)


def pause_after(waited: float) -> float:
    """Seconds until the next look at what is waited for.

    A twentieth of the time that has passed: what comes soon is seen soon, and whoever waits long
    does not take the processor from what it waits for.
    """
    return min(max(0.0005, waited / 20), 0.05)


def until(predicate: Callable[[], Any], timeout: float = PATIENCE, what: str = "") -> Any:
    """Poll `predicate` until it is true and return its value; AssertionError at the deadline."""
    began = time.monotonic()
    while True:
        value = predicate()
        if value:
            return value
        waited = time.monotonic() - began
        if waited >= timeout * SLOWNESS:
            raise AssertionError(f"not within {waited} s: {what or _source_of(predicate)}")
        time.sleep(pause_after(waited))


async def until_async(
    predicate: Callable[[], Any], timeout: float = PATIENCE, what: str = ""
) -> Any:
    """`until` for a coroutine: the loop turns between two looks."""
    began = time.monotonic()
    while True:
        value = predicate()
        if value:
            return value
        waited = time.monotonic() - began
        if waited >= timeout:
            raise AssertionError(f"not within {timeout} s: {what or _source_of(predicate)}")
        await asyncio.sleep(pause_after(waited))


async def settle(turns: int = 10) -> None:
    """Let everything that is ready on this loop run."""
    for _ in range(turns):
        await asyncio.sleep(0)


def run(main: Awaitable[Any], timeout: float = 2 * PATIENCE) -> Any:
    """`asyncio.run` that fails instead of hanging."""

    async def bounded() -> Any:
        async with asyncio.timeout(timeout):
            return await main

    return asyncio.run(bounded())


def noise(size: int, seed: object = 0) -> bytes:
    """`size` bytes that look random and are the same in every run."""
    return random.Random(f"{seed}").randbytes(size)


class Running:
    """A function at work in a thread of its own, which ends with the `with` block.

    Its failure reaches the owner: through `result()`, through `failure(kind)` where it is expected,
    and otherwise at the end of the block.
    """

    def __init__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._call = functools.partial(target, *args, **kwargs)
        self._value: Any = None
        self._error: BaseException | None = None
        self._error_was_seen = False
        # A daemon, so that a test that failed with its thread stuck does not hold up the exit.
        self.thread = threading.Thread(target=self._run, name=f"test: {target}", daemon=True)

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def __enter__(self) -> Running:
        self.thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:  # the body failed, so the thread may wait for ever
            self.thread.join(0.5)
            return
        self.wait()
        if self._error is not None and not self._error_was_seen:
            raise self._error

    @property
    def done(self) -> bool:
        return not self.thread.is_alive()

    def wait(self, timeout: float = PATIENCE) -> None:
        self.thread.join(timeout)
        if self.thread.is_alive():
            raise AssertionError(f"still running after {timeout} s, at:\n{stack(self.thread)}")

    def result(self, timeout: float = PATIENCE) -> Any:
        """What the function returned; raises what it raised."""
        self.wait(timeout)
        if self._error is not None:
            self._error_was_seen = True
            raise self._error
        return self._value

    def failure(self, kind: type[Error], timeout: float = PATIENCE) -> Error:
        """The error it ended with, which has to be exactly of this type."""
        self.wait(timeout)
        assert self._error is not None, f"returned {self._value!r}, expected {kind.__name__}"
        if type(self._error) is not kind:
            self._error_was_seen = True
            raise self._error
        self._error_was_seen = True
        return self._error

    def parked(self) -> Running:
        """Return once the thread is blocked inside hocket (asleep there, not merely started)."""
        wait_parked(self.thread)
        return self


def stack(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    return "".join(traceback.format_stack(frame)) if frame else "(it has ended)"


def wait_parked(thread: threading.Thread, timeout: float = PATIENCE) -> None:
    """Wait until `thread` is asleep inside hocket.

    Asleep: the kernel calls it sleeping and has not switched it while we let go of the GIL several
    times. (A thread that waits for the GIL wakes every few milliseconds, so its counters move.)
    """
    looks: list[tuple[str, ...] | None] = []

    def asleep() -> bool:
        if not thread.is_alive():
            raise AssertionError(f"{thread.name} ended instead of blocking")
        looks.append(_scheduling(thread))
        last = looks[-4:]
        return len(last) == 4 and last[0] is not None and last.count(last[0]) == 4

    began = time.monotonic()
    while not (asleep() and (_inside_hocket(thread) or _inside_elsewhere(thread))):
        waited = time.monotonic() - began
        if waited >= timeout:
            raise AssertionError(f"not blocked within {timeout} s, at:\n{stack(thread)}")
        time.sleep(max(0.001, pause_after(waited)))


def is_parked(thread: threading.Thread) -> bool:
    """Whether it sleeps inside hocket now: see `wait_parked`."""
    looks = []
    for _ in range(4):
        looks.append(_scheduling(thread))
        time.sleep(0.001)
    return looks[0] is not None and looks.count(looks[0]) == 4 and _inside_hocket(thread)


def _scheduling(thread: threading.Thread) -> tuple[str, ...] | None:
    try:
        status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    except OSError:
        return None
    lines = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    if not lines["State"].startswith("S"):
        return None
    return lines["voluntary_ctxt_switches"], lines["nonvoluntary_ctxt_switches"]


def _inside_hocket(thread: threading.Thread) -> bool:
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False


def _inside_elsewhere(thread: threading.Thread) -> bool:
    asking = list(elsewhere.get(thread.ident or 0, ()))
    return bool(asking) and asking[-1]()


def _source_of(predicate: Callable[[], Any]) -> str:
    code = getattr(predicate, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(predicate)
