"""The suites of levels 1 and 2 over sockets: two managers of one served node, by every way."""

import pytest

from tests.remote.exceptions import EXCEPTIONS
from tests.support.certificates import made
from tests.support.remote.served import ServedNode
from tests.support.remote.worlds import TwoManagers
from tests.support.threads import LONG


def pytest_collection_modifyitems(items):
    """What cannot hold is left out, by name, and not skipped: nobody is to wait for it. So is what
    is about the threads of the mixed world: over sockets both kinds of broker have none."""
    items[:] = [
        item
        for item in items
        if "tests/remote/" not in item.nodeid
        or (
            getattr(item, "originalname", item.name) not in EXCEPTIONS
            and "mixed" not in getattr(item, "fixturenames", ())
        )
    ]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return made(tmp_path_factory.mktemp("certificates"))


# By default the ways beside the direct one run what is about endings; with HOCKET_STRESS=long, all.
ENDINGS = ("test_contract_aborting", "test_contract_closing", "test_channels")


def pytest_generate_tests(metafunc):
    if "way" in metafunc.fixturenames:
        module = metafunc.module.__name__.rpartition(".")[2]
        ways = ["direct", "node", "tls"] if LONG or module in ENDINGS else ["direct"]
        if not any(
            "way" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")
        ):
            metafunc.parametrize("way", ways)


@pytest.fixture
def world(way, certificates):
    with (
        ServedNode(way, certificates if way == "tls" else None) as node,
        TwoManagers(node, "full-event") as made,
    ):
        yield made


@pytest.fixture
def two_pumps(world):
    return world


@pytest.fixture
def full_event(world):
    return world
