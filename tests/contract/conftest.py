"""The contract suite runs on each implementation: with its ends on one pump, on two pumps, and on
two pumps of several threads."""

import pytest

from tests.support.queues.worlds import World


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
