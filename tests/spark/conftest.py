"""One Spark session and one broker for all tests of this folder; Spark is dear to start.

Tests that need no session run without Java too; the others are skipped with the one line that says
how to get it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import hocket
from hocket.client.faces.blocking.client import Client
from tests.support.java import java_options
from tests.support.leaks import LeakCheck
from tests.support.processes.server import ServerProcess
from tests.support.threads import stack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = count(1)

# A test that is broken off in the middle of a call leaves its answer in the connection to the JVM,
# and every later test of the session reads the answer to the call before. On a machine that is very
# busy, the first test, with the start of Spark, takes more than the usual limit.
SECONDS_MAX = 400


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS_MAX))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    from hocket.spark import java

    problem = java.problem()
    if problem is not None:
        pytest.skip(problem)
    from hocket.spark.session import session

    found = session(
        "hocket's tests",
        config={
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": java_options(),
            "spark.default.parallelism": "2",
            "spark.python.daemon.module": "tests.support.spark_daemon",
        },
    )
    yield found
    found.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """`broker.address` is what the option `servers` takes."""
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture
def client(broker: ServerProcess) -> Iterator[Client]:
    with hocket.connect(url_of(broker)) as found:
        yield found


@pytest.fixture
def topic() -> str:
    """A name that no other test has; the topic is not created."""
    return f"topic-{next(_numbers)}"


def url_of(server: ServerProcess) -> str:
    return f"hocket://127.0.0.1:{server.port}"


# --- nothing is left behind ----------------------------------------------------------------------


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Once Spark runs in this process, its own threads and files come and go: ours must not."""
    if "spark" not in request.fixturenames and not _spark_runs():
        check = LeakCheck()
        yield
        _close_kept_clients()
        check.verify()
        return
    before = set(_our_threads())
    yield
    _close_kept_clients()
    deadline = time.monotonic() + 10.0
    while left := [thread for thread in _our_threads() if thread not in before]:
        if time.monotonic() >= deadline:
            raise AssertionError(
                "left behind: " + "; ".join(f"{thread.name} at\n{stack(thread)}" for thread in left)
            )
        time.sleep(0.001)


def _spark_runs() -> bool:
    pyspark: Any = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def _our_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hocket")]


def _close_kept_clients() -> None:
    """The clients that a process keeps for its tasks end with it; here with the test."""
    with suppress(ImportError):
        from hocket.spark import connections

        connections.close_all()
