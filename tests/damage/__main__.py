"""`make test-damage`: every damage to every field of a small store, and what the broker does.

python -m tests.damage                       all of it; some minutes
python -m tests.damage --case NAME           one case, by the name that a failure prints
python -m tests.damage --only TEXT --every 10
python -m tests.damage --list
"""

from __future__ import annotations

import os
import sys
from time import monotonic

import click
from tqdm import tqdm

from tests.support.damage.suite import SERVED, Suite, Tally, explained, run_all

SERVED_COUNT = 60
SHOWN = 20


@click.command(help=__doc__)
@click.option("--case", "name", help="Run this one case and say what became of it.")
@click.option("--only", default="", help="Only cases with this text in their names.")
@click.option("--every", type=click.IntRange(min=1), default=1, help="Only every N-th case.")
@click.option("--served", type=int, default=SERVED_COUNT, help="How many with real processes.")
@click.option("--processes", type=click.IntRange(min=1), default=os.cpu_count() or 1)
@click.option("--list", "shows", is_flag=True, help="Only print the names.")
def main(name: str | None, only: str, every: int, served: int, processes: int, shows: bool) -> None:
    suite = Suite()
    if name is not None:
        _run_one(suite, name)
        return
    names = [each for each in suite.cases if only in each][::every]
    names += [each for each in suite.served(served) if only in each]
    if shows:
        click.echo("\n".join(names))
        return
    began = monotonic()
    tally = Tally()
    outcomes = run_all(suite, names, processes)
    for outcome in tqdm(outcomes, total=len(names), unit=" stores", disable=None, smoothing=0.01):
        tally.add(outcome)
    for outcome in tally.failed[:SHOWN]:
        click.echo(explained(outcome))
    if len(tally.failed) > SHOWN:
        click.echo(f"... and {len(tally.failed) - SHOWN} more")
    click.echo("\n".join(tally.lines()))
    real = sum(each.startswith(SERVED) for each in names)
    click.echo(f"{real} of them with `hocket serve` on a real disk; {monotonic() - began:.0f} s")
    sys.exit(1 if tally.failed else 0)


def _run_one(suite: Suite, name: str) -> None:
    if name.removeprefix(SERVED) not in suite.cases:
        raise click.BadParameter(f"there is no case {name!r}; --list shows all", param_hint="case")
    outcome = suite.run(name)
    click.echo(explained(outcome) if outcome.failures else f"{outcome.name}\n  {outcome.verdict}")
    if outcome.said:
        click.echo(f"  it said: {outcome.said}")
    sys.exit(1 if outcome.failures else 0)


if __name__ == "__main__":
    main()
