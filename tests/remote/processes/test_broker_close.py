import pytest

from tests.local.conftest import channels  # noqa: F401
from tests.local.test_broker_close import *  # noqa: F403


@pytest.fixture
def manager(sides):
    return sides.others.manager


@pytest.fixture
def client(sides):
    with sides.here.thread_broker("client", {}) as broker:
        yield broker


@pytest.fixture
def server(sides):
    with sides.there.thread_broker("server", {}) as broker:
        yield broker
