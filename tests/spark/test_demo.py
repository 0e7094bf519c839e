"""The demo's scene with Spark: where Spark cannot run, the demo says why and goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.demo import spark
from hocket.demo.spark import SparkScenes


def test_without_java_it_is_left_out_with_the_line_that_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with SparkScenes() as scenes:
        outcome = scenes.topic_to_topic(lambda part: None)
        assert scenes.pipeline(lambda part: None).messages == 0
    assert outcome.messages == 0
    assert "apt-get install openjdk-17-jre-headless" in outcome.note


def test_without_pyspark_likewise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "find_spec", lambda name: None)
    with SparkScenes() as scenes:
        outcome = scenes.topic_to_topic(lambda part: None)
    assert "pip install 'hocket[spark]'" in outcome.note
