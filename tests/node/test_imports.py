"""What a broker loads: a program with a broker alone pays for no cluster."""

from __future__ import annotations

import subprocess
import sys

LOADED = "import sys, hocket.node.broker; print(*sorted(sys.modules), sep='\\n')"


def test_a_broker_alone_loads_neither_the_ring_nor_the_cluster():
    run = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "hocket.node.requests.registering" in loaded
    assert "hocket.core.ring.ring" not in loaded
    assert [name for name in loaded if name.startswith("hocket.node.cluster")] == []
