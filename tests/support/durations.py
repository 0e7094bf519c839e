"""How long tests take: a plugin that notes it, and a command that shows the slowest of all suites.

    python -m pytest -p tests.support.durations --note-durations=FOLDER/NAME.json ...
    python -m tests.support.durations FOLDER

A run of all tests is several suites side by side, each a pytest of its own; only their notes know
the whole. Processor time is that of a suite and of the processes that it started and awaited.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10


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
    sys.stdout.write(report(Path(sys.argv[1])) + "\n")
