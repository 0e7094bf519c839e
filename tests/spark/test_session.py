"""The settings of a session, and that nothing of the user's is overruled."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hocket.spark import java
from hocket.spark.session import cores_of, is_local, prepare_environment, session, settings

NAMES = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in NAMES:
        monkeypatch.setenv(name, "before")  # so that it is put back whatever happens
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[2]", 2), ("local[3,4]", 3), ("local[*]", os.cpu_count())],
)
def test_a_local_session_shuffles_into_as_many_partitions_as_it_has_cores(
    master: str, cores: int
) -> None:
    assert is_local(master)
    assert cores_of(master) == cores
    assert settings(master)["spark.sql.shuffle.partitions"] == str(cores)


@pytest.mark.parametrize("master", ["spark://a:7077", "yarn", "local-cluster[2,1,1024]", "k8s://a"])
def test_on_a_cluster_nothing_is_bound_to_loopback(master: str) -> None:
    assert not is_local(master)
    assert settings(master).keys() == {
        "spark.ui.enabled",
        "spark.sql.execution.arrow.maxRecordsPerBatch",
    }


def test_workers_run_this_python(environment: pytest.MonkeyPatch) -> None:
    prepare_environment()
    assert [os.environ[name] for name in NAMES] == [sys.executable, sys.executable, "127.0.0.1"]


def test_what_the_environment_says_stays(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PYSPARK_PYTHON", "/opt/python")
    environment.setenv("SPARK_LOCAL_IP", "10.0.0.1")
    prepare_environment()
    assert os.environ["PYSPARK_PYTHON"] == "/opt/python"
    assert os.environ["SPARK_LOCAL_IP"] == "10.0.0.1"


def test_on_a_cluster_the_address_is_left_to_spark(environment: pytest.MonkeyPatch) -> None:
    prepare_environment(local=False)
    assert "SPARK_LOCAL_IP" not in os.environ


def test_without_java_it_says_so_at_once(tmp_path: Path, environment: pytest.MonkeyPatch) -> None:
    environment.setenv("PATH", str(tmp_path))
    environment.delenv("JAVA_HOME", raising=False)
    with pytest.raises(java.NoJava, match="apt-get install openjdk-17-jre-headless"):
        session()
    assert "PYSPARK_PYTHON" not in os.environ  # nothing was begun
