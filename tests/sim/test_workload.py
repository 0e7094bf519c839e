"""Producers of the simulator mend as real ones do, and no more; and which machines may be lost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hocket import frames
from hocket.client_core.producing.fates import ProducerOptions
from hocket.frames import packed
from hocket.sim.client import Unexpected
from hocket.sim.cluster import Cluster
from hocket.sim.copies_view import Story
from hocket.sim.producers import SureProducerCore
from hocket.sim.subscribers import Office
from hocket.sim.swarm import options_of
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


def test_no_machine_may_go_without_which_dead_letters_have_no_majority():
    cluster = Cluster(0, replace(options_of(0), nodes=3, transactors=0))
    _n0, n1, n2 = cluster.machines
    cluster.workload.offices.append(Office("orders", "shared"))
    letters = cluster.copies.stories[5] = Story(5, "orders.dlq", 0, ("n0", "n1"))
    assert cluster.workload.may_lose(n2)
    assert not cluster.workload.may_lose(n1)
    n1.holds = n1.keeps = False  # it got its copy while the others were away
    assert not cluster.may_lose(n1)
    letters.voters = ("n0", "n1", "n2")
    assert cluster.workload.may_lose(n1)
    n2.gone = True
    assert not cluster.workload.may_lose(n1)


def test_workers_are_held_up_when_their_dead_letters_have_lost_a_majority():
    cluster = Cluster(0, replace(options_of(0), nodes=3, transactors=0))
    _n0, n1, n2 = cluster.machines
    office = Office("orders", "shared")
    cluster.workload.offices.append(office)
    cluster.copies.stories[5] = Story(5, "orders.dlq", 0, ("n0", "n1", "n2"))
    n2.gone = True
    assert not cluster.workload.is_held_up(office)
    n1.gone = True
    assert cluster.workload.is_held_up(office)
