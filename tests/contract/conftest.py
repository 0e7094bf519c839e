"""The contract suite runs on each implementation, with its ends on one pump and on two."""

import pytest

from tests.support.queues.worlds import World


@pytest.fixture(
    params=[("full-event", 2), ("full-event", 1), ("mixed", 2), ("mixed", 1)],
    ids=["full-event", "full-event-one-pump", "mixed", "mixed-one-pump"],
)
def world(request):
    kind, pumps = request.param
    with World(kind, pumps) as made:
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
