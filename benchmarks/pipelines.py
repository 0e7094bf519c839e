"""How long a triggered update of an idle pipeline takes: the first one, and those after it.

    python -m benchmarks.pipelines

The pipeline is the one that `hocket pipeline init` writes, run as a user runs it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.broker.ours import serving

UPDATES = 8
LIMIT_SECONDS = 3.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as scratch:
        folder = Path(scratch)
        with serving(folder) as url:
            environment = {**os.environ, "HOCKET_SERVER": url, "PYTHONUNBUFFERED": "1"}
            command = [sys.executable, "-m", "hocket.cli", "pipeline"]
            subprocess.run([*command, "init", "idle"], cwd=folder, env=environment, check=True)
            began = time.perf_counter()
            run = subprocess.Popen(
                [*command, "run", "idle", "--every", "1s", "--json"],
                cwd=folder, env=environment, stdout=subprocess.PIPE, text=True,
            )  # fmt: skip
            assert run.stdout is not None
            seconds = []
            for number in range(UPDATES):
                seconds.append(json.loads(run.stdout.readline())["seconds"])
                if not number:
                    print(f"from the command to the end of update 1: "
                          f"{time.perf_counter() - began:.1f} s")  # fmt: skip
            run.terminate()
            run.wait()
    print("updates:", ", ".join(f"{each:.2f} s" for each in seconds))
    print(f"second update: {seconds[1]:.2f} s (at most {LIMIT_SECONDS:g} s)")
    return int(seconds[1] > LIMIT_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
