"""The sink in a real Spark: columns and what they become, atomicity, and writes done again."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as f

from hocket import Client
from tests.support.spark import failure_of, load, run_to_end, stream


def records(client: Client, topic: str) -> list[tuple[int, bytes | None, bytes, dict[str, Any]]]:
    """Partition, key, value and headers of all messages, partition by partition."""
    found = []
    for partition, end in enumerate(client.find_offsets(topic, "latest")):
        count = 0
        with client.subscribe(topic, partitions=[partition]) as messages:
            while count < end:
                batch = messages.receive_batch(timeout=20)
                count += len(batch)
                columns = (batch.keys(), batch.values(), batch.headers())
                found += [(partition, *each) for each in zip(*columns, strict=True)]
    return found


def values(client: Client, topic: str) -> list[bytes]:
    return sorted(value for _, _, value, _ in records(client, topic))


def write(frame: DataFrame, broker: Any, **options: object) -> None:
    writer = frame.write.format("hocket").mode("append").option("servers", broker.address)
    for name, value in options.items():
        writer = writer.option(name, value)
    writer.save()


def numbers(spark: SparkSession, count: int, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks)


# --- columns --------------------------------------------------------------------------------------


def test_a_value_alone_of_either_type(spark, broker, client, topic):
    client.create_topic(topic, partitions=2)
    write(numbers(spark, 3).selectExpr("cast(id as string) as value"), broker, topic=topic)
    write(numbers(spark, 2).selectExpr("cast('b' || id as binary) as value"), broker, topic=topic)
    assert values(client, topic) == [b"0", b"1", b"2", b"b0", b"b1"]
    assert all(key is None and not headers for _, key, _, headers in records(client, topic))


@pytest.mark.parametrize("kind", ["string", "binary"])
def test_keys_decide_the_partition_as_they_do_for_the_client(spark, broker, client, topic, kind):
    client.create_topic(topic, partitions=3)
    keys = [f"key {n}".encode() for n in range(20)]
    with client.producer(topic) as producer:
        producer.send_many([b"client"] * 20, keys=keys)
    rows = f"cast('key ' || id as {kind}) as key", "'spark' as value"
    write(numbers(spark, 20).selectExpr(*rows), broker, topic=topic)
    places = Counter((partition, key) for partition, key, _, _ in records(client, topic))
    assert len(places) == 20
    assert set(places.values()) == {2}


def test_some_keys_are_null(spark, broker, client, topic):
    client.create_topic(topic, partitions=2)
    rows = "if(id % 2 = 0, null, 'k' || id) as key", "cast(id as string) as value"
    write(numbers(spark, 6).selectExpr(*rows), broker, topic=topic)
    found = {value: key for _, key, value, _ in records(client, topic)}
    assert found == {b"0": None, b"1": b"k1", b"2": None, b"3": b"k3", b"4": None, b"5": b"k5"}


@pytest.mark.parametrize("column", ["headers", "to_json(headers) as headers"])
def test_headers(spark, broker, client, topic, column):
    client.create_topic(topic)
    headers = """if(id = 1, null, array(
        named_struct('key', 'id', 'value', cast(cast(id as string) as binary)),
        named_struct('key', 'none', 'value', cast(null as binary)))) as headers"""
    frame = numbers(spark, 3, 1).selectExpr("cast(id as string) as value", headers)
    frame = frame.selectExpr("value", column)
    write(frame, broker, topic=topic, includeHeaders=True)
    assert [(value, headers) for _, _, value, headers in records(client, topic)] == [
        (b"0", {"id": b"0", "none": None}),
        (b"1", {}),
        (b"2", {"id": b"2", "none": None}),
    ]


def test_topics_and_partitions_by_column(spark, broker, client, topic):
    for number in range(3):
        client.create_topic(f"{topic}-{number}", partitions=2)
    rows = (
        f"'{topic}-' || id % 3 as topic",
        "cast(if(id < 9, id % 2, null) as int) as partition",
        "'key' as key",
        "cast(id as string) as value",
    )
    write(numbers(spark, 12, 1).selectExpr(*rows), broker)
    by_key = {place for place, _, value, _ in records(client, f"{topic}-0") if value == b"9"}
    for number in range(3):
        found = records(client, f"{topic}-{number}")
        assert {int(value) for _, _, value, _ in found} == set(range(number, 12, 3))
        for partition, _, value, _ in found:
            assert {partition} == ({int(value) % 2} if int(value) < 9 else by_key)
        for partition in range(2):
            chosen = [int(value) for at, _, value, _ in found if at == partition]
            assert chosen == sorted(chosen), "rows for one partition keep their order"


def test_the_option_topic_comes_before_the_column(spark, broker, client, topic):
    client.create_topic(topic)
    write(numbers(spark, 2).selectExpr("'elsewhere' as topic", "'x' as value"), broker, topic=topic)
    assert values(client, topic) == [b"x", b"x"]


def test_what_was_read_can_be_written_as_it_is(spark, broker, client, topic):
    """All columns of the source, of which the sink ignores those that it does not know."""
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-copy", partitions=2)
    for number in range(4):
        client.publish(topic, b"%d" % number, key=b"k%d" % number, headers={"n": b"%d" % number})
    write(load(spark, broker, topic, includeHeaders=True), broker, topic=f"{topic}-copy")
    assert records(client, f"{topic}-copy") == records(client, topic)


def test_no_rows(spark, broker, client, topic):
    client.create_topic(topic)
    frame = numbers(spark, 4).where("id > 100").selectExpr("cast(id as string) as value")
    write(frame, broker, topic=topic)
    assert client.find_offsets(topic, "latest") == [0]


def test_many_rows_in_many_batches(spark, broker, client, topic):
    """More than the sink gathers, and keys that are spread over all partitions."""
    client.create_topic(topic, partitions=4)
    rows = "'key ' || id % 100 as key", "cast(id as string) as value"
    write(numbers(spark, 200_000).selectExpr(*rows), broker, topic=topic, codec="lz4")
    assert sum(client.find_offsets(topic, "latest")) == 200_000
    read = load(spark, broker, topic).selectExpr("cast(cast(value as string) as long) as n")
    found = read.selectExpr("count(distinct n)", "min(n)", "max(n)").first()
    assert tuple(found) == (200_000, 0, 199_999)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["id as key"], "Required attribute 'value' not found"),
        (["id as value"], "value attribute type must be a STRING or BINARY, not bigint"),
        (["'x' as value", "id as key"], "key attribute type must be a STRING or BINARY"),
        (["'x' as value", "id as partition"], "partition attribute type must be an INT"),
        (["'x' as value", "1 as topic"], "topic attribute type must be a STRING"),
        (["'x' as value", "map('a', 'b') as headers"], "headers attribute type must be an ARRAY"),
        (["'x' as value", "'y' as value"], "there are 2 columns called 'value'"),
    ],
)
def test_wrong_columns_are_refused_before_anything_runs(spark, broker, topic, columns, words):
    frame = numbers(spark, 1).selectExpr(*columns)
    assert words in failure_of(lambda: write(frame, broker, topic=topic))


def test_no_topic_at_all(spark, broker):
    frame = numbers(spark, 1).selectExpr("'x' as value")
    words = failure_of(lambda: write(frame, broker))
    assert "topic option required when no 'topic' attribute is present" in words


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (["if(id = 3, null, 'x') as value", "'{topic}' as topic"], "a null value for '{topic}'"),
        (
            ["'x' as value", "if(id = 3, null, '{topic}') as topic"],
            "null topic present in the data",
        ),
        (["'x' as value", "99 as partition", "'{topic}' as topic"], "99"),
    ],
)
def test_a_bad_row_is_named_and_nothing_is_written(spark, broker, client, topic, columns, words):
    client.create_topic(topic, partitions=2)
    frame = numbers(spark, 8).selectExpr(*[column.format(topic=topic) for column in columns])
    assert words.format(topic=topic) in failure_of(lambda: write(frame, broker))
    assert client.find_offsets(topic, "latest") == [0, 0]


def test_a_topic_is_not_overwritten(spark, broker, client, topic):
    client.create_topic(topic)
    writer = numbers(spark, 1).selectExpr("'x' as value").write.format("hocket").mode("overwrite")
    writer = writer.option("servers", broker.address).option("topic", topic)
    assert "Save mode Overwrite not allowed" in failure_of(writer.save)


def test_a_topic_that_is_not_there(spark, broker, topic):
    frame = numbers(spark, 1).selectExpr("'x' as value")
    assert topic in failure_of(lambda: write(frame, broker, topic=topic))


# --- all or nothing, and once ---------------------------------------------------------------------


def test_of_a_write_that_fails_in_one_task_nothing_appears(spark, broker, client, topic):
    client.create_topic(topic, partitions=2)
    fails = f.udf(lambda n: 1 // (n - 7), "long")  # in the second task; the first one is done
    frame = numbers(spark, 8).select(fails("id").cast("string").alias("value"))
    assert "ZeroDivisionError" in failure_of(lambda: write(frame, broker, topic=topic))
    write(numbers(spark, 1).selectExpr("'after' as value"), broker, topic=topic)
    assert values(client, topic) == [b"after"]


def test_a_write_with_a_name_and_a_number_is_done_once(spark, broker, client, topic):
    client.create_topic(topic)
    frame = numbers(spark, 4).selectExpr("cast(id as string) as value")
    name = uuid.uuid4().hex
    for number in (3, 3, 4):
        write(frame, broker, topic=topic, transactionId=name, transactionNumber=number)
    assert values(client, topic) == sorted([b"0", b"1", b"2", b"3"] * 2)
    other = numbers(spark, 5).selectExpr("cast(id as string) as value")
    words = failure_of(
        lambda: write(other, broker, topic=topic, transactionId=name, transactionNumber=4)
    )
    assert "batch 4 was written before" in words
    assert "not deterministic" in words
    assert len(values(client, topic)) == 8


def test_foreach_batch_that_fails_after_its_write(spark, broker, client, topic, tmp_path):
    """It is done again by Spark, and published once."""
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    for number in range(6):
        client.publish(topic, b"%d" % number)
    fails = [True]

    def write_batch(frame: DataFrame, number: int) -> None:
        rows = frame.select("value")
        write(rows, broker, topic=f"{topic}-out", transactionId=topic, transactionNumber=number)
        if fails:
            fails.pop()
            raise RuntimeError("after the write")

    frame = stream(spark, broker, topic, maxOffsetsPerTrigger=3)
    assert "after the write" in failure_of(lambda: run_to_end(frame, tmp_path, write_batch))
    assert len(values(client, f"{topic}-out")) == 3
    run_to_end(frame, tmp_path, write_batch)
    assert values(client, f"{topic}-out") == [b"%d" % n for n in range(6)]


# --- streams --------------------------------------------------------------------------------------


def start(frame: DataFrame, broker: Any, topic: str, checkpoint: Any, mode: str = "append") -> Any:
    return (
        frame.writeStream.format("hocket")
        .outputMode(mode)
        .option("servers", broker.address)
        .option("topic", topic)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_goes_on_where_it_was(spark, broker, client, topic, tmp_path):
    client.create_topic(topic, partitions=2)
    client.create_topic(f"{topic}-out", partitions=2)
    for part in range(2):
        for number in range(part * 5, part * 5 + 5):
            client.publish(topic, b"%d" % number, key=b"%d" % number)
        frame = stream(spark, broker, topic, maxOffsetsPerTrigger=2).select("key", "value")
        start(frame, broker, f"{topic}-out", tmp_path).awaitTermination(60)
    assert records(client, f"{topic}-out") == records(client, topic)


def test_a_batch_that_spark_has_not_logged(spark, broker, client, topic, tmp_path):
    """It is done again, recognised, and not published again."""
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    for number in range(3):
        client.publish(topic, b"%d" % number)
    frame = stream(spark, broker, topic).select("value")
    start(frame, broker, f"{topic}-out", tmp_path).awaitTermination(60)
    for path in (tmp_path / "commits").iterdir():  # as if the driver had died before it wrote it
        path.unlink()
    start(frame, broker, f"{topic}-out", tmp_path).awaitTermination(60)
    assert (tmp_path / "commits" / "0").exists()
    assert values(client, f"{topic}-out") == [b"0", b"1", b"2"]


def test_complete_mode_writes_the_whole_result_each_time(spark, broker, client, topic, tmp_path):
    client.create_topic(topic)
    client.create_topic(f"{topic}-out")
    counts = "cast(value as string) as key", "cast(count as string) as value"
    for _ in range(2):
        client.publish(topic, b"a")
        frame = stream(spark, broker, topic).groupBy("value").count().selectExpr(*counts)
        start(frame, broker, f"{topic}-out", tmp_path, "complete").awaitTermination(60)
    assert [value for _, _, value, _ in records(client, f"{topic}-out")] == [b"1", b"2"]


def test_update_mode_is_refused_by_spark_itself(spark, broker, client, topic, tmp_path):
    """Python sinks cannot have it; foreachBatch with transactionId does the same."""
    client.create_topic(topic)
    client.publish(topic, b"a")
    frame = stream(spark, broker, topic).groupBy("value").count().select("value")

    def run() -> None:
        start(frame, broker, topic, tmp_path, "update").awaitTermination(60)

    assert "does not support Update mode" in failure_of(run)
