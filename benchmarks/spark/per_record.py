"""Our own data source as it would be without Arrow: a tuple for each message.

For the benchmark only. It shows what the connector gains by never touching single records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import hocket
from benchmarks.spark.data import PARTITIONS

NAME = "hocket_per_record"
TIMESTAMP_TYPE = 0  # as Kafka's connector says "time of creation"


class PerRecordSource(DataSource):
    """Options: servers, subscribe (one topic), and `records`, how many of each partition."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return (
            "key binary, value binary, topic string, partition int, offset long, "
            "timestamp timestamp, timestampType int"
        )

    def reader(self, schema: StructType) -> DataSourceReader:
        return PerRecordReader(dict(self.options))


class PerRecordReader(DataSourceReader):
    def __init__(self, options: dict[str, str]) -> None:
        self.servers, self.topic = options["servers"], options["subscribe"]
        self.records = int(options["records"])

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(partition) for partition in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        number, topic = int(partition.value), self.topic
        with (
            hocket.connect(self.servers) as client,
            client.subscribe(topic, partitions=[number], positions={number: 0}) as messages,
        ):
            for message in itertools.islice(messages, self.records):
                yield (
                    message.key,
                    message.value,
                    topic,
                    number,
                    message.offset,
                    datetime.fromtimestamp(message.timestamp / 1e6, UTC),
                    TIMESTAMP_TYPE,
                )
