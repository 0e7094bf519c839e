"""A run: one triggered update after another, until it is told to stop.

The update runs in a thread of its own, so that this one can look at the figures and listen for
somebody who says stop. Whoever stops a run in the middle of an update loses nothing: the next run
does the update again, and everything that is written is written once.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from hocket.deadline import in_seconds
from hocket.errors import HocketError
from hocket.pipelines.checking import check_topics
from hocket.pipelines.faults import PipelineFault
from hocket.pipelines.figures import Figures, Watched
from hocket.pipelines.runs import FINISHED, STOPPED, LiveRun

if TYPE_CHECKING:
    from hocket.client.faces.blocking.client import Client
    from hocket.pipelines.declared import Declared
    from hocket.pipelines.engine import Engine

LOOK_SECONDS = 1.0  # between two looks at the figures
HEAR_SECONDS = 0.2  # between two looks at whether a signal came
END_SECONDS = 30.0  # an update that is under way may take so long to end when the run is stopped
TELL_SECONDS = 60.0  # an update in which nothing happened is told only so often
MASTER_LOOK_SECONDS = 5.0  # between two looks at whether the master answers
MASTER_LOST_SECONDS = (
    60.0  # an update that has not ended after so long without a master is given up
)
SPARK_ENDS_SECONDS = 5.0  # how long Spark, told to end when we are, may take from its last word
RETRY_SECONDS = (1.0, 5.0, 25.0)  # after an update that failed, and the next one, and the next


@dataclass(slots=True)
class Update:
    """One triggered update."""

    number: int
    seconds: float = 0.0
    rows: int = 0
    rows_per_second: float = 0.0
    bad: int = 0
    lag: dict[str, int] = field(default_factory=dict)
    rows_in_all: int = 0  # since the run began
    bad_in_all: int = 0


class MasterLost(PipelineFault):
    """Spark's master is gone: no update of this run can be done again."""


class View(Protocol):
    """What the user sees of a run."""

    def line(self, text: str) -> None: ...

    def progress(self, update: Update) -> None: ...

    def updated(self, update: Update) -> None: ...


