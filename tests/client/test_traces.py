"""Plays the traces of the client's cores; tests/support/core/traces.py says how they are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.client.words import ClientWords
from tests.support.core import traces

FOLDER = Path(__file__).parent / "traces"
SITUATIONS = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.rglob("*.txt"))


@pytest.mark.parametrize("situation", SITUATIONS)
def test_trace(situation):
    traces.play(FOLDER / situation, ClientWords().carry_out)


def test_the_traces_were_found():
    assert {
        "session/silence.txt", "router/follows_the_leader.txt", "router/a_names_b_names_a.txt",
        "producer/link_lost_while_pushing.txt", "subscription/seek.txt", "shared/told_again.txt",
        "transaction/staged.txt", "calls/link_lost.txt",
    } <= set(SITUATIONS)  # fmt: skip
