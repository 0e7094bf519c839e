"""A pipeline from `init` to its end, as its user sees it: run, killed, run again, stopped.

Every run starts a Spark of its own, which is dear. By default there is one story; the others, with
their kills, are in `make test-pipelines`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hocket import Client
from tests.support.pipelines import (
    by_key,
    count,
    hocket,
    publish,
    read_all,
    started,
    updates,
)
from tests.support.processes.server import ServerProcess
from tests.support.threads import LONG

pytestmark = [pytest.mark.usefixtures("java"), pytest.mark.timeout(900)]
long = pytest.mark.skipif(not LONG, reason="a Spark for each: make test-pipelines")


def some(start: int, end: int) -> list[tuple[bytes, bytes]]:
    return [(b"k%d" % (each % 7), b"%d" % each) for each in range(start, end)]


def test_a_pipeline_as_it_stands_is_run_seen_and_stopped(
    broker: ServerProcess, client: Client, tmp_path: Path
) -> None:
    url = broker.address
    made = hocket(url, "pipeline", "init", "shop", cwd=tmp_path)
    assert "made the topic shop.in" in made.stdout
    publish(client, "shop.in", some(0, 1000))
    with started(url, tmp_path, "run", "shop", "--every", "1s") as run:
        run.until(lambda: count(client, "shop.out") == 1000, "the first thousand")
        second = hocket(url, "pipeline", "run", "shop", "--once", cwd=tmp_path, check=False)
        assert second.returncode == 1
        assert "the pipeline 'shop' runs already as process" in second.stderr
        publish(client, "shop.in", some(1000, 1500))
        run.until(lambda: count(client, "shop.out") == 1500, "the rest")
        run.until(lambda: "update 1, " in run.output.read_text(), "a line for an update")
        stop = hocket(url, "pipeline", "stop", "shop", cwd=tmp_path)
        assert stop.stdout == "shop: stopped\n"
        assert run.process.wait(60) == 0
    assert "(asked to stop)" in run.output.read_text()
    (listed,) = json.loads(hocket(url, "pipeline", "list", "--json", cwd=tmp_path).stdout)
    assert (listed["pipeline"], listed["state"]) == ("shop", "stopped")
    assert listed["update"]["lag"] == {"shop.in": 0}
    assert by_key(read_all(client, "shop.out")) == by_key(some(0, 1500))
    said = hocket(url, "pipeline", "logs", "shop", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[-1] for line in said if " stopped" in line] == ["stopped"]


def java_of(process: int) -> int:
    """The JVM that a run has started."""
    for each in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = each.read_text().partition("(")[2].rpartition(")")
        except OSError:  # it has ended
            continue
        if name == "java" and int(rest.split()[1]) == process:
            return int(each.parent.name)
    raise AssertionError(f"process {process} has no JVM")


@long
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for the JVM in /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_run_whose_jvm_is_killed_ends_soon_and_one_that_is_told_to_end_has_stopped(
    broker: ServerProcess, client: Client, tmp_path: Path, number: signal.Signals
) -> None:
    """A service manager tells all processes of a service to end, and Ctrl-C all of a terminal."""
    url, name = broker.address, f"jvm{number}"
    hocket(url, "pipeline", "init", name, cwd=tmp_path)
    publish(client, f"{name}.in", some(0, 100))
    with started(url, tmp_path, "run", name, "--every", "1s") as run:
        run.until(lambda: "update 1, " in run.output.read_text(), "the first update")
        java = java_of(run.process.pid)
        if number is not signal.SIGKILL:
            run.process.send_signal(number)
        os.kill(java, number)
        code = run.process.wait(60)
    status = hocket(url, "pipeline", "status", name, "--json", cwd=tmp_path, check=False)
    listed = json.loads(status.stdout)
    if number is not signal.SIGKILL:
        assert (code, listed["state"]) == (0, "stopped")
    else:
        assert (code, listed["state"]) == (1, "failed")
        assert "Spark's JVM was killed by signal 9" in listed["error"]
    publish(client, f"{name}.in", some(100, 200))
    hocket(url, "pipeline", "run", name, "--once", cwd=tmp_path)
    assert by_key(read_all(client, f"{name}.out")) == by_key(some(0, 200))


@long
def test_a_pipeline_is_killed_and_goes_on(
    broker: ServerProcess, client: Client, tmp_path: Path
) -> None:
    url = broker.address
    hocket(url, "pipeline", "init", "mill", cwd=tmp_path)
    publish(client, "mill.in", some(0, 1000))
    with started(url, tmp_path, "run", "mill", "--every", "1s", "--json") as run:
        run.until(lambda: len(updates(run)) >= 2, "a second update")
        publish(client, "mill.in", some(1000, 3000))
        run.until(lambda: count(client, "mill.out") > 1000, "some of the next")
        run.kill()
    status = hocket(url, "pipeline", "status", "mill", cwd=tmp_path, check=False)
    assert (status.returncode, status.stdout.split()[1]) == (1, "died,")
    publish(client, "mill.in", some(3000, 3500))
    hocket(url, "pipeline", "run", "mill", "--once", cwd=tmp_path)
    assert by_key(read_all(client, "mill.out")) == by_key(some(0, 3500))


TABLES = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from hocket.pipelines import broker

@dp.table
def numbers():
    messages = SparkSession.active().readStream.format("hocket").options(
        **broker(), subscribe="tables.in", startingOffsets="earliest")
    return messages.load().selectExpr("cast(value as string) as text", "cast(value as string) as n")
"""


