"""One plug-in that a node runs: its calls are timed, and what it raises stops here.

Rule 1: whatever a plug-in raises is logged with the plug-in's name, and reaches nobody else.
Rule 2: an open plug-in that has failed `failures_max` times in a row in one hook is off until the
        node is started again. A closed one stays on: a client that sends what a plug-in fails at
        is refused, and must not have everybody else refused as well.
Rule 3: one that runs apart and loses its process is not switched off: it cannot harm the node, and
        gets another process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from time import monotonic, perf_counter_ns
from typing import Any

from hocket.cluster_model import PluginState
from hocket.plugins.answers import check_answer, words_for
from hocket.plugins.apart import Answer, Apart
from hocket.plugins.found import Loaded
from hocket.plugins.letters import Kind

log = logging.getLogger("hocket.plugins")

FAILURES_MAX = 10  # in a row
SLOW_MS = 20.0  # a fifth of what is noticed as a delay: all clients of the node have waited
WORDS_SECONDS = 10.0  # between two lines of the log about one slow hook, or one that always fails
FAILED = object()


@dataclass(slots=True)
class Timing:
    """Of one hook of one plug-in, since the node was started."""

    calls: int = 0
    rejections: int = 0
    failures: int = 0
    slow: int = 0
    total_ns: int = 0
    max_ns: int = 0
    in_a_row: int = 0  # failures
    told: float = 0.0  # when the log last named it as slow
    told_failure: float = 0.0


@dataclass(slots=True, eq=False)
class Running:
    loaded: Loaded
    slow_ns: int
    failures_max: int
    switched_off: Callable[[], None]  # told when it is
    is_on: bool = True
    problem: str = ""  # what it failed with last
    timings: dict[str, Timing] = field(default_factory=dict)
    topics: tuple[str, ...] = ()  # patterns: it looks at what is published there; none: everywhere
    digest: str = ""  # of its settings
    apart: Apart | None = None

    @property
    def name(self) -> str:
        return self.loaded.name

    @property
    def is_closed(self) -> bool:
        return self.loaded.policy == "closed"

    def looks_at(self, topic: str) -> bool:
        return not self.topics or any(fnmatchcase(topic, each) for each in self.topics)

    def states(self) -> list[PluginState]:
        """How its hooks fare."""
        loaded, apart = self.loaded, self.apart
        return [
            PluginState(
                self.name, loaded.version, loaded.policy, self.is_on, self.problem, hook,
                timing.calls, timing.rejections, timing.failures, timing.slow,
                timing.total_ns // 1_000, timing.max_ns // 1_000,
                *(() if apart is None else (
                    apart.state, apart.kills, apart.ends, apart.waiting, apart.dropped[hook],
                )),
            )
            for hook, timing in self.timings.items()
        ]  # fmt: skip

    # --- within the node -------------------------------------------------------------------------

    def call(self, hook: str, *arguments: Any) -> Any:
        """What the plug-in answers, or FAILED."""
        timing = self.timings[hook]
        began = perf_counter_ns()
        try:
            answer = self.loaded.functions[hook](*arguments)
            check_answer(hook, answer)
        except BaseException as error:  # a plug-in ends no node
            if isinstance(error, KeyboardInterrupt):
                raise
            self.failed(hook, timing, error)
            return FAILED
        finally:
            self.took(hook, timing, perf_counter_ns() - began)
        timing.in_a_row = 0
        return answer

    def took(self, hook: str, timing: Timing, took_ns: int) -> None:
        timing.calls += 1
        timing.total_ns += took_ns
        if took_ns > timing.max_ns:
            timing.max_ns = took_ns
        if took_ns > self.slow_ns and hook != "on_metrics":  # for which nobody has waited
            self._was_slow(hook, timing, took_ns)

    def failed(self, hook: str, timing: Timing, error: BaseException | str) -> None:
        timing.failures += 1
        timing.in_a_row += 1
        text = error if isinstance(error, str) else words_for(hook, error)
        self.problem = f"{hook}: {text}"
        is_lasting = timing.in_a_row > self.failures_max
        if not is_lasting or monotonic() - timing.told_failure >= WORDS_SECONDS:
            timing.told_failure = monotonic()
            log.warning("plug-in '%s' failed in %s: %s", self.name, hook, text)
            if hook != "authenticate" and isinstance(error, BaseException):
                log.debug("where plug-in '%s' failed", self.name, exc_info=error)
        if timing.in_a_row != self.failures_max:
            return
        if self.is_closed:
            log.error(
                "plug-in '%s' failed %d times in a row in %s; its policy is closed, so what it "
                "fails at is refused", self.name, timing.in_a_row, hook,
            )  # fmt: skip
            return
        self.is_on = False
        log.error(
            "plug-in '%s' is switched off: it failed %d times in a row in %s; its policy is open, "
            "so nothing is asked of it until the node is started again",
            self.name, timing.in_a_row, hook,
        )  # fmt: skip
        self.switched_off()
        if self.apart is not None:
            self.apart.stop()

    def _was_slow(self, hook: str, timing: Timing, took_ns: int) -> None:
        timing.slow += 1
        now = monotonic()
        if now - timing.told >= WORDS_SECONDS or not timing.told:
            timing.told = now
            who = "all clients of this node" if self.apart is None else "what it should judge"
            log.warning(
                "plug-in '%s' took %.0f ms in %s, while %s waited (%d times so far)",
                self.name, took_ns / 1e6, hook, who, timing.slow,
            )  # fmt: skip

    # --- apart: see `apart.Events` ---------------------------------------------------------------

    def heard(self, hook: str, answer: Answer) -> None:
        """Count an answer, and what is wrong with it."""
        timing = self.timings[hook]
        self.took(hook, timing, answer.ns)
        if answer.kind == Kind.FAILED:
            self.failed(hook, timing, str(answer.head))
            return
        timing.in_a_row = 0
        if answer.kind in (Kind.REJECTED, Kind.CORRUPT):
            timing.rejections += 1

    def ended(self, why: str, hook: str) -> None:
        if not self.is_on:
            return
        self.problem = f"{hook}: {why}" if hook else why
        if hook in self.timings:
            self.timings[hook].failures += 1
        log.warning(
            "plug-in '%s' has lost its process: %s; it is started again, and until then what it "
            "should judge %s", self.name, self.problem,
            "is refused" if self.is_closed else "passes",
        )  # fmt: skip
