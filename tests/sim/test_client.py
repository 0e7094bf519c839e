"""Clients of the simulator mend as real ones do, and count it; what hides a mistake ends a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hocket import frames
from hocket.client_core.calls import topics
from hocket.errors import AnotherCluster, UnknownTopic
from hocket.sim.client import REPAIRS, Client, Unexpected
from hocket.sim.cluster import Cluster
from hocket.sim.subscribers import Subscriber, Worker
from hocket.sim.swarm import options_of

SECOND = 1_000_000


QUIET: dict[str, Any] = {
    "faults": (), "nodes": 3, "nodes_max": 3, "successors": 2, "topics": 1, "partitions": 2,
    "producers": 1, "batches": 20, "consumers": 0, "loss": 0.0, "duplication": 0.0,
    "reordering": 0.0, "tails": 0.0, "skew_us_max": 0, "drift_ppm_max": 0, "changes_every_us": 0,
    "subscribers": 0, "workers": 0,
}  # fmt: skip


def quiet_cluster(*, killing: bool = True, **changes: object) -> Cluster:
    cluster = Cluster(0, replace(options_of(0), **{**QUIET, **changes}))
    cluster.is_safety_phase = killing  # subscribers are killed in it
    cluster.begin()
    cluster.scheduler.run_for(SECOND)
    return cluster


def within(cluster: Cluster, predicate: Callable[[], object], *, seconds: int = 20) -> None:
    assert cluster.scheduler.run_until_true(predicate, within_us=seconds * SECOND)


def greeted(cluster: Cluster, number: int = 1) -> Client:
    client = Client(cluster, cluster.machines[number], "client")
    within(cluster, lambda: client.router.first.state == "ready")
    return client


def connection_of(client: Client) -> int:
    [link] = client.links.values()
    assert link.connection is not None
    return link.connection


def test_a_link_that_breaks_is_dialled_again_and_counted():
    cluster = quiet_cluster()
    client = greeted(cluster)
    assert not client.mended
    client.machine.network.cut(connection_of(client))
    within(cluster, lambda: client.router.first.state != "ready")
    within(cluster, lambda: client.router.first.state == "ready")
    assert client.mended == {"links lost": 1, "dialled again": 1}
    assert set(client.mended) <= set(REPAIRS)


def test_a_question_that_was_under_way_is_asked_again_and_a_refusal_is_told():
    cluster = quiet_cluster()
    client = greeted(cluster)
    answers: list[object] = []
    client.ask(topics.describe("nothing").part(""), answers.append)
    client.machine.network.cut(connection_of(client))
    within(cluster, lambda: answers)
    assert isinstance(answers[0], UnknownTopic)
    assert client.mended["asked again"] == client.mended["refused"] == 1


def test_a_client_that_no_machine_answers_begins_again():
    cluster = quiet_cluster()
    machine = cluster.root
    for each in cluster.machines:  # else another one leads soon, and is asked
        cluster.faults.crash(each, power=False)
    client = Client(cluster, machine, "client")
    within(cluster, lambda: client.mended["begun again"] == 2)
    machine.start(cluster.seeds(but=machine))
    within(cluster, lambda: client.router.first.state == "ready")


def test_a_client_whose_first_machine_is_down_begins_at_the_root():
    cluster = quiet_cluster()
    cluster.faults.crash(cluster.machines[1], power=False)
    client = Client(cluster, cluster.machines[1], "client")
    within(cluster, lambda: client.router.first.state == "ready")
    assert client.router.first.node_id == cluster.root.name
    assert client.mended == {"links lost": 1, "dialled again": 1}


def test_a_client_that_is_killed_begins_elsewhere_without_its_links():
    cluster = quiet_cluster()
    client = greeted(cluster)
    before, connection = client.machine, connection_of(client)
    client.move_to(cluster.machines[2])
    assert connection not in before.network.connections
    within(cluster, lambda: client.router.first.state == "ready")
    assert client.router.first.node_id == cluster.machines[2].name
    assert not client.mended


@pytest.mark.parametrize(
    ("frame", "why"),
    [
        (frames.Done(77), "has not asked that"),
        (frames.Failure(0, "busy", "not now"), "not now"),
    ],
)
def test_what_no_client_may_be_told_ends_the_run(frame, why):
    cluster = quiet_cluster()
    client = greeted(cluster)
    client.machine.network.send(connection_of(client), frame)
    with pytest.raises(Unexpected, match=why):
        cluster.scheduler.run_for(SECOND)


def test_a_session_that_ends_for_any_other_reason_is_not_begun_again():
    cluster = quiet_cluster()
    client = greeted(cluster)
    client.turn(lambda: client.router.close(AnotherCluster("it is another one")))
    with pytest.raises(Unexpected, match="it is another one"):
        cluster.scheduler.run_for(SECOND)


# --- subscribers ----------------------------------------------------------------------------------


def subscribers(cluster: Cluster) -> list[Subscriber | Worker]:
    found: list[Subscriber | Worker] = [*cluster.workload.subscribers, *cluster.workload.workers]
    return found


def test_subscribers_get_everything_by_way_of_any_machine():
    cluster = quiet_cluster(credit_bytes=2_000, subscribers=2, workers=2)
    within(cluster, lambda: all(each.life > 3 for each in subscribers(cluster)), seconds=300)
    cluster.end_of_faults()
    within(cluster, lambda: not cluster.workload.unfinished(), seconds=30)
    published = {
        (each.partition, offset): value
        for each, log in cluster.workload.logs.items()
        for offset, value in log.items()
    }
    assert published
    for each in cluster.workload.subscribers:
        assert {(taken.partition, taken.offset): taken.value for taken in each.diary} == published
    [office] = cluster.workload.offices
    assert {each.place: each.value for each in office.diary if each.value} == published
    assert any(each.value is None for each in office.diary)
    assert any(each.mended["redirected"] for each in subscribers(cluster))
    assert not [kind for each in subscribers(cluster) for kind in REPAIRS if each.mended[kind]]


@pytest.mark.parametrize("options", [{"subscribers": 1}, {"workers": 1}])
def test_a_subscription_whose_link_breaks_is_opened_again_and_goes_on(options):
    cluster = quiet_cluster(killing=False, **options)
    [subscriber] = subscribers(cluster)
    within(cluster, lambda: subscriber._core is not None and subscriber._core.is_open)
    part = subscriber._core.parts()[0]
    [home] = [each for each in cluster.machines if each.name == part.session.node_id]
    [connection] = [each.connection for each in subscriber.links.values() if each.machine is home]
    life = subscriber.life
    home.network.cut(connection)
    within(cluster, lambda: subscriber.mended["opened again"])
    cluster.workload.stop()
    within(cluster, lambda: not cluster.workload.unfinished())
    assert subscriber.life == life


def test_a_delivery_that_breaks_the_protocol_ends_the_run():
    cluster = quiet_cluster(killing=False, subscribers=1)
    [subscriber] = cluster.workload.subscribers
    within(cluster, lambda: subscriber._own.is_open)
    core = subscriber._own.parts()[0]
    link = next(each for each in subscriber.links.values() if each.number == core.session.link)
    assert core.handle is not None
    link.machine.network.send(link.connection, frames.Lease(0, core.handle, 0, 0, b""))
    with pytest.raises(Unexpected, match="Lease came for a subscription"):
        cluster.scheduler.run_for(SECOND)
