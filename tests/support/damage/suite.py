"""All cases, by name: which there are, a slice of them, and running many side by side."""

from __future__ import annotations

import multiprocessing
import shlex
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from zlib import crc32

from tests.support.damage.cases import Case, cases_of
from tests.support.damage.judge import Outcome, judged
from tests.support.damage.places import Mapped, mapped
from tests.support.damage.store import Store, forgiven_store, full_store, young_store
from tests.support.damage.world import ServedWorld, World

SERVED = "served "  # in front of the name of a case that is run with real processes
VERDICTS = {
    "whole": "started whole",
    "named": "started, and named what is damaged",
    "refused": "refused to start, and said what to do",
    "failed": "FAILED",
}


class Suite:
    """All stores and their cases, by name. Building it takes half a second."""

    def __init__(self) -> None:
        self.stores: dict[str, Store] = {
            "full": full_store(),
            "young": young_store(),
            "busy": young_store(settled=False),
            "forgiven": forgiven_store(),
        }
        self.found: dict[str, Mapped] = {
            name: mapped(store.files) for name, store in self.stores.items()
        }

    @cached_property
    def cases(self) -> dict[str, tuple[str, Case]]:
        """The store and the damage, by the name of both."""
        return {
            f"{name}/{case.name}": (name, case)
            for name, store in self.stores.items()
            for case in cases_of(self.found[name], store.files)
            if case.place.path.startswith(store.paths)
        }

    def run(self, name: str) -> Outcome:
        if not name.startswith(SERVED):
            return self._judged(name, None)
        with tempfile.TemporaryDirectory(prefix="hocket-damage-") as folder:
            world = ServedWorld(Path(folder) / "data")
            outcome = self._judged(name.removeprefix(SERVED), world)
        outcome.name = name
        return outcome

    def _judged(self, name: str, world: World | None) -> Outcome:
        store, case = self.cases[name]
        outcome = judged(case, self.stores[store], self.found[store], world)
        outcome.name = name
        return outcome

    def slice(self, count: int) -> list[str]:
        """Some cases, of as many different sorts as possible, always the same."""
        first: dict[str, str] = {}
        for name, (store, case) in self.cases.items():
            first.setdefault(f"{store}/{case.sort}", name)
        return sorted(first.values(), key=_shuffled)[:count]

    def served(self, count: int) -> list[str]:
        """Some cases for real processes, and among them every file removed."""
        removed = [name for name, (_, case) in self.cases.items() if case.action == "remove"]
        others = [name for name in self.slice(2 * count) if name not in removed]
        return [SERVED + name for name in [*removed, *others][:count]]

    @property
    def served_slice(self) -> list[str]:
        """One that is served with damage, one that is refused."""
        wanted = (("batch", "body/value data: flip"), ("access", "body/value 1: flip"))
        return [
            next(SERVED + name for name in self.cases if all(text in name for text in texts))
            for texts in (("young/", ".wal:", *each) for each in wanted)
        ]


def _shuffled(name: str) -> int:
    return crc32(name.encode())


@dataclass
class Tally:
    """What has become of many cases."""

    verdicts: Counter[str] = field(default_factory=Counter)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.verdicts[outcome.verdict] += 1
        if outcome.failures:
            self.failed.append(outcome)

    @property
    def crashes(self) -> int:
        return sum(any(why.startswith("crash") for why in each.failures) for each in self.failed)

    @property
    def silent_losses(self) -> int:
        return sum(any(why.startswith("silent") for why in each.failures) for each in self.failed)

    def lines(self) -> Iterator[str]:
        yield f"{self.verdicts.total():,} damaged stores"
        for verdict, words in VERDICTS.items():
            yield f"{self.verdicts[verdict]:8,} {words}"
        yield f"{self.crashes:8,} crashes, {self.silent_losses:,} silent losses"


def command_for(name: str) -> str:
    return f".venv/bin/python -m tests.damage --case {shlex.quote(name)}"


def explained(outcome: Outcome) -> str:
    whys = "\n  ".join(outcome.failures)
    return f"{outcome.name}\n  {whys}\n  again: {command_for(outcome.name)}"


_suite: Suite | None = None  # of this process: built before it forks


def _run(name: str) -> Outcome:
    assert _suite is not None
    return _suite.run(name)


def run_all(suite: Suite, names: Sequence[str], processes: int) -> Iterable[Outcome]:
    """The outcomes, as they come."""
    global _suite  # forked processes find it there, and need not build it again
    _suite = suite
    assert suite.cases
    if processes == 1:
        yield from map(_run, names)
        return
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        yield from pool.imap_unordered(_run, names, chunksize=8)
