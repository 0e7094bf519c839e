"""Every test runs in four worlds: {embedded, served} x {sync, aio}. The brokers are shared."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.brokers.every_world import WORLDS, OwnLeakCheck, World, opened_world
from tests.support.processes.server import ServerProcess


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The check that all tests have; the broker shared by the session may open files."""
    check = OwnLeakCheck()
    yield
    check.verify()


@pytest.fixture(scope="session")
def server_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ServerProcess(tmp_path_factory.mktemp("contract") / "data") as server:
        yield server.address
        assert server.terminate() == 0


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
    with opened_world(kind, style, lambda: str(request.getfixturevalue("server_address"))) as made:
        yield made


@pytest.fixture
def client(world: World):
    return world.client
