"""Many runs, on as many cores as there are.

A share of them is done twice: runs of one seed that differ show chance or time that did not come
from the seed, and then no failure could be replayed.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from hashlib import blake2b
from multiprocessing import active_children, get_context

from hocket.sim.report import Broken, Report
from hocket.sim.run import run

TWICE_EVERY = 100  # every hundredth seed, from the first one on, is run twice
AHEAD = 2  # seeds given to each process beforehand

SAME_EVERY_TIME = "The same seed gives the same run."


def run_seeds(
    seeds: Sequence[int], *, jobs: int, mutant: str | None = None
) -> Generator[Report, None, None]:
    """The report of each seed, in the order of the seeds, as soon as it is there."""
    work = partial(run_and_compare, seeds[0] if seeds else 0, mutant=mutant)
    if jobs <= 1:
        yield from map(work, seeds)
        return
    others = set(active_children())
    with ProcessPoolExecutor(
        jobs, mp_context=get_context("spawn"), initializer=_ignore_interrupts
    ) as pool:
        try:
            yield from _in_order(pool, work, iter(seeds), jobs * AHEAD)
        except BaseException:
            # A run may take half a minute, and nobody wants it any more.
            for each in set(active_children()) - others:
                each.terminate()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _in_order(
    pool: ProcessPoolExecutor, work: partial[Report], seeds: Iterator[int], ahead: int
) -> Iterator[Report]:
    waiting: list[Future[Report]] = []
    for seed in seeds:
        waiting.append(pool.submit(work, seed))
        if len(waiting) > ahead:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def run_and_compare(first: int, seed: int, *, mutant: str | None = None) -> Report:
    report = run(seed, mutant=mutant)
    if (seed - first) % TWICE_EVERY == 0:
        again = run(seed, mutant=mutant)
        if again.trace_hash != report.trace_hash:
            detail = f"{report.trace_hash}, and then {again.trace_hash}"
            report.violation = Broken(SAME_EVERY_TIME, report.simulated_us, detail)
            report.ok = False
    return report


def is_compared(first: int, seed: int) -> bool:
    return (seed - first) % TWICE_EVERY == 0


def hash_of(hashes: Iterable[str]) -> str:
    """One hash of many runs."""
    return blake2b("\n".join(hashes).encode(), digest_size=16).hexdigest()


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C here: it reaches every process, and the first process ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
