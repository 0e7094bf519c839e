"""Filters that the source takes over from Spark, for those who ask for it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame

from tests.support.spark import failure_of, fill, load

CONF = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def pushing(spark) -> Iterator[None]:
    spark.conf.set(CONF, "true")
    yield
    spark.conf.unset(CONF)


@pytest.fixture
def filled(client, topic) -> str:
    client.create_topic(topic, partitions=2)
    fill(client, topic, 100, 0)
    fill(client, topic, 100, 1)
    return topic


def plan_of(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


def test_it_needs_a_setting_of_spark_and_says_which(spark, broker, filled):
    assert load(spark, broker, filled).where("offset < 10").count() == 20
    said = failure_of(lambda: load(spark, broker, filled, filterPushdown="true").count())
    assert CONF in said


@pytest.mark.usefixtures("pushing")
def test_partitions_and_offsets_are_never_read_and_other_columns_are_masked(spark, broker, filled):
    frame = load(spark, broker, filled, filterPushdown="true")
    chosen = frame.where("partition = 1 and offset >= 90 and key > 'k95' and value != '97'")
    assert chosen.rdd.getNumPartitions() == 1
    assert " Filter (" not in plan_of(chosen)
    assert " Filter (" in plan_of(load(spark, broker, filled).where("partition = 1"))
    assert sorted(row.offset for row in chosen.collect()) == [96, 98, 99]
    assert load(spark, broker, filled).where("offset < 10").count() == 20  # still as it was


@pytest.mark.usefixtures("pushing")
def test_what_the_source_does_not_understand_spark_does_itself(spark, broker, filled):
    frame = load(spark, broker, filled, filterPushdown="true")
    assert frame.where("length(value) = 1 and partition = 0").count() == 10
    assert frame.where("partition = 7").collect() == []


@pytest.mark.usefixtures("pushing")
def test_spark_still_keeps_the_filters_of_one_query_for_the_next_of_the_same_frame(
    spark, broker, filled
):
    """A defect of Spark 4.3, and the reason why the guide says one `load()` for each query.

    When this fails Spark has mended it: then take the warning out of the guide and of LIMITS.
    """
    frame = load(spark, broker, filled, filterPushdown="true")
    assert frame.where("offset < 3").count() == 6
    assert frame.count() == 6
    assert load(spark, broker, filled, filterPushdown="true").count() == 200
