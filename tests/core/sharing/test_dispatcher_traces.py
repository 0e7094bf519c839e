"""Plays the traces of shared indexes; see tests/support/core/traces.py for how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.core import traces
from tests.support.core.sharing_script import SharingStage

FOLDER = Path(__file__).parents[1] / "traces" / "sharing"
SITUATIONS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / f"{situation}.txt", SharingStage().carry_out)


def test_the_traces_were_found():
    assert {"two_consumers_share", "poison_message", "slot_moves_while_leased"} <= set(SITUATIONS)
