"""Suites side by side: how long each test takes, the slowest of all, and an end that is one.

    python -m pytest -p tests.support.suites --note-durations=FOLDER/NAME.json ...
    python -m tests.support.suites FOLDER COMMAND ...

The first is one suite: the plugin notes the duration of each test. The second runs the command that
runs all suites, then shows from their notes what was slow. Processor time is that of a suite and of
the processes that it started and awaited.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10
# What Ctrl-C sends, and for how many seconds the suites may then clean up. The first signal may be
# lost on a test that expects to be interrupted.
ENDING = ((signal.SIGINT, 10.0), (signal.SIGINT, 5.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))


# --- the plugin -----------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--note-durations", type=Path, help="write the duration of each test here")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--note-durations")
    if path is not None:
        config.pluginmanager.register(_Notes(path))


class _Notes:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._began = time.monotonic()
        path.unlink(missing_ok=True)  # if this run is broken off, no older one speaks for it

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration  # of its setup, its call, its teardown

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        notes = {
            "exit": int(exitstatus),
            "seconds": time.monotonic() - self._began,
            "processor": sum(os.times()[:4]),
            "tests": self._seconds,
        }
        self._path.write_text(json.dumps(notes))


# --- the command ----------------------------------------------------------------------------------


def main(folder: Path, command: Sequence[str]) -> int:
    began = time.monotonic()
    code = run(command)
    minutes, seconds = divmod(round(time.monotonic() - began), 60)
    print(report(folder))  # noqa: T201
    print(f"==> all tests took {minutes} min {seconds} s")  # noqa: T201
    if code:
        print("==> FAILED; what failed is shown above")  # noqa: T201
    return code


def run(command: Sequence[str]) -> int:
    """The command's exit code. Ctrl-C ends the command and all suites that it has started."""
    process = subprocess.Popen(  # a group of its own: Ctrl-C reaches us alone
        command, stdin=subprocess.DEVNULL, process_group=0
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        _end(process)
        return 128 + signal.SIGINT


def _end(process: subprocess.Popen[bytes]) -> None:
    for number, patience in ENDING:
        os.killpg(process.pid, number)
        try:
            process.wait(patience)
            break
        except (subprocess.TimeoutExpired, KeyboardInterrupt):  # Ctrl-C once more: go on faster
            continue
    with suppress(ProcessLookupError):  # a broker, say, whose suite could not end it
        os.killpg(process.pid, signal.SIGKILL)


def report(folder: Path) -> str:
    suites: dict[str, dict[str, Any]] = {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))
    }
    tests = [(took, name) for notes in suites.values() for name, took in notes["tests"].items()]
    tests.sort(reverse=True)
    lines = [f"==> the slowest of {len(tests)} tests"]
    lines += [f"{took:8.1f} s  {name}" for took, name in tests[:SHOWN]]
    lines.append("==> the suites, with the processor time of each")
    for name, notes in sorted(suites.items(), key=lambda item: -item[1]["seconds"]):
        failed = f"  FAILED ({notes['exit']})" if notes["exit"] else ""
        lines.append(
            f"{notes['seconds']:8.1f} s  {notes['processor']:6.1f} s  {name}: "
            f"{len(notes['tests'])} tests{failed}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended by another, likewise
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
