"""How long a record takes: published to one topic, seen in another, a stream of Spark between them.

`Ends` is what both brokers can do without Spark; with one topic for both ends it is the broker
alone. Records are published at random moments, each after the one before has come out, so a
record neither waits for others nor always meets the query in the same state.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import hocket
from benchmarks.spark.sides import Broker, Hocket, Kafka

WAIT_SECONDS = 60.0
PAUSE_SECONDS = (0.2, 0.6)  # longer than a batch of the query takes to end
BYTES = 100


class Ends(Protocol):
    def publish(self, value: bytes) -> None: ...
    def receive(self) -> bytes: ...


class HocketEnds:
    def __init__(self, client: Any, source: str, messages: Any) -> None:
        self.client, self.source, self.messages = client, source, messages

    def publish(self, value: bytes) -> None:
        self.client.publish(self.source, value)

    def receive(self) -> bytes:
        return bytes(self.messages.receive(timeout=WAIT_SECONDS).value)


class KafkaEnds:
    def __init__(self, kafka: Kafka, source: str, producer: Any, consumer: Any) -> None:
        self.kafka, self.source, self.producer, self.consumer = kafka, source, producer, consumer
        self.second = kafka.java.java.time.Duration.ofSeconds(1)

    def publish(self, value: bytes) -> None:
        record = self.kafka.clients.producer.ProducerRecord(self.source, value)
        self.producer.send(record).get()

    def receive(self) -> bytes:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            found = self.consumer.poll(self.second).iterator()
            if found.hasNext():
                return bytes(found.next().value())
        raise TimeoutError(f"nothing came out within {WAIT_SECONDS:.0f} s")


@contextmanager
def ends_of(broker: Broker, source: str, sink: str) -> Iterator[Ends]:
    if isinstance(broker, Hocket):
        with hocket.connect(broker.url) as client, client.subscribe(sink) as messages:
            yield HocketEnds(client, source, messages)
    elif isinstance(broker, Kafka):
        kind = "org.apache.kafka.common.serialization.ByteArray"
        producer = broker.clients.producer.KafkaProducer(
            broker.properties(
                key_serializer=f"{kind}Serializer", value_serializer=f"{kind}Serializer"
            )
        )
        consumer = broker.clients.consumer.KafkaConsumer(
            broker.properties(
                key_deserializer=f"{kind}Deserializer", value_deserializer=f"{kind}Deserializer"
            )
        )
        place = broker.list_of(broker.java.org.apache.kafka.common.TopicPartition(sink, 0))
        consumer.assign(place)
        consumer.seekToBeginning(place)
        try:
            yield KafkaEnds(broker, source, producer, consumer)
        finally:
            producer.close()
            consumer.close()


def travel_times(ends: Ends, count: int, *, pause: tuple[float, float]) -> list[float]:
    """Seconds from `publish` to `receive` for `count` records; one more goes ahead, unmeasured."""
    chance = random.Random(5)
    seconds = []
    for number in range(count + 1):
        time.sleep(chance.uniform(*pause))
        value = str(number).encode().ljust(BYTES, b".")
        start = time.perf_counter()
        ends.publish(value)
        came = ends.receive()
        seconds.append(time.perf_counter() - start)
        if came != value:
            raise AssertionError(f"{came!r} came out when {value!r} had been published")
    return seconds[1:]


def through_spark(broker: Broker, count: int) -> list[float]:
    source, sink = broker.new_topic(1), broker.new_topic(1)
    frame = broker.stream(source, "earliest").select("key", "value")
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as checkpoint:
        query = broker.stream_to(frame, sink).option("checkpointLocation", checkpoint).start()
        try:
            with ends_of(broker, source, sink) as ends:
                seconds = travel_times(ends, count, pause=PAUSE_SECONDS)
        finally:
            query.stop()
    broker.delete(source)
    broker.delete(sink)
    return seconds


def of_the_broker_alone(broker: Broker, count: int) -> list[float]:
    topic = broker.new_topic(1)
    with ends_of(broker, topic, topic) as ends:
        seconds = travel_times(ends, count, pause=(0.0, 0.01))
    broker.delete(topic)
    return seconds
