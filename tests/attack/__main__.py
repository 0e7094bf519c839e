"""All hostile inputs at all kinds of places, then every planted bug: `make test-attack`.

python -m tests.attack [--inputs N] [--seed N] [--without-mutants]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hocket.cli.progress import new_bar
from tests.attack.assault import Report, run
from tests.attack.mutants import MUTANTS
from tests.attack.place import KINDS, Kind

INPUTS = 4_000  # one by one at each kind of place; the masses come on top
MASSES: dict[str, dict[str, int]] = {
    "floods": {"opens": 500},
    "too_many_handles": {},
    "slow_readers": {"many": 20},
    "deaf_askers": {},
    "many_connections": {"many": 1000},
}
FILES_MIN = 4096  # descriptors: a thousand connections, and what else is open


@dataclass
class Search:
    """How a planted bug is looked for: where, and by which inputs."""

    kind: Kind
    only: tuple[str, ...] = ()
    inputs: int = 60
    masses: dict[str, dict[str, int]] = field(default_factory=dict)

    def found_in(self, folder: Path, mutant: str) -> str:
        return run(
            folder, self.kind, seed=3, inputs=self.inputs, only=self.only, masses=self.masses,
            mutant=mutant, wrong_max=1,
        ).found()  # fmt: skip


OPEN, GUARDED = Kind(guarded=False, tls=False), Kind(guarded=True, tls=False)
TLS = Kind(guarded=True, tls=True)
FINDS = {
    "checksums_are_not_compared": Search(OPEN, ("stolen_ids",), 100),
    "ids_belong_to_everybody": Search(GUARDED, ("stolen_ids",)),
    "what_follows_a_refused_batch_is_stored": Search(OPEN, ("stolen_ids",), 2000),
    "handles_are_not_counted": Search(OPEN, (), 1, {"too_many_handles": {}}),
    "partitions_are_not_checked": Search(OPEN, ("absurd_fields",), 300),
    "an_address_waits_whatever_its_token_is": Search(GUARDED, ("logins",)),
    "a_token_is_not_looked_at": Search(GUARDED, ("logins",)),
    "headers_are_not_checked_against_their_checksum": Search(OPEN, ("broken_framing",)),
    "entries_of_any_kind_are_stored": Search(OPEN, ("hostile_batches",)),
    "a_client_is_taken_for_a_node": Search(TLS, ("false_nodes",)),
    "names_belong_to_everybody": Search(OPEN, ("stolen_names",)),
}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--inputs", type=int, default=INPUTS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--without-mutants", action="store_true")
    arguments = parser.parse_args()
    allow_many_files()
    began = time.monotonic()
    failed = False
    reports: list[Report] = []
    with tempfile.TemporaryDirectory(prefix="hocket-attack-") as folder:
        for number, kind in enumerate(KINDS):
            report = attacked(Path(folder) / str(number), kind, arguments)
            reports.append(report)
            say(f"{kind}: {report.inputs} inputs; the victim: {report.victim}; "
                f"the broker had {report.resident_mib} MiB")  # fmt: skip
            if report.found():
                failed = True
                say(report.found())
                say(f"again: python -m tests.attack --seed {arguments.seed} "
                    f"--inputs {arguments.inputs}")  # fmt: skip
        say(table(reports))
        if not arguments.without_mutants:
            for mutant in MUTANTS:
                found = FINDS[mutant].found_in(Path(folder) / mutant, mutant)
                failed = failed or not found
                first = found.splitlines()[0] if found else "NOT FOUND"
                say(f"planted bug {mutant}: {first[:160]}")
    crashes = sum(report.crashed for report in reports)
    wrong = sum(len(report.wrong) for report in reports)
    inputs = sum(report.inputs for report in reports)
    say(f"{inputs} hostile inputs, crashes {crashes}, wrong answers {wrong}, "
        f"in {time.monotonic() - began:.0f} s")  # fmt: skip
    return int(failed)


def attacked(folder: Path, kind: Kind, arguments: Any) -> Report:
    bar = new_bar(None, unit=" inputs", desc=str(kind)) if sys.stderr.isatty() else None
    try:
        return run(
            folder,
            kind,
            seed=arguments.seed,
            inputs=arguments.inputs,
            masses=MASSES,
            progress=(lambda _: None) if bar is None else bar.update,
        )
    finally:
        if bar is not None:
            bar.close()


def table(reports: list[Report]) -> str:
    """Counts by kind of input, a column for each kind of place."""
    names = sorted(set().union(*(report.counts for report in reports)))
    head = "".join(f"{kind!s:>20}" for kind in (report.kind for report in reports))
    lines = [f"{'':32}{head}"]
    for name in names:
        counts = "".join(f"{report.counts[name]:20}" for report in reports)
        lines.append(f"{name.replace('_', ' '):32}{counts}")
    hits: Counter[str] = sum((report.hits for report in reports), Counter())
    lines += [f"  {name}: {count}" for name, count in sorted(hits.items())]
    return "\n".join(lines)


def allow_many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < FILES_MIN:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES_MIN, hard), hard))


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
