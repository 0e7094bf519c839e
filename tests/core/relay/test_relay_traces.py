"""Plays the traces of the relay core; see tests/support/core/traces.py for how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core import traces
from tests.support.core.relay_script import Script

FOLDER = Path(__file__).parents[1] / "traces" / "relay"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", Script().carry_out)


def test_the_traces_were_found():
    assert {"attach_along_the_route", "parent_dies", "cycle"} <= set(SITUATIONS)
