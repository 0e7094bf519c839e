"""`hocket pipeline` where it needs no Spark: what is refused before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli import NOBODY
from tests.support.pipelines import hocket
from tests.support.processes.server import ServerProcess

pytest.importorskip("yaml")


def refused(url: str, tmp_path: Path, *args: str) -> str:
    done = hocket(url, "pipeline", *args, cwd=tmp_path, check=False)
    assert done.returncode != 0, done
    assert done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1, done.stderr
    return done.stderr


def test_no_master_answers(broker: ServerProcess, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    hocket(broker.address, "pipeline", "init", "one", cwd=tmp_path)
    for command in ("check", "run", "submit"):
        said = refused(broker.address, tmp_path, command, "one", "--master", "spark://127.0.0.1:1")
        assert "no master answers at 127.0.0.1:1" in said
    said = refused(broker.address, tmp_path, "run", "one", "--master", "cluster")
    assert "'cluster' is no master; it looks like local[2] or spark://host:7077" in said


def test_no_java(broker: ServerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hocket(broker.address, "pipeline", "init", "two", cwd=tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    said = refused(broker.address, tmp_path, "run", "two", "--once")
    assert "Spark needs Java, and JAVA_HOME is set but" in said


def test_no_broker(tmp_path: Path) -> None:
    made = hocket(NOBODY, "pipeline", "init", "three", "--timeout", "1s", cwd=tmp_path)
    assert "no broker answers" in made.stderr
    assert "hocket topic create three.in; hocket topic create three.out" in made.stderr
    refused(NOBODY, tmp_path, "run", "three", "--timeout", "1s")
    assert not (tmp_path / "three" / "state").exists()


def test_no_directory_and_no_pipeline(broker: ServerProcess, tmp_path: Path) -> None:
    assert "there is no directory" in refused(broker.address, tmp_path, "run", "nowhere")
    assert "has no spark-pipeline.yml" in refused(broker.address, tmp_path, "run")
    for command in ("status", "stop", "logs"):
        said = refused(broker.address, tmp_path, command, "nobody")
        assert "no run of a pipeline 'nobody' is known" in said


def test_once_and_every(broker: ServerProcess, tmp_path: Path) -> None:
    said = refused(broker.address, tmp_path, "run", "--once", "--every", "3s")
    assert "--once is one update" in said
