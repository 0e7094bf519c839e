"""`hocket sim ...`: runs a whole cluster in a simulated world, from seeds."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from hocket.cli import output
from hocket.cli.command import Command, Group
from hocket.cli.exits import FAILED, say
from hocket.cli.progress import new_bar

if TYPE_CHECKING:
    from hocket.sim.report import Report, Summary

SHOWN_MAX = 3  # failing seeds of a set that are explained; the others are named
SEEN_IN_SETS_OF = 50  # seeds: so many must have let every checker see something
PICKED_BELOW = 1_000_000


class Simulations(Group):
    """Loads `ring` only when it is asked for: it needs modules that the others do not."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*super().list_commands(ctx), "ring"]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "ring":
            from hocket.cli.commands.sim_ring import ring

            return ring
        return super().get_command(ctx, cmd_name)


@click.group(
    cls=Simulations,
    invoke_without_command=True,
    examples="""
$ hocket sim --seed 7
$ hocket sim --seeds 500 --json
$ hocket sim --seeds 40 --mutant skip_the_notify
$ hocket sim mutants --list
$ hocket sim ring --nodes 1000
""",
)
@click.option("--seed", type=click.IntRange(min=0), help="Run this seed. [default: a random one]")
@click.option("--seeds", type=click.IntRange(min=1), help="Run this many seeds.")
@click.option(
    "--from", "first", type=click.IntRange(min=0), default=0, show_default=True,
    help="The first of --seeds.",
)  # fmt: skip
@click.option("--mutant", metavar="NAME", help="Plant a bug; 'hocket sim mutants --list' has them.")
@click.option(
    "--jobs", type=click.IntRange(min=1), help="Processes for --seeds.  [default: one a core]"
)
@click.option("--verbose", is_flag=True, help="Show options, faults and the end of the timeline.")
@output.json_option
@click.pass_context
def sim(
    context: click.Context,
    seed: int | None,
    seeds: int | None,
    first: int,
    mutant: str | None,
    jobs: int | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Run a cluster in a simulated world in which much goes wrong, and check it all the way.

    A seed decides everything: which faults strike and when, and how every message travels. The same
    seed gives the same run on any machine. If something is false that must be true, the exit code
    is 1, and the output says how to see it again.
    """
    if context.invoked_subcommand is not None:
        if seed is not None or seeds is not None or mutant is not None:
            raise click.UsageError(f"{context.invoked_subcommand!r} takes no option before it")
        return
    if seed is not None and seeds is not None:
        raise click.UsageError("--seed is one, --seeds is many: give one of them")
    if seeds is None and (first or jobs):
        raise click.UsageError("--from and --jobs belong to --seeds")
    _check_mutant(mutant)
    if seeds is not None:
        ok = _run_many(range(first, first + seeds), mutant, jobs, as_json=as_json, verbose=verbose)
    else:
        if seed is None:
            import secrets  # late: it takes longer to load than this file

            seed = secrets.randbelow(PICKED_BELOW)
            click.echo(f"seed {seed}", err=True)
        ok = _run_one(seed, mutant, as_json=as_json, verbose=verbose)
    if not ok:
        raise click.exceptions.Exit(FAILED)


def _check_mutant(name: str | None) -> None:
    from hocket.sim.mutants import MUTANTS

    if name is not None and name not in MUTANTS:
        raise click.UsageError(f"there is no mutant {name!r}; there are {', '.join(MUTANTS)}")


def _run_one(seed: int, mutant: str | None, *, as_json: bool, verbose: bool) -> bool:
    from hocket.sim.run import run

    report = run(seed, mutant=mutant)
    if verbose and report.ok:
        _show_options(report)
    _explain(report)
    if as_json:
        output.print_json(report.to_json())
    else:
        click.echo(_line(report))
    return report.ok


def _run_many(
    seeds: Sequence[int], mutant: str | None, jobs: int | None, *, as_json: bool, verbose: bool
) -> bool:
    from hocket.sim.parallel import hash_of, is_compared, run_seeds
    from hocket.sim.report import Summary

    summary, hashes, explained = Summary(), [], 0
    reports = run_seeds(seeds, jobs=jobs or os.cpu_count() or 1, mutant=mutant)
    with closing(reports), _Bar(len(seeds)) as bar:
        for report in reports:
            summary.add(report)
            summary.compared += is_compared(seeds[0], report.seed)
            hashes.append(report.trace_hash)
            bar.update(len(summary.failed))
            if verbose:
                bar.write(_line(report))
            if not report.ok and explained < SHOWN_MAX:
                explained += 1
                bar.write(report.explain())
            if mutant is not None and not report.ok:
                break  # it is found, which was the question
    unseen = summary.unseen() if summary.runs >= SEEN_IN_SETS_OF and mutant is None else []
    if unseen:
        say(f"these checkers looked at nothing in {summary.runs} runs: {', '.join(unseen)}")
    ok = not summary.failed and not unseen
    if as_json:
        output.print_json(_summary_json(summary, seeds[0], hash_of(hashes), mutant, unseen, ok=ok))
    else:
        _show_summary(summary)
    return ok


def _summary_json(
    summary: Summary, first: int, trace_hash: str, mutant: str | None, unseen: list[str], *,
    ok: bool,
) -> dict[str, Any]:  # fmt: skip
    return {
        "seed": first,
        "seeds": summary.runs,
        "ok": ok,
        "events": summary.events,
        "checks": summary.checks,
        "faults": summary.faults,
        "trace_hash": trace_hash,
        "failed": summary.failed,
        "unseen": unseen,
        "deceived": summary.deceived,
        "compared": summary.compared,
        "mutant": mutant,
    }


def _show_summary(summary: Summary) -> None:
    failed = ", ".join(map(str, summary.failed)) or "none"
    click.echo(output.table(["FAULT", "COUNT>"], sorted(summary.faults.items())))
    click.echo()
    click.echo(output.table(["CHECKER", "LOOKED>"], sorted(summary.checks.items())))
    click.echo(
        f"\n{output.number(summary.runs)} seeds, {output.number(summary.events)} events; in "
        f"{summary.deceived} a living node was taken for dead; run twice: {summary.compared}\n"
        f"failed: {failed}"
    )


def _line(report: Report) -> str:
    verdict = "ok" if report.ok else "FAILED"
    return (
        f"seed {report.seed}: {verdict}, {output.number(report.events)} events in "
        f"{report.simulated_us / 1e6:.0f} s, trace {report.trace_hash}"
    )


def _show_options(report: Report) -> None:
    shown = {**report.options, "faults struck": report.faults, "counts": report.counts,
             "checks": report.checks}  # fmt: skip
    for name, value in shown.items():
        click.echo(f"{name}: {value}", err=True)
    click.echo("\n".join(report.timeline), err=True)


def _explain(report: Report) -> None:
    if not report.ok:
        click.echo(report.explain(), err=True)


class _Bar:
    """Shows how many seeds are done, if stderr is a terminal."""

    def __init__(self, total: int) -> None:
        self._bar: Any = None
        if sys.stderr.isatty():
            self._bar = new_bar(total, unit="seed")

    def __enter__(self) -> _Bar:
        return self

    def update(self, failed: int) -> None:
        if self._bar is not None:
            if failed:
                self._bar.set_postfix_str(f"{failed} failed", refresh=False)
            self._bar.update()

    def write(self, text: str) -> None:
        if self._bar is None:
            click.echo(text, err=True)
        else:
            self._bar.write(text, file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()


@sim.command("mutants", cls=Command, examples="\n$ hocket sim mutants --list\n")
@click.option("--list", "listed", is_flag=True, help="Print them; the command does nothing else.")
@output.json_option
def mutants(listed: bool, as_json: bool) -> None:
    """List the bugs that can be planted, to show that the simulator finds them.

    SEEDS says within how many seeds each bug is found.
    """
    del listed
    from hocket.sim.mutants import MUTANTS

    if as_json:
        output.print_json(
            [
                {"name": each.name, "sentence": each.sentence, "seeds": each.seeds}
                for each in MUTANTS.values()
            ]
        )
    else:
        rows = [(each.name, each.seeds, each.sentence) for each in MUTANTS.values()]
        click.echo(output.table(["MUTANT", "SEEDS>", "THE BUG"], rows))
