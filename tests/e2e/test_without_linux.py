"""All levels in processes that lack what only Linux has: a broker that is killed loses nothing.

It stands for macOS as far as that can be had on Linux: see `tests/support/elsewhere`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import hocket
from tests.support.processes.server import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = ROOT / "tests" / "support" / "elsewhere"


def test_a_broker_runs_is_killed_and_has_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    syncs = tmp_path / "syncs"
    paths = [str(ELSEWHERE), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("HOCKET_FULL_SYNCS", str(syncs))
    with ServerProcess(tmp_path / "data") as server:
        lived = subprocess.run(
            [sys.executable, "-W", "error", str(ELSEWHERE / "life.py"), server.address],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert (lived.returncode, lived.stdout, lived.stderr) == (0, "done\n", "")
        server.kill()
        assert syncs.stat().st_size > 0
        server.start()
        with hocket.connect(server.address) as client, client.subscribe("t") as messages:
            values = {messages.receive(timeout=30).value for _ in range(1000)}
            assert values == {b"%d" % number for number in range(1000)}
            assert client.lag("t", "i") == 0
        assert server.terminate() == 0
