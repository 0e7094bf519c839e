"""The contract suite runs on each implementation: with its ends on one pump, on two pumps, and on
two pumps of several threads.

By default a test runs with two pumps on both implementations, and in one of the other worlds, in
turn by its name; with HOCKET_STRESS=long (make test-long) in all of them.
"""

from pathlib import Path
from zlib import crc32

import pytest

from tests.support.queues.worlds import World
from tests.support.threads import LONG

HERE = Path(__file__).parent
IN_TURN = [("full-event", 1, 1), ("full-event", 2, 3), ("mixed", 1, 1)]


def pytest_collection_modifyitems(config, items):
    left_out = {each for each in items if not (LONG or _is_run_by_default(each))}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [each for each in items if each not in left_out]


def _is_run_by_default(item):
    callspec = getattr(item, "callspec", None)
    if callspec is None or HERE not in item.path.parents:
        return True
    world = callspec.params.get("world")
    return world not in IN_TURN or world == IN_TURN[crc32(item.originalname.encode()) % 3]


@pytest.fixture(
    params=[
        ("full-event", 2, 1),
        ("full-event", 1, 1),
        ("full-event", 2, 3),
        ("mixed", 2, 1),
        ("mixed", 1, 1),
    ],
    ids=["full-event", "full-event-one-pump", "full-event-threads", "mixed", "mixed-one-pump"],
)
def world(request):
    with World(*request.param) as made:
        yield made


@pytest.fixture(params=["full-event", "mixed"])
def two_pumps(request):
    """For what needs two pumps (one of them dies), and for what is too heavy to run four times."""
    with World(request.param, 2) as made:
        yield made


@pytest.fixture
def full_event():
    with World("full-event", 2) as made:
        yield made


@pytest.fixture
def mixed():
    with World("mixed", 2) as made:
        yield made
