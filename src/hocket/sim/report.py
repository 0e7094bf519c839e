"""The result of a run: as text for people, as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(slots=True)
class Broken:
    """A sentence that must be true and was not."""

    sentence: str
    time_us: int  # since the run began
    detail: str


@dataclass(slots=True)
class Report:
    seed: int
    ok: bool
    events: int
    checks: dict[str, int]  # by checker: how often it looked at something
    faults: dict[str, int]  # by kind: how often it struck
    trace_hash: str
    options: dict[str, Any]  # all that was derived from the seed
    mutant: str | None = None
    deceived_at_us: int | None = None  # when the first living node was taken for dead, if any was
    simulated_us: int = 0
    counts: dict[str, int] = field(default_factory=dict)  # of what the workload did
    violation: Broken | None = None
    timeline: list[str] = field(default_factory=list)

    @property
    def replay(self) -> str:
        return replay_command(self.seed, self.mutant)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "replay": self.replay}

    def explain(self) -> str:
        """Why the run failed, and what led to that; empty if it did not fail."""
        if self.violation is None:
            return ""
        broken = self.violation
        options = ", ".join(f"{name}={value}" for name, value in self.options.items())
        return "\n".join(
            [
                f"options: {options}",
                *self.timeline,
                "",
                f"seed {self.seed}, {broken.time_us / 1e6:.6f} s: not so: {broken.sentence}",
                *(f"    {line}" for line in broken.detail.splitlines()),
                f"replay: {self.replay}",
            ]
        )


def replay_command(seed: int, mutant: str | None = None) -> str:
    planted = f" --mutant {mutant}" if mutant else ""
    return f"hocket sim --seed {seed}{planted} --verbose"


@dataclass(slots=True)
class Summary:
    """The results of many runs together."""

    runs: int = 0
    events: int = 0
    deceived: int = 0
    compared: int = 0  # runs that were done twice
    checks: dict[str, int] = field(default_factory=dict)
    faults: dict[str, int] = field(default_factory=dict)
    failed: list[int] = field(default_factory=list)  # seeds

    def add(self, report: Report) -> None:
        self.runs += 1
        self.events += report.events
        self.deceived += report.deceived_at_us is not None
        add_counts(self.checks, report.checks)
        add_counts(self.faults, report.faults)
        if not report.ok:
            self.failed.append(report.seed)

    def unseen(self, expected: Iterable[str] = ()) -> list[str]:
        """Checkers that looked at nothing in all these runs; their silence proves nothing."""
        names = dict.fromkeys([*self.checks, *expected])
        return [name for name in names if not self.checks.get(name)]


def add_counts(total: dict[str, int], more: dict[str, int]) -> None:
    for name, count in more.items():
        total[name] = total.get(name, 0) + count
