"""One contract, written against the design, on every kind of broker and client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hocket.client.faces.blocking.client import Client
from tests.support.brokers.worlds import WORLDS, World, client_threads, new_name
from tests.support.leaks import LeakCheck
from tests.support.threads import until


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Of clients. The brokers, which many tests share, open files and threads when they need them.

    A test with a broker of its own asks for `nothing_at_all_left_behind`.
    """
    yield
    until(lambda: not client_threads(), timeout=3, what="the threads of clients are gone")


@pytest.fixture
def nothing_at_all_left_behind() -> Iterator[None]:
    check = LeakCheck()
    yield
    check.verify()


@pytest.fixture(scope="session", params=list(WORLDS))
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = WORLDS[request.param]()
    yield made
    made.close()


@pytest.fixture
def client(world: World) -> Iterator[Client]:
    with world.connect() as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    """A topic of one partition."""
    name = new_name()
    client.create_topic(name)
    return name


@pytest.fixture
def wide(client: Client) -> str:
    """A topic of four partitions."""
    name = new_name("wide")
    client.create_topic(name, partitions=4)
    return name
