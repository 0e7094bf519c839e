"""A Spark program in a process group of its own, which ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.java import java_options


def run(name: str, *arguments: str, scratch: Path, timeout: float) -> tuple[str, str]:
    """What it printed, and what it and its JVM said on stderr. Fails unless it ends with 0.

    Output goes to files: a JVM that outlives its program by seconds would hold pipes open.
    """
    out, err = scratch / f"{name}.out", scratch / f"{name}.err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", f"tests.spark.programs.{name}", *arguments],
            cwd=Path(__file__).parents[3],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            env={**os.environ, "SPARK_SUBMIT_OPTS": java_options()},
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said = err.read_text(errors="replace")
    assert code == 0, f"{name} ended with {code}:\n{said[-4000:]}"
    return out.read_text(), said