@dataclass(slots=True)
class Running:
    engine: Engine
    client: Client
    view: View
    timeout: float
    every: float | None  # seconds between the beginnings of two updates; None: there is one
    stopped: Callable[[], bool]  # whether a signal asked to stop
    retries: int = len(RETRY_SECONDS)
    master_problem: Callable[[], str] = str  # why the master does not answer; empty: it does
    _live: LiveRun | None = None
    _told_at: float = 0.0

    def run(self, live: LiveRun) -> None:
        """Run until the end. Raises PipelineFault if an update fails and goes on failing."""
        self._live = live
        try:
            self._repeat()
        except HocketError as error:
            # A signal may go to all processes of a service: then Spark ends with us.
            asked = self._is_asked()
            problem = self.engine.problem(SPARK_ENDS_SECONDS if asked else 0.0)
            if not problem:
                raise
            if not asked:
                raise PipelineFault(problem) from error

    def _repeat(self) -> None:
        self._rehearse()
        number, failures = 0, 0
        rows, bad = 0, 0
        while not self._is_asked():
            began = time.monotonic()
            update = Update(number + 1, rows_in_all=rows, bad_in_all=bad)
            try:
                ended = self._update(update)
            except MasterLost:
                raise
            except HocketError as error:
                if failures >= self.retries or self._must_stop(0) or self.engine.problem():
                    raise
                pause = RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)]
                failures += 1
                self.say(f"{error}; it is tried again in {in_seconds(pause)}")
                if self._must_stop(pause):
                    return
                continue
            if not ended:
                return
            number, failures = number + 1, 0
            rows, bad = update.rows_in_all, update.bad_in_all
            self.view.updated(update)
            self._tell(update)
            if self.every is None or self._must_stop(began + self.every - time.monotonic()):
                return

    def _rehearse(self) -> None:
        """A dry run: what is written wrongly is said before anything is done, and only once."""
        graph, declared = self.engine.graph()
        check_topics(self.client, declared, self.timeout)
        self.engine.update(graph, declared, dry=True, say=lambda _: None)

    def state(self) -> str:
        """How the run ended, if it did not fail."""
        return FINISHED if self.every is None and not self._is_asked() else STOPPED

    def _update(self, update: Update) -> bool:
        """One update to its end; False: it was given up, since the run has to stop."""
        graph, declared = self.engine.graph()
        check_topics(self.client, declared, self.timeout)
        watched = Watched.of(declared)
        before = watched.look(self.client, self.timeout)
        began = time.monotonic()
        at_work = _AtWork(self.engine, graph, declared)
        master = _Master(self)
        with at_work:
            while not at_work.done.wait(0):
                master.look()
                if self._must_stop(LOOK_SECONDS, at_work.done):
                    self.say("ending the update that is under way")
                    if not at_work.done.wait(END_SECONDS):
                        self.say(
                            f"it has not ended within {in_seconds(END_SECONDS)} and is given up: "
                            "the next run does it again"
                        )
                        return False
                with suppress(HocketError):  # the broker may be away for a while
                    _measure(update, before, watched.look(self.client, self.timeout), began)
                    self.view.progress(update)
        _measure(update, before, watched.look(self.client, self.timeout), began)
        return True

    def _must_stop(self, seconds: float, until: threading.Event | None = None) -> bool:
        """Wait so long, or until the event; True: a signal or somebody asks to stop."""
        deadline = time.monotonic() + seconds
        while not self._is_asked():
            left = deadline - time.monotonic()
            if until is not None and until.is_set():
                return False
            assert self._live is not None
            try:
                if self._live.listen(max(0.0, min(left, HEAR_SECONDS))):
                    return True
            except HocketError:  # nobody can ask while the broker is away
                time.sleep(max(0.0, min(left, HEAR_SECONDS)))
            if left <= 0:
                return False
        return True

    def _is_asked(self) -> bool:
        return self.stopped() or (self._live is not None and bool(self._live.stop_reason))

    def say(self, text: str) -> None:
        self.view.line(text)
        with suppress(HocketError):
            assert self._live is not None
            self._live.say("line", text=text)

    def _tell(self, update: Update) -> None:
        now = time.monotonic()
        if update.rows or update.bad or update.number == 1 or now - self._told_at > TELL_SECONDS:
            assert self._live is not None
            # The node that keeps the state of runs may be away: the next update says it all again.
            with suppress(HocketError):
                self._live.say("update", **asdict(update))
                self._told_at = now


class _Master:
    """Watches Spark's master during an update.

    When the master dies, Spark waits for it for ever and says so in its log only. The tasks that
    run already may well end, and the update with them; so it gets some time.
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._answered = self._looked = time.monotonic()

    def look(self) -> None:
        """Raises MasterLost if the master has not answered for too long."""
        if time.monotonic() - self._looked < MASTER_LOOK_SECONDS:
            return
        said_already = self._answered < self._looked
        problem = self._running.master_problem()
        self._looked = time.monotonic()
        if not problem:
            self._answered = self._looked
        elif self._looked - self._answered > MASTER_LOST_SECONDS:
            raise MasterLost(
                f"{problem}. Spark's master was lost {in_seconds(MASTER_LOST_SECONDS)} ago, and "
                "the update has not ended since. Nothing is half done: the next run does it again"
            )
        elif not said_already:
            self._running.say(f"{problem}; the update may end without the master, or is given up")


def _measure(update: Update, before: Figures, now: Figures, began: float) -> None:
    rows, bad = max(0, now.read - before.read), max(0, now.bad - before.bad)
    update.rows_in_all += rows - update.rows
    update.bad_in_all += bad - update.bad
    update.rows, update.bad, update.lag = rows, bad, now.lag
    update.seconds = round(time.monotonic() - began, 3)
    update.rows_per_second = round(rows / max(update.seconds, 1e-3), 1)


class _AtWork:
    """An update in a thread of its own; its failure is raised when the block ends."""

    def __init__(self, engine: Engine, graph: str, declared: Declared) -> None:
        self.done = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(
            target=self._work, args=(engine, graph, declared), name="update", daemon=True
        )

    def _work(self, engine: Engine, graph: str, declared: Declared) -> None:
        try:
            engine.update(graph, declared, say=lambda _: None)
        except BaseException as error:  # noqa: BLE001 - it is raised in the run's own thread
            self._failure = error
        finally:
            self.done.set()

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self.done.is_set():
            self._thread.join()
            if self._failure is not None:
                raise self._failure
