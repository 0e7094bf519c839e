"""Plays the traces of the ring; see tests/support/core/traces.py for how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core import traces
from tests.support.core.ring_script import RingWords

FOLDER = Path(__file__).parents[1] / "traces" / "ring"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", RingWords().carry_out)


def test_the_traces_were_found():
    assert {"join_takes_the_whole_list", "head_dropped_not_the_middle"} <= set(SITUATIONS)
