"""Suites side by side: what each costs, the slowest of all, and an end that is one.

    python -m pytest -p tests.support.suites --note-durations=FOLDER/NAME.json ...
    python -m tests.support.suites FOLDER COMMAND ...

The first is one suite: the plugin notes how long each test takes, and the processor time of each
file, that of the processes which its tests have started among it. The second runs the command that
runs all suites, then shows from their notes what was slow, and what all of it cost.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SHOWN = 10
COLLECTING = "(collecting)"
_TICKS = os.sysconf("SC_CLK_TCK")
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
        self._outcomes: Counter[str] = Counter()
        self._processor: defaultdict[str, float] = defaultdict(float)
        self._file = COLLECTING
        self._spent = 0.0
        self._began = time.monotonic()
        path.unlink(missing_ok=True)  # if this run is broken off, no older one speaks for it

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if file != self._file:
            self._charge()
            self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration  # of its setup, its call, its teardown
        if report.when == "call" or not report.passed:
            self._outcomes[report.outcome] += 1

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self._charge()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        notes = {
            "exit": int(exitstatus),
            "seconds": time.monotonic() - self._began,
            "outcomes": self._outcomes,
            "processor": self._processor,
            "tests": self._seconds,
        }
        self._path.write_text(json.dumps(notes))

    def _charge(self) -> None:
        spent = _spent()
        self._processor[self._file] += max(spent - self._spent, 0.0)  # see `_busy`
        self._spent = spent


def _spent() -> float:
    """The processor time of this process and of all that came from it, living or awaited."""
    ticks: dict[int, int] = {}
    children: defaultdict[int, list[int]] = defaultdict(list)
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
                ticks[int(name)] = sum(map(int, fields[11:15]))
                children[int(fields[1])].append(int(name))
    found = [os.getpid()]
    for process in found:
        found += children[process]
    return sum(ticks.get(process, 0) for process in found) / _TICKS


# --- the command ----------------------------------------------------------------------------------


def main(folder: Path, command: Sequence[str]) -> int:
    began, busy = time.monotonic(), _busy()
    code = run(command)
    print(report(folder, time.monotonic() - began, _busy() - busy))  # noqa: T201
    if code:
        print("==> FAILED; what failed is shown above")  # noqa: T201
    return code


def _busy() -> float:
    """The seconds that the machine's processors have computed, for whomever.

    What the suites note is less: Spark's workers end, and nobody is told what they have used.
    """
    user, nice, system = map(int, Path("/proc/stat").read_text().split()[1:4])
    return (user + nice + system) / _TICKS


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


def report(folder: Path, took: float, busy: float) -> str:
    suites: dict[str, dict[str, Any]] = {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))
    }
    tests = [(took, name) for notes in suites.values() for name, took in notes["tests"].items()]
    files: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    for suite, notes in suites.items():
        outcomes.update(notes["outcomes"])
        for file, seconds in notes["processor"].items():
            files[f"{suite} {file}" if file == COLLECTING else file] += seconds
    lines = [f"==> the slowest of {len(tests)} tests"]
    lines += [f"{seconds:8.1f} s  {name}" for seconds, name in sorted(tests, reverse=True)[:SHOWN]]
    lines.append(f"==> the files that cost most, of {len(files)}: processor time")
    lines += [f"{seconds:8.1f} s  {name}" for name, seconds in files.most_common(SHOWN)]
    lines.append("==> the suites: time, processor time")
    for name, notes in sorted(suites.items(), key=lambda item: -item[1]["seconds"]):
        failed = f"  FAILED ({notes['exit']})" if notes["exit"] else ""
        lines.append(
            f"{notes['seconds']:8.1f} s  {sum(notes['processor'].values()):6.1f} s  {name}: "
            f"{len(notes['tests'])} tests{failed}"
        )
    counted = ", ".join(f"{outcomes[each]} {each}" for each in ("passed", "failed", "skipped"))
    noted = sum(files.values())
    lines.append(f"==> {counted}")
    lines.append(
        f"==> all tests took {_minutes(took)}; processor time: {_minutes(noted)} noted by the "
        f"suites, {_minutes(busy)} of the machine, with all that it did besides"
    )
    return "\n".join(lines)


def _minutes(seconds: float) -> str:
    return "{} min {} s".format(*divmod(round(seconds), 60))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ended by another, likewise
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
