"""`make bench-local` runs whole and writes what it promises; its numbers are not judged here."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import report
from benchmarks.runner import Contender, Contest, Row, fixed, judge, percentile, run_contest
from benchmarks.spark import jars, kafka
from hocket.spark import java

ROOT = Path(__file__).parents[1]
NEEDED = ("culsans", "janus", "matplotlib", "uvloop", "zmq")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]
FIXED_KEYS = {"row", "ours", "peer", "peer_value", "unit", "ratio", "spread", "at_least", "met"}
EVERY_ROW = [
    "Channel 64 KiB writes, 4 MiB buffer",
    "Channel 64 KiB writes, 1 MiB buffer",
    "Channel 16 B writes and reads",
    "EventPump posts from another thread",
    "full-event queue, thread to pump",
    "full-event queue, thread to asyncio",
    "round trip p50",
    "round trip p99",
    "mixed queue, thread to pump",
    "100 MB message, time",
    "100 MB message, memory",
    "10,000 connections, memory each",
]


def assert_row_is_sound(row: dict) -> None:
    assert row.keys() >= FIXED_KEYS
    better = row["ours"] / row["peer_value"]
    assert math.isclose(row["ratio"], 1 / better if row["better"] == "less" else better)
    low, high = row["spread"]
    assert 0 < low <= high
    expected = None if row["at_least"] is None else row["ratio"] >= row["at_least"]
    assert row["met"] is expected


def some_row(name: str, ours: float, date: str) -> dict:
    contest = Contest(fixed("ours", rate=ours), [fixed("peer", rate=1.0)], [], 1, 1)
    found = judge(contest, Row(name, "rate", "per s", None), samples_of(ours))
    return found | ({"measured": {"date": date}} if date else {})


def samples_of(ours: float) -> dict:
    return {"ours": [{"rate": ours}], "peer": [{"rate": 1.0}]}


def test_rows_of_another_run_stay_if_they_say_when_they_were_measured(tmp_path):
    before = [some_row("a", 1.0, "then"), some_row("b", 2.0, ""), some_row("c", 3.0, "then")]
    (tmp_path / "some.json").write_text(json.dumps(before))
    kept = report.kept(tmp_path, "some")
    found = report.merged(kept, [some_row("a", 4.0, "now")], ["c", "b", "a"])
    assert [(row["row"], row["ours"]) for row in found] == [("c", 3.0), ("a", 4.0)]
    page = report.page("some", "Some", found, {})
    assert page.index("- measured: date then") < page.index("- measured: date now")
    assert report.kept(tmp_path, "none") == []


@pytest.mark.skipif(bool(MISSING), reason=f"the bench extra is not installed: no {MISSING}")
def test_a_quick_run_of_the_local_suite_writes_every_row_the_page_and_the_plot(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.local", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "local.json").read_text())
    assert [row["row"] for row in rows] == EVERY_ROW
    page = (tmp_path / "local.md").read_text()
    for row in rows:
        assert_row_is_sound(row)
        assert row["row"] in run.stdout
        assert f"### {row['row']}" in page
    assert (tmp_path / "local.png").read_bytes().startswith(b"\x89PNG")


def contest(row: Row, *, ours: list[float], **peers: list[float]) -> Contest:
    """Contenders that answer the warm-up with 0 and then the rounds from a list."""

    def contender(name: str, values: list[float]) -> Contender:
        answers = iter([0.0, *values])
        return Contender(name, lambda _count: {"value": next(answers)})

    others = [contender(name, values) for name, values in peers.items()]
    return Contest(contender("hocket", ours), others, [row], count=10, quick_count=1)


def judged(row: Row, **values: list[float]) -> dict:
    made = contest(row, **values)
    return judge(made, row, run_contest(made, rounds=len(values["ours"]), count=10))


def test_the_peer_is_the_one_with_the_best_median_and_more_is_better():
    row = judged(
        Row("r", "value", "x/s", at_least=2), ours=[2, 4, 9], slow=[1, 1, 1], fast=[2, 2, 9]
    )
    assert (row["peer"], row["peer_value"], row["ours"], row["ratio"]) == ("fast", 2, 4, 2)
    assert (row["met"], row["spread"], row["other_peers"]) == (True, [1, 1.5], {"slow": 1})


def test_a_row_may_name_its_peer_whichever_is_the_best():
    row = Row("r", "value", "x/s", at_least=6, against="slow")
    result = judged(row, ours=[9, 9], slow=[1, 1], fast=[8, 8])
    assert (result["peer"], result["ratio"], result["met"]) == ("slow", 9, True)
    assert result["other_peers"] == {"fast": 8}


def test_where_less_is_better_the_ratio_is_turned_round():
    row = Row("r", "value", "us", at_least=1, less_is_better=True)
    result = judged(row, ours=[20, 20], slow=[90, 90], fast=[10, 10])
    assert (result["peer"], result["ratio"], result["met"]) == ("fast", 0.5, False)


def test_a_row_that_is_only_shown_is_neither_met_nor_missed():
    assert judged(Row("r", "value", "x/s", at_least=None), ours=[1], peer=[2])["met"] is None


def test_the_order_of_contenders_alternates_by_round():
    history = []

    def contender(name: str) -> Contender:
        return Contender(name, lambda _count: history.append(name) or {"value": 1})

    made = Contest(contender("a"), [contender("b"), fixed("ceiling", value=1)], [], 10, 1)
    run_contest(made, rounds=3, count=10)
    assert "".join(history) == "ab" + "ab" + "ba" + "ab"  # the first pair is the warm-up


def test_percentile_is_a_value_that_was_measured():
    values = list(range(100, 0, -1))
    assert [percentile(values, part) for part in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7.0], 50) == 7.0


@pytest.mark.skipif(bool(MISSING), reason=f"the bench extra is not installed: no {MISSING}")
def test_a_quick_run_of_the_broker_suite_writes_every_row(tmp_path):
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.broker", "--quick", "--results", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "broker.json").read_text())
    assert [row["row"] for row in rows] == [
        "produce, send()",
        "produce, send() with keys, 4 partitions",
        "produce, send_many()",
        "consume, for m in sub",
        "consume, Arrow batches",
        "consume, shared index, each acked",
        "one transaction, send_many(), 2 topics",
        "publish, one at a time, p50",
        "publish, one at a time, p99",
        "publish, 10,000 coroutines at once",
    ]
    for row in rows:
        assert_row_is_sound(row)


# --- Spark ---------------------------------------------------------------------------------------


def test_what_a_benchmark_has_started_is_not_other_peoples_work():
    burn = (
        "import sys, time\n"
        "while time.process_time() < 0.5: pass\n"
        "print(flush=True)\n"
        "sys.stdin.read()"
    )
    before = report.family_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline()
        during = report.family_seconds()
        child.stdin.close()
    assert during - before > 0.4
    assert report.family_seconds() >= during  # it has ended, its time is still ours


def test_every_contender_gets_the_same_records(tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    from benchmarks.spark.data import TOPIC_COLUMNS, Data

    data = Data(tmp_path / "data", 400)
    data.write()
    assert (len(data.files(400)), data.held(400)) == (40, 400)
    assert (len(data.files(40)), data.held(40), data.held(1)) == (4, 40, 40)
    files = [pq.ParquetFile(file, pre_buffer=False) for file in data.files(400)]
    tables = [file.read(use_threads=False) for file in files]  # the pool's threads would stay
    table = pa.concat_tables(tables)
    for file in files:
        file.close(force=True)
    assert tuple(table.column_names) == TOPIC_COLUMNS
    places = zip(table["partition"].to_pylist(), table["offset"].to_pylist(), strict=True)
    assert sorted(places) == [(part, offset) for part in range(4) for offset in range(100)]
    assert {len(key) for key in table["key"].to_pylist()} == {8}
    assert {len(value) for value in table["value"].to_pylist()} == {100}
    assert len(set(table["value"].to_pylist())) == 400


def test_without_maven_the_benchmark_is_told_why_there_is_no_kafka(monkeypatch, tmp_path):
    monkeypatch.setattr(jars, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(jars.shutil, "which", lambda _name: None)
    with pytest.raises(jars.NoKafka, match="there is no Maven"):
        jars.connector_jars()
    with pytest.raises(jars.NoKafka, match="there is no Java"), kafka.serving(tmp_path):
        pass


def test_jars_of_spark_come_without_what_spark_has_already():
    project = ElementTree.fromstring(jars.project([jars.Jar("g", "n", "1", alone=True)]))
    space = {"m": "http://maven.apache.org/POM/4.0.0"}
    (dependency,) = project.iterfind(".//m:dependency", space)
    assert [dependency.findtext(f"m:{part}", namespaces=space) for part in
            ("groupId", "artifactId", "version")] == ["g", "n", "1"]  # fmt: skip
    assert dependency.findtext(".//m:exclusion/m:groupId", namespaces=space) == "*"


def test_java_that_cannot_be_reached_is_told_with_what_it_said(tmp_path):
    log = tmp_path / "log"
    log.write_text("no such class")
    broker = subprocess.Popen([sys.executable, "-c", ""])
    broker.wait()
    with pytest.raises(jars.NoKafka, match="it did not start: no such class"):
        kafka.wait_until_it_listens("127.0.0.1:1", broker, log)


@pytest.mark.stress
@pytest.mark.timeout(900)
@pytest.mark.skipif(bool(MISSING), reason=f"the bench extra is not installed: no {MISSING}")
@pytest.mark.skipif(os.environ.get("HOCKET_STRESS") != "long", reason="takes minutes")
def test_a_quick_run_of_the_spark_suite_writes_every_row_that_needs_no_kafka(tmp_path):
    pytest.importorskip("pyspark")
    if line := java.problem():
        pytest.skip(line)
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark", "--quick", "--without-kafka", "--results",
         str(tmp_path)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=800,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    rows = json.loads((tmp_path / "spark.json").read_text())
    assert [row["row"] for row in rows] == [
        "read to noop",
        "read to noop, against tuples",
        "read to an aggregate",
        "read to an aggregate, columns=value,offset",
        "records stored one by one, read by one task",
        "records stored one by one, against batches",
        "topic to Parquet",
        "DataFrame to topic",
        "archive: topic to lake",
        "replay: lake to topic",
        "stream catches up",
        "latency of a stream, p50",
    ]
    for row in rows:
        assert_row_is_sound(row)
    assert "Kafka is not measured: not wanted" in (tmp_path / "spark.md").read_text()
