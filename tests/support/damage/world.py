"""Where a damaged store lies, and what an operator has there: a broker, and `hocket log`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from hocket.errors import HocketError
from hocket.log import verify
from hocket.log.model import Damage
from hocket.sim.disk import SimDisk
from tests.support.damage.life import (
    SECOND,
    Ended,
    Life,
    Refused,
    ServedLife,
    SimulatedLife,
    disk_with,
    files_of,
)
from tests.support.damage.places import Files

Losses = dict[int, list[Damage]]  # by log; none that is accepted


class World(Protocol):
    def put(self, files: Files) -> None: ...
    def files(self) -> dict[str, bytes]: ...
    def begin(self) -> Life | HocketError:
        """Start a broker; what it says if it refuses."""

    def verify(self) -> Losses | HocketError: ...
    def accept_loss(self, group: int | None) -> None:
        """Of all logs if it names none."""

    def over(self) -> None:
        """End what may still run."""


class SimulatedWorld:
    """In memory: the production node, and the functions behind the commands."""

    def __init__(self, now_us: int) -> None:
        self._now_us = now_us
        self._disk = SimDisk()
        self._lives: list[SimulatedLife] = []

    def put(self, files: Files) -> None:
        self._disk = disk_with(files)

    def files(self) -> dict[str, bytes]:
        return files_of(self._disk)

    def begin(self) -> Life | HocketError:
        if self._lives:
            self._now_us = self._lives[-1].scheduler.now_us()
        try:
            life = SimulatedLife(
                self._disk, seed=f"life {len(self._lives)}", start_us=self._now_us + SECOND
            )
        except HocketError as error:
            return error
        self._lives.append(life)
        return life

    def verify(self) -> Losses | HocketError:
        try:
            report = verify.verify(self._disk)
        except HocketError as error:
            return error
        losses: Losses = {}
        for group, damage in report.damage:
            if not damage.accepted:
                losses.setdefault(group, []).append(damage)
        return losses

    def accept_loss(self, group: int | None) -> None:
        verify.accept_losses(self._disk, group)

    def over(self) -> None:
        for life in self._lives:
            life.kill()


class ServedWorld:
    """On a real disk: `hocket serve` and `hocket log`, as processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lives: list[ServedLife] = []

    def put(self, files: Files) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)
        for path, data in files.items():
            file = self._directory / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)

    def files(self) -> dict[str, bytes]:
        found = [path for path in self._directory.rglob("*") if path.is_file()]
        names = {str(path.relative_to(self._directory)): path for path in found}
        names.pop("lock", None)  # has the process id of whoever held it last
        return {name: path.read_bytes() for name, path in sorted(names.items())}

    def begin(self) -> Life | HocketError:
        try:
            life = ServedLife(self._directory)
        except Refused as refused:
            return refused
        self._lives.append(life)
        return life

    def verify(self) -> Losses | HocketError:
        done = self._hocket("log", "verify", str(self._directory), "--json")
        if not done.stdout:
            return Refused(done.stderr)
        losses: Losses = {}
        for row in json.loads(done.stdout)["damage"]:
            group = row.pop("log")
            if not row["accepted"]:
                losses.setdefault(group, []).append(Damage(**row))
        if (done.returncode != 0) != bool(losses):
            raise Ended(f"exit code {done.returncode}: {done.stdout} {done.stderr}")
        return losses

    def accept_loss(self, group: int | None) -> None:
        which = "--all" if group is None else str(group)
        done = self._hocket("log", "accept-loss", str(self._directory), which, "--yes")
        if done.returncode:
            raise Ended(f"exit code {done.returncode}: {done.stderr}")

    def _hocket(self, *words: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "hocket.cli", *words],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        if "Traceback" in done.stderr:
            raise Ended(done.stderr)
        return done

    def over(self) -> None:
        for life in self._lives:
            life.kill()
        shutil.rmtree(self._directory, ignore_errors=True)
