"""The contenders: where records are read from and written to, all through Spark's own calls."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

import hocket
from benchmarks.spark import per_record
from benchmarks.spark.data import PARTITIONS, TOPIC, VALUE_BYTES, Data

SCHEMA = per_record.PerRecordSource({}).schema()
_names = itertools.count()

# What somebody who moves much through Kafka sets. With the defaults (no linger, 16 KiB, 32 MiB;
# 500) a trial with 2 M records wrote at 0.43 and read at 0.65 of the rate. The rest is as it comes:
# acks=all, idempotent, no compression.
KAFKA_PRODUCER = {
    "kafka.linger.ms": "20",
    "kafka.batch.size": str(256 << 10),
    "kafka.buffer.memory": str(128 << 20),
}
KAFKA_CONSUMER = {"kafka.max.poll.records": "5000"}


def offsets(count: int) -> str:
    """The same offset in every partition, as Spark's option has it."""
    return json.dumps({TOPIC: {str(part): count // PARTITIONS for part in range(PARTITIONS)}})


class Parquet:
    """The same records in files."""

    name = "Parquet"

    def __init__(self, spark: SparkSession, data: Data) -> None:
        self.spark, self.data = spark, data

    def read(self, count: int) -> DataFrame:
        return self.spark.read.schema(SCHEMA).parquet(*self.data.files(count))


class PerRecord:
    """Our own topic, one tuple for each message."""

    name = "hocket, a tuple per record"

    def __init__(self, spark: SparkSession, url: str) -> None:
        self.spark, self.url = spark, url
        spark.dataSource.register(per_record.PerRecordSource)

    def read(self, count: int) -> DataFrame:
        reader = self.spark.read.format(per_record.NAME).option("servers", self.url)
        return reader.options(subscribe=TOPIC, records=count // PARTITIONS).load()


class Broker:
    """A broker that Spark reads from and writes to: ours or Kafka."""

    name: str
    format: str
    connection: Mapping[str, str]
    reading: Mapping[str, str] = MappingProxyType({})
    writing: Mapping[str, str] = MappingProxyType({})

    def __init__(self, spark: SparkSession, data: Data) -> None:
        self.spark, self.data = spark, data

    def create(self, topic: str, partitions: int) -> None:
        raise NotImplementedError

    def delete(self, topic: str) -> None:
        raise NotImplementedError

    def read(self, count: int, **more: str) -> DataFrame:
        """The first `count` records."""
        reader = self.spark.read.format(self.format).options(**self.connection, **self.reading)
        return reader.options(subscribe=TOPIC, endingOffsets=offsets(count), **more).load()

    def stream(self, topic: str, starting: str) -> DataFrame:
        reader = self.spark.readStream.format(self.format)
        reader = reader.options(**self.connection, **self.reading)
        return reader.options(subscribe=topic, startingOffsets=starting).load()

    def catch_up(self, count: int) -> DataFrame:
        """The last `count` records, as a stream."""
        return self.stream(TOPIC, offsets(self.data.records - count))

    def write(self, frame: DataFrame, topic: str) -> None:
        writer = frame.write.format(self.format).options(**self.connection, **self.writing)
        writer.option("topic", topic).mode("append").save()

    def stream_to(self, frame: DataFrame, topic: str) -> DataStreamWriter:
        """Latency is what counts here, so nothing is set that makes batches wait."""
        writer = frame.writeStream.format(self.format).options(**self.connection)
        return writer.option("topic", topic)

    def fill(self) -> None:
        """The topic that is read, each record in the partition where Parquet has it."""
        self.create(TOPIC, PARTITIONS)
        frame = Parquet(self.spark, self.data).read(self.data.records)
        self.write(frame.select("key", "value", "partition"), TOPIC)

    def new_topic(self, partitions: int = PARTITIONS) -> str:
        topic = f"made-{next(_names)}"
        self.create(topic, partitions)
        return topic

    def size(self, topic: str) -> int:
        """How many records can be read from it."""
        return self.spark.read.format(self.format).options(**self.connection).option(
            "subscribe", topic
        ).load().count()  # fmt: skip


class Hocket(Broker):
    name = "hocket"
    format = "hocket"

    def __init__(self, spark: SparkSession, data: Data, url: str) -> None:
        super().__init__(spark, data)
        self.connection = {"servers": url}
        self.url = url

    def create(self, topic: str, partitions: int) -> None:
        with hocket.connect(self.url) as client:
            client.create_topic(topic, partitions=partitions)

    def delete(self, topic: str) -> None:
        with hocket.connect(self.url) as client:
            client.delete_topic(topic)

    def filled(self, count: int, *, apart: bool) -> str:
        """A topic of one partition with so many records, each in a batch of its own or together."""
        topic = self.new_topic(1)
        keys = [b"%08d" % (number % 1000) for number in range(count)]
        with (
            hocket.connect(self.url) as client,
            client.producer(topic, batch_bytes=1 if apart else "1MiB") as producer,
        ):
            producer.send_many([os.urandom(VALUE_BYTES) for _ in keys], keys=keys)
        return topic


class AtLeastOnce(Hocket):
    """With the guarantee that Kafka's connector has."""

    name = "hocket, at least once"
    writing = MappingProxyType({"delivery": "at-least-once"})


class Kafka(Broker):
    """Kafka's own Java clients do what is not Spark's: they are in the driver's JVM already."""

    name = "Kafka connector"
    format = "kafka"
    reading = KAFKA_CONSUMER
    writing = KAFKA_PRODUCER

    def __init__(self, spark: SparkSession, data: Data, address: str) -> None:
        super().__init__(spark, data)
        self.connection = {"kafka.bootstrap.servers": address}
        self.address = address
        java: Any = spark._jvm
        self.java = java
        self.clients = self.java.org.apache.kafka.clients
        self.admin = self.clients.admin.AdminClient.create(self.properties())

    def properties(self, **settings: str) -> Any:
        made = self.java.java.util.Properties()
        made.put("bootstrap.servers", self.address)
        for name, value in settings.items():
            made.put(name.replace("_", "."), value)
        return made

    def list_of(self, item: Any) -> Any:
        made = self.java.java.util.ArrayList()
        made.add(item)
        return made

    def create(self, topic: str, partitions: int) -> None:
        new = self.clients.admin.NewTopic(topic, partitions, 1)
        self.admin.createTopics(self.list_of(new)).all().get()

    def delete(self, topic: str) -> None:
        self.admin.deleteTopics(self.list_of(topic)).all().get()

    def close(self) -> None:
        self.admin.close()


class UntunedKafka(Kafka):
    """As it comes, which is what a job has that was never tuned."""

    name = "Kafka connector, its defaults"
    reading: Mapping[str, str] = MappingProxyType({})
    writing: Mapping[str, str] = MappingProxyType({})

    @classmethod
    def of(cls, tuned: Kafka) -> UntunedKafka:
        """The same broker, and the same clients of it."""
        found = cls.__new__(cls)
        vars(found).update(vars(tuned))
        return found
