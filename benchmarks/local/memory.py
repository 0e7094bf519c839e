"""How much memory this process holds, from /proc; no package needed."""

from __future__ import annotations

import os
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def resident_bytes_peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("/proc/self/status has no VmHWM line: this measure needs Linux")


class PeakResident:
    """How far the resident memory rose above its start within a `with` block, at its highest."""

    growth = 0

    def __enter__(self) -> PeakResident:
        Path("/proc/self/clear_refs").write_text("5")  # starts the high-water mark anew
        self.start = resident_bytes()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.growth = max(0, resident_bytes_peak() - self.start)
