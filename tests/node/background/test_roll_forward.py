"""What is said of a transaction of which batches are lost to damage."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from hocket.node.background.roll_forward import RollForward


@pytest.mark.parametrize(
    ("copy", "rest"),
    [
        (None, "the others are published"),
        (object(), "nothing of it is published there before a node leads that has all of them"),
    ],
)
def test_what_becomes_of_the_rest_is_said_as_it_is(caplog, copy, rest):
    stages = SimpleNamespace(is_over=lambda *_: False, lost_of=lambda *_: 2)
    hosted = SimpleNamespace(core=SimpleNamespace(stages=stages), copy=copy, where="group 7")
    apply = SimpleNamespace(decision=1, producers=())
    job = SimpleNamespace(name=("job", 3), apply=apply, decider=0, lost=0, failed=False)
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            RollForward._name_lost(SimpleNamespace(), job, hosted)  # type: ignore[arg-type]
    (said,) = caplog.messages
    assert said.startswith(
        "transaction 'job' number 3 is committed, and 2 of its batches in group 7"
    )
    assert said.endswith(f"; {rest}")
