"""Producers of the simulator mend as real ones do; what no cluster may bring about, they do not."""

from __future__ import annotations

import pytest

from hocket import frames
from hocket.client_core.producing.fates import ProducerOptions
from hocket.frames import packed
from hocket.sim.client import Unexpected
from hocket.sim.producers import SureProducerCore
from tests.support.client.scripted import Stage

ID, OTHER_ID = b"i" * 16, b"o" * 16


def opened(stage: Stage, producer_id: bytes, expected: int) -> None:
    asked = stage.take(frames.OpenProducer)
    stage.reply(frames.ProducerOpened(asked.request, 1, producer_id, 0, 1, packed([expected])))


@pytest.mark.parametrize(
    ("producer_id", "expected", "why"),
    [(ID, 0, "acknowledged more than the 0 batches"), (OTHER_ID, 0, "had to begin anew")],
)
def test_a_broker_that_has_lost_what_it_acknowledged_is_found_out(producer_id, expected, why):
    stage = Stage().started()
    core = SureProducerCore(stage.session, "t", ProducerOptions(linger_us=0))
    core.open()
    opened(stage, ID, 0)
    core.offer(core.gatherings[0], (b"one", None, None, None, None), 20)
    stage.take(frames.Push)
    stage.reply(frames.PushAcked(0, 1, 0, 0, packed([0])))
    stage.lose()
    stage.come_back()
    with pytest.raises(Unexpected, match=why):
        opened(stage, producer_id, expected)
