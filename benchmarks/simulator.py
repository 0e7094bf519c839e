"""How many events a second of processor time the simulator gets through: `python -m
benchmarks.simulator [SEEDS]`.

The seeds are those that `hocket sim --seeds N` runs, one after the other, in one process. Time is
that of the processor, so that other processes count as little as may be; where cores share their
units, a run is slower under load all the same.
"""

from __future__ import annotations

import sys
import time

from hocket.sim.run import run

SEEDS = 20
WARM_UP = 2  # a seed that is run first and not counted: modules are loaded, and the like


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS
    run(WARM_UP)
    events, spent = 0, 0.0
    for seed in range(seeds):
        before = time.process_time()
        report = run(seed)
        took = time.process_time() - before
        events += report.events
        spent += took
        rate = f"{report.events / took:,.0f}"
        print(f"seed {seed:>3}  {report.options['temper']:<6} {report.events:>9,} {rate:>9}/s")
    print(f"{seeds} seeds, {events:,} events in {spent:.1f} s: {events / spent:,.0f}/s")


if __name__ == "__main__":
    main()
