"""What the tests of pipelines share. Those that run Spark are skipped where there is no Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hocket
from hocket.client.faces.blocking.client import Client
from tests.support.processes.server import ServerProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("broker")) as server:
        yield server


@pytest.fixture
def client(broker: ServerProcess) -> Iterator[Client]:
    with hocket.connect(broker.address) as found:
        yield found


@pytest.fixture(scope="session", autouse=True)
def arrow_s_threads(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Arrow starts its threads when it first reads, and keeps them: no test is to blame."""
    pa = pytest.importorskip("pyarrow")
    import pyarrow.dataset as ds  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    folder = tmp_path_factory.mktemp("arrow")
    pq.write_table(pa.table({"a": [1]}), folder / "a.parquet")
    pq.read_table(folder / "a.parquet")
    ds.dataset(folder, format="parquet").to_table()


@pytest.fixture
def java() -> None:
    pytest.importorskip("pyspark.pipelines")
    from hocket.spark import java

    if problem := java.problem():
        pytest.skip(problem)