@long
def test_tables_outlive_a_run_and_the_second_goes_on(
    broker: ServerProcess, client: Client, tmp_path: Path
) -> None:
    url = broker.address
    hocket(url, "pipeline", "init", "tables", cwd=tmp_path)
    folder = tmp_path / "tables" / "transformations"
    (folder / "tables.py").write_text(TABLES)
    (folder / "totals.sql").write_text(
        "CREATE MATERIALIZED VIEW totals AS\nSELECT count(*) AS rows FROM numbers\n"
    )
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    for end in (100, 250):
        publish(client, "tables.in", some(end - (100 if end == 100 else 150), end))
        hocket(url, "pipeline", "run", "tables", "--once", cwd=tmp_path)
        (file,) = (tmp_path / "tables" / "state" / "tables" / "totals").glob("*.parquet")
        assert pq.read_table(file)["rows"].to_pylist() == [end]


READS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from hocket.pipelines import broker

def messages():
    options = {**broker(), "subscribe": "TOPIC"}
    return SparkSession.active().readStream.format("hocket").options(**options).load()

@dp.table
def read():
    return messages().select("COLUMN")
"""


@long
@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("b.sql", "CREATE MATERIALIZED VIEW v AS\nSELEC 1", "transformations/b.sql:2: "),
        (
            "b.sql",
            "-- ours\nCREATE MATERIALIZED VIEW v AS\nSELECT nothing FROM range(3)",
            "transformations/b.sql:2: ",
        ),
        (
            "b.sql",
            "CREATE MATERIALIZED VIEW v AS SELECT * FROM nowhere",
            "transformations/b.sql:1: ",
        ),
        ("b.py", "import nowhere\n", "transformations/b.py:1: No module named 'nowhere'"),
        (
            "b.py",
            "from pyspark import pipelines as dp\nfrom hocket.pipelines import broker\n"
            'dp.create_sink("b", "hocket", {**broker(), "topic": "nowhere"})\n',
            "transformations/b.py:3: there is no topic 'nowhere' to write; `hocket topic create",
        ),
        (
            "b.py",
            "from pyspark import pipelines as dp\nfrom hocket.pipelines import broker\n"
            'dp.create_sink("b", "hocket", {**broker(), "topci": "x"})\n',
            "transformations/b.py:3: topci is not an option; did you mean topic?",
        ),
        (
            "b.py",
            "from hocket.pipelines import json_values\n"
            'json_values(None, schema="time timestamp, amount doubel", misfits="checked.out")\n',
            "transformations/b.py:2: the schema 'time timestamp, amount doubel' cannot be",
        ),
        ("b.py", READS.replace("TOPIC", "checked.in"), "transformations/b.py:10: "),
        (
            "b.py",
            READS.replace("TOPIC", "nowhere").replace("COLUMN", "value"),
            "b.py:10: there is no topic 'nowhere'",
        ),
    ],
)
def test_check_points_into_the_file(
    broker: ServerProcess, tmp_path: Path, file: str, text: str, words: str
) -> None:
    hocket(broker.address, "pipeline", "init", "checked", cwd=tmp_path)
    (tmp_path / "checked" / "transformations" / file).write_text(text)
    found = hocket(broker.address, "pipeline", "check", "checked", cwd=tmp_path, check=False)
    assert found.returncode == 1, found
    assert words in found.stderr.splitlines()[-1], found.stderr


@long
def test_check_finds_nothing_wrong_with_what_init_writes(
    broker: ServerProcess, tmp_path: Path
) -> None:
    for kind in ("archive", "aggregate", "route"):
        hocket(broker.address, "pipeline", "init", f"my-{kind}", "--from", kind, cwd=tmp_path)
        found = hocket(broker.address, "pipeline", "check", f"my-{kind}", cwd=tmp_path)
        assert found.stdout == f"my-{kind}: nothing is wrong\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 2 MiB; only root can make one."""
    folder = tmp_path / "small"
    folder.mkdir()
    made = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)]
    try:
        subprocess.run(made, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@long
def test_a_full_disk_in_the_lake_is_said_and_the_next_run_goes_on(
    broker: ServerProcess, client: Client, tmp_path: Path, small_disk: Path
) -> None:
    url, lake = broker.address, small_disk / "lake"
    client.create_topic("full.in", exist_ok=True)
    hocket(url, "pipeline", "init", "full", "--from", "archive", "--lake", str(lake), cwd=tmp_path)
    sent = [(b"k%d" % (each % 7), os.urandom(1000)) for each in range(4000)]
    publish(client, "full.in", sent[:500])
    hocket(url, "pipeline", "run", "full", "--once", cwd=tmp_path)
    files = sorted(lake.glob("date=*/*.parquet"))
    publish(client, "full.in", sent[500:])
    failed = hocket(
        url, "pipeline", "run", "full", "--once", "--retries", "0", cwd=tmp_path, check=False
    )
    assert failed.returncode == 1
    said = failed.stderr.splitlines()[-1]
    assert "transformations/archive.py:" in said
    assert f"the lake {lake} cannot be written: No space left on device" in said
    assert sorted(lake.glob("date=*/*.parquet")) == files
    assert list((lake / "_hocket" / "staged").iterdir()) == []
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
    hocket(url, "pipeline", "run", "full", "--once", cwd=tmp_path)
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    table = ds.dataset(lake, format="parquet", partitioning="hive").to_table().sort_by("offset")
    assert list(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True)) == sent
