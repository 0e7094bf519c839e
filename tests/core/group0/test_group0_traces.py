"""Plays the traces of group 0; see tests/support/core/traces.py for how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core import traces
from tests.support.core.group0_script import Script

FOLDER = Path(__file__).parents[1] / "traces" / "group0"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", Script().carry_out)


def test_the_traces_were_found():
    assert {"the_root_tells", "a_snapshot_is_sent", "a_learner_follows"} <= set(SITUATIONS)
