"""Files by which the harness and the processes of a job speak with each other.

A stage that is armed stops the first process that reaches it, until it is released or killed. The
rename is what makes it the first: it succeeds once.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

POLL_SECONDS = 0.005


class Control:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("armed", "reached", "released", "once"):
            (folder / name).mkdir(parents=True, exist_ok=True)

    @staticmethod
    def here() -> Control:
        """That of the job this process belongs to."""
        return Control(Path(os.environ["HOCKET_PROBE"]))

    # --- the harness -----------------------------------------------------------------------------

    def arm(self, stage: str) -> None:
        for name in ("reached", "released"):
            (self.folder / name / stage).unlink(missing_ok=True)
        (self.folder / "armed" / stage).touch()

    def is_reached(self, stage: str) -> bool:
        return (self.folder / "reached" / stage).exists()

    def release(self, stage: str) -> None:
        (self.folder / "released" / stage).touch()

    def finish(self) -> None:
        (self.folder / "finish").touch()

    def size_before(self) -> int:
        """Of the output, when the batch was about to be committed that has stopped there."""
        return int((self.folder / "size").read_text())

    def failures(self) -> int:
        """How many tasks were made to fail."""
        return self._count("batch")

    def slow_tasks(self) -> int:
        return self._count("slow")

    def _count(self, what: str) -> int:
        return sum(name.startswith(what) for name in os.listdir(self.folder / "once"))

    # --- the job ---------------------------------------------------------------------------------

    def is_armed(self, stage: str) -> bool:
        return (self.folder / "armed" / stage).exists()

    def reach(self, stage: str) -> None:
        try:
            (self.folder / "armed" / stage).rename(self.folder / "reached" / stage)
        except FileNotFoundError:
            return
        released = self.folder / "released" / stage
        while not released.exists():
            time.sleep(POLL_SECONDS)

    def note_size(self, size: int) -> None:
        (self.folder / "size").write_text(str(size))

    def note_batch(self, number: int) -> None:
        (self.folder / f"batch {number}").touch()

    def wait_for_batch(self, number: int) -> None:
        while not (self.folder / f"batch {number}").exists():
            time.sleep(POLL_SECONDS)

    def is_first(self, name: str) -> bool:
        """True once for each name, however many processes ask."""
        try:
            (self.folder / "once" / name).open("x").close()
        except FileExistsError:
            return False
        return True

    def is_finished(self) -> bool:
        return (self.folder / "finish").exists()
