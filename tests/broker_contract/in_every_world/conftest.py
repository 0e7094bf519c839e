"""Every test runs in eight worlds: {embedded, served, cluster, killed} x {sync, aio}.

By default a test that is in all runs in two: embedded in one style and served in the other, in turn
by its name; some run in the world of a cluster too. All eight are for HOCKET_STRESS=long (make
test-cluster). Brokers are shared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import nullcontext
from zlib import crc32

import pytest

from tests.support.brokers.every_world import (
    CLUSTERS,
    WORLDS,
    OwnLeakCheck,
    World,
    opened_world,
)
from tests.support.brokers.killed_cluster import KilledProcess, patient
from tests.support.brokers.served_cluster import ServedCluster
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG

# What runs in the world of a cluster by default, in one style each, in turn: a bit of everything
# that is different when a topic's partitions are on several nodes.
SLICE = (
    "test_a_key_decides_the_partition",
    "test_order_holds_within_each_partition_over_many_batches",
    "test_without_keys_batches_go_round_the_partitions",
    "test_send_many_with_keys_and_headers",
    "test_arrow_goes_in_and_comes_out",
    "test_given_positions_and_partitions",
    "test_partitions_are_each_in_order_and_none_starves",
    "test_acks_are_for_their_partition",
    "test_an_index_is_put_elsewhere_in_several_partitions",
    "test_consumers_may_share_an_index_by_partition",
    "test_many_messages_in_any_order",
    "test_a_key_is_with_one_consumer_at_a_time_in_order",
    "test_a_topic_that_grows",
    "test_what_is_gone_cannot_be_given_back_and_those_before_it_are",
    "test_a_topic_of_dead_letters_that_is_there_already_is_used_as_it_is",
    "test_an_open_subscription_gets_new_partitions",
    "test_an_open_producer_uses_new_partitions",
    "test_all_of_it_can_be_read_after_the_block_and_nothing_before",
    "test_what_many_have_prepared_is_committed_by_one",
    "test_a_delayed_message_goes_to_the_partition_of_its_key",
    "test_every_topic_of_a_list_is_read_in_order_and_goes_on_where_its_index_is",
    "test_a_subscription_ends_when_its_topic_is_deleted",
)


# What cannot be in a world in which somebody is killed every ten seconds, and why.
IN_MEMORY = "a kill takes what was acknowledged in memory alone"
NEED_QUIET = {
    "test_memory_durability_acknowledges_and_delivers_too": IN_MEMORY,
    "test_a_broker_finds_everything_again": IN_MEMORY,
    "test_a_topic_in_memory_delays_as_well": IN_MEMORY,
    "test_topics_kept_in_memory_take_part": IN_MEMORY,
    "test_what_is_nacked_comes_before_what_is_new": (
        "with several replicas a nack is committed before its message is given again, and what is "
        "new does not wait for that"
    ),
    "test_the_last_to_set_it_decides_how_long_a_lease_is": (
        "it counts deliveries, and one that was on its way to a consumer when a node died counts"
    ),
    "test_what_is_in_memory_is_read_from_memory": (
        "it looks at how often a node has read, and another one leads after a kill"
    ),
    "test_what_is_in_hand_survives_a_restart_of_the_broker": (
        "leases would have to outlast a restart of all nodes, and here they are short: what may be "
        "with a consumer is withheld for a lease by each new leader, and leaders live for seconds"
    ),
}

CLUSTER_SECONDS = 300  # a test may start and end four processes several times


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave two worlds of each test, and the slice of a cluster's, unless all is asked for."""
    for each in items:
        if _is_of_a_cluster(each):
            each.add_marker(pytest.mark.timeout(CLUSTER_SECONDS))
    whole = _in_all_worlds(items)
    left_out = [
        each
        for each in items
        if _needs_quiet(each) or not (LONG or _is_run_by_default(each, whole))
    ]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [each for each in items if each not in gone]


def _is_of_a_cluster(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and _world_of(item)[0] in CLUSTERS


def _needs_quiet(item: pytest.Item) -> bool:
    is_killed = isinstance(item, pytest.Function) and _world_of(item)[0] == "killed"
    return is_killed and item.originalname in NEED_QUIET


def _in_all_worlds(items: list[pytest.Item]) -> set[str]:
    """The tests that choose no worlds."""
    worlds: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for each in items:
        if isinstance(each, pytest.Function):
            worlds[_name_of(each)].add(_world_of(each))
    return {name for name, found in worlds.items() if found >= set(WORLDS)}


def _name_of(item: pytest.Function) -> str:
    return f"{item.path}::{item.originalname}"


def _is_run_by_default(item: pytest.Item, whole: set[str]) -> bool:
    kind, style = _world_of(item) if isinstance(item, pytest.Function) else ("", "")
    if not kind:
        return True  # it is not of this folder, or starts what it needs itself
    assert isinstance(item, pytest.Function)
    name = item.originalname
    if kind == "cluster":
        return name in SLICE and style == ("sync", "aio")[SLICE.index(name) % 2]
    turn = (crc32(name.encode()) + (kind == "served")) % 2
    return _name_of(item) not in whole or style == ("sync", "aio")[turn]


def _world_of(item: pytest.Function) -> tuple[str, str]:
    """Its kind and style; two empty words if the test is not of this folder, or chooses none."""
    callspec = getattr(item, "callspec", None)
    found = None if callspec is None else callspec.params.get("world")
    return found if found in WORLDS else ("", "")


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The check that all tests have; the broker shared by the session may open files."""
    check = OwnLeakCheck()
    yield
    check.verify()


@pytest.fixture(autouse=True)
def client_of_the_cluster(
    nothing_left_behind: None, request: pytest.FixtureRequest
) -> Iterator[None]:
    """In the world of a cluster: the test's own, which is new to all nodes but the gateway."""
    world = request.getfixturevalue("world") if "world" in request.fixturenames else None
    if world is None or world.kind not in CLUSTERS:
        yield
        return
    with patient() if world.kind == "killed" else nullcontext(), world.connect() as world.client:
        yield


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("contract") / "data") as server:
        yield server.address
        assert server.terminate() == 0


@pytest.fixture(scope="session")
def cluster_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServedCluster(tmp_path_factory.mktemp("contract") / "cluster") as cluster:
        yield cluster.address
        assert cluster.terminate() == 0


@pytest.fixture(scope="session")
def killed_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    killed = KilledProcess(tmp_path_factory.mktemp("contract") / "killed")
    yield killed.address
    assert killed.terminate() == 0


@pytest.fixture(scope="session", autouse=True)
def arrow_is_loaded() -> None:
    """Arrow starts threads of its own on first use, and keeps them: not within a test."""
    try:
        import pyarrow
    except ImportError:
        return
    pyarrow.table({"a": list(range(10)), "b": list(range(10))}).to_pandas()


@pytest.fixture(scope="session", params=WORLDS, ids="-".join)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    kind, style = request.param
    address = f"{kind}_address" if kind in CLUSTERS else "server_address"
    with opened_world(kind, style, lambda: str(request.getfixturevalue(address))) as made:
        yield made


@pytest.fixture
def client(world: World):
    return world.client
