"""The contract with its sides in processes of their own, and the node in another one.

By default one test of twelve, each in one of the worlds; with HOCKET_STRESS=long all in all.
"""

from pathlib import Path
from zlib import crc32

import pytest

from tests.remote.exceptions import ACROSS_PROCESSES, SENDER_ELSEWHERE
from tests.support.certificates import made
from tests.support.remote.channels import Sides
from tests.support.remote.far import Far
from tests.support.remote.served import NodeAt, ServedNode
from tests.support.remote.worlds import Processes
from tests.support.threads import LONG

HERE = Path(__file__).parent
ONE_OF = 12
TAKES_LONG = {  # many rounds, with a look at all processes in each
    "test_disconnecting_from_both_ends_at_once_is_fine",
    "test_room_comes_back_as_messages_are_taken",
    "test_both_sides_closing_at_once_lose_nothing_and_end_once",
    "test_writable_comes_again_for_the_next_refusal",
}
WORLDS = [(way, count) for way in ("direct", "node", "tls") for count in (2, 3)]


def pytest_collection_modifyitems(config, items):
    left_out = {each for each in items if HERE in each.path.parents and not _is_run(each)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [each for each in items if each not in left_out]


def _is_run(item):
    name = getattr(item, "originalname", item.name)
    callspec = getattr(item, "callspec", None)
    world = callspec.params.get("across") if callspec else None
    if name in ACROSS_PROCESSES or world is None:
        return False
    if world[1] == 3 and name in SENDER_ELSEWHERE:
        return False
    number = crc32(item.name.partition("[")[0].encode())
    in_turn = WORLDS[number // ONE_OF % len(WORLDS)]
    return LONG or (number % ONE_OF == 0 and world == in_turn and name not in TAKES_LONG)


@pytest.fixture(scope="session")
def fars():
    processes = [Far(), Far()]
    yield processes
    for each in processes:
        each.close()


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    """By way: a node in a process of its own."""
    far = Far()
    serving = {}

    def node(way):
        if way not in serving:
            certificates = made(tmp_path_factory.mktemp("tls")) if way == "tls" else None
            served = far.call(ServedNode, way, certificates)
            serving[way] = (served, NodeAt(way, served.address, certificates))
        return serving[way][1]

    yield node
    for served, _ in serving.values():
        served.close()
    far.close()


@pytest.fixture(params=WORLDS, ids=lambda each: f"{each[0]}-{each[1]}")
def across(request):
    return request.param


@pytest.fixture
def world(across, nodes, fars):
    way, count = across
    with Processes("full-event", nodes(way), fars, count) as made_of:
        yield made_of


@pytest.fixture
def two_pumps(world):
    return world


@pytest.fixture
def full_event(world):
    return world


@pytest.fixture
def sides(across, nodes, fars):
    way, count = across
    both = Sides(nodes(way), fars, count)
    try:
        yield both
    except BaseException:
        both.close(verify=False)
        raise
    both.close(verify=True)
