"""One assault: all kinds of hostile inputs at one place, while the victim works there."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.attack.attacker import WrongAnswer
from tests.attack.kinds import EACH, MASSES, Assault
from tests.attack.place import Kind, Place
from tests.attack.victim import Victim


@dataclass
class Report:
    kind: Kind
    counts: Counter[str] = field(default_factory=Counter)
    hits: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)  # answers, and what became of the victim
    crashed: bool = False
    victim: str = ""
    resident_mib: int = 0

    @property
    def inputs(self) -> int:
        return sum(self.counts.values())

    def found(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        return "\n".join([*(["the broker is gone"] if self.crashed else []), *self.wrong])


def plan(inputs: int, chance: random.Random, only: tuple[str, ...] = ()) -> Iterator[str]:
    """The kinds to try one after the other, in any order: together so many inputs."""
    weights = {name: weight for name, weight in EACH.items() if not only or name in only}
    yield from chance.choices(list(weights), list(weights.values()), k=inputs)


def run(
    folder: Path,
    kind: Kind,
    *,
    seed: int,
    inputs: int,
    masses: dict[str, dict[str, int]] | None = None,
    only: tuple[str, ...] = (),
    mutant: str = "",
    wrong_max: int = 20,  # then it is enough
    progress: Callable[[int], object] = lambda _: None,
) -> Report:
    """Try `inputs` hostile inputs one by one, and these masses of them with their sizes."""
    report = Report(kind)
    with Place(folder, kind, mutant=mutant) as place:
        victim = Victim(place)
        with victim, closing(Assault(place, seed)) as assault:
            _attack(assault, report, seed, inputs, masses or {}, only, progress, wrong_max)
            victim.stop()
        report.counts, report.hits = assault.counts, assault.hits
        report.victim = victim.times()
        report.wrong += victim.verdict()
        report.crashed = report.crashed or not place.is_up
        if not report.crashed and len(report.wrong) < wrong_max:
            report.resident_mib = place.resident_bytes() >> 20
            report.wrong += victim.stored()
            if (code := place.stop()) != 0:
                report.wrong.append(f"the broker was asked to stop, and ended with {code}")
            place.start()  # what is in the log now is opened like any other log
            report.wrong += [f"after a restart: {each}" for each in victim.stored()]
        report.wrong += [f"in the broker's log: {line}" for line in place.tracebacks()]
    return report


def _attack(
    assault: Assault,
    report: Report,
    seed: int,
    inputs: int,
    masses: dict[str, dict[str, int]],
    only: tuple[str, ...],
    progress: Callable[[int], object],
    wrong_max: int,
) -> None:
    assert set(masses) <= set(MASSES)
    chance = random.Random(f"{seed}/plan/{assault.place.kind}")
    names = list(plan(inputs, chance, only))
    for name in masses:  # somewhere in between
        names.insert(chance.randrange(len(names) + 1), name)
    for name in names:
        try:
            done = getattr(assault, name)(**masses.get(name, {}))
        except WrongAnswer as error:
            done = 1
            report.wrong.append(f"{name}: {error}")
        except OSError as error:
            report.wrong.append(f"{name}: nobody answers any more: {error}")
            report.crashed = assault.place.is_ending()
            return
        assault.counts[name] += done
        progress(done)
        if len(report.wrong) >= wrong_max or not assault.place.is_up:
            return
