"""The rows of `make bench-spark`, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import to_json

from benchmarks.runner import Contender, Contest, Row, fixed
from benchmarks.spark.cases import PER_RECORD_MAX, Cases
from benchmarks.spark.data import TOPIC
from benchmarks.spark.sides import (
    KAFKA_CONSUMER,
    KAFKA_PRODUCER,
    AtLeastOnce,
    Broker,
    Hocket,
    Kafka,
    Parquet,
    PerRecord,
    UntunedKafka,
)

LATENCIES, LATENCIES_QUICK = 30, 3
NO_LIMIT = 1 << 60
ONE_BY_ONE, ONE_BY_ONE_QUICK = 200_000, 2_000
ASKED = "what is asked"

SAME = "8 B keys and 100 B values, random bytes, 4 partitions; one session, local[2], 2 GiB"
FULL = "all seven columns, to Spark's noop sink, which takes every row and keeps none"
AGGREGATE = "sum(length(value)), max(offset)"
KEYED = "key and value, read from Parquet; keys choose the partition"
SYNCED = "ours is synced to disk before it counts; Kafka, as it comes, leaves that to the system"
ONCE = "ours is one transaction, all of it or nothing; Kafka's connector writes at least once"
SET = "Kafka's clients are set to " + ", ".join(
    f"{name}={value}" for name, value in {**KAFKA_PRODUCER, **KAFKA_CONSUMER}.items()
)


STAGED = (
    "A record is written twice, staged and then published, each time to the WAL and to its "
    "segment; and publishing begins when the last task is done, on one core while the other waits: "
    "about a fifth of the whole. The largest item in the broker's profile is the kernel copying "
    "bytes into files (22 %). Written once, in the row at least once, ours is ahead."
)


def row(name: str, against: str, least: float | None = None, why: str = "") -> Row:
    return Row(name, "rate", "rows/s", least, against=against, why=why)


def as_piped(frame: DataFrame) -> DataFrame:
    """As `archive` and `replay` hand over what they have read."""
    return frame.withColumn("headers", to_json("headers"))


class Suite:
    """The contests, with or without Kafka."""

    def __init__(
        self,
        cases: Cases,
        ours: Hocket,
        parquet: Parquet,
        per_record: PerRecord,
        rival: Kafka | None,
        *,
        quick: bool,
    ) -> None:
        self.cases, self.ours, self.parquet, self.per_record = cases, ours, parquet, per_record
        self.rivals = [] if rival is None else [rival]
        self.untuned = [UntunedKafka.of(each) for each in self.rivals]
        self.latencies = LATENCIES_QUICK if quick else LATENCIES

    def contests(self) -> list[Contest]:
        contests = [
            self.noop(),
            self.aggregate(),
            self.projected(),
            self.one_by_one(),
            self.into_parquet(),
            self.into_topic(),
            self.into_topic_at_least_once(),
            self.archive(),
            self.replay(),
            self.catching_up(),
            self.latency(),
        ]
        return [contest for contest in contests if contest.rows]

    def contest(
        self, ours: Contender, peers: list[Contender], rows: list[Row], *settings: str
    ) -> Contest:
        """Without the rows of a peer that is not there."""
        names = {peer.name for peer in peers}
        kept = [row for row in rows if row.against in names]
        count = self.cases.data.records
        return Contest(ours, peers, kept, count, count, settings=(SAME, *settings))

    def reading(
        self, seconds: Callable[[DataFrame, int], float], *, most: int = NO_LIMIT
    ) -> Callable[[Any], Contender]:
        """A contender of each source: read so many rows, and do this with them."""
        return lambda source: self.cases.rate(
            source.name, lambda count: seconds(source.read(count), count), most
        )

    # --- reading ---------------------------------------------------------------------------------

    def noop(self) -> Contest:
        side = self.reading(self.cases.to_noop)
        per_record = self.reading(self.cases.to_noop, most=PER_RECORD_MAX)(self.per_record)
        return self.contest(
            side(self.ours),
            [side(self.parquet), per_record, *map(side, self.rivals)],
            [
                row("read to noop", Parquet.name, 0.7),
                row("read to noop, against tuples", PerRecord.name, 6.0),
                row("read to noop, against Kafka", Kafka.name, 1.5),
            ],
            FULL,
            f"a tuple for each record: on at most {PER_RECORD_MAX:,} rows",
            SET,
        )

    def aggregate(self) -> Contest:
        side = self.reading(self.cases.to_aggregate)
        return self.contest(
            side(self.ours),
            [side(self.parquet), *map(side, self.rivals)],
            [
                row("read to an aggregate", Parquet.name),
                row("read to an aggregate, against Kafka", Kafka.name),
            ],
            f"{AGGREGATE}; Spark tells Parquet which columns, and no other source",
            SET,
        )

    def projected(self) -> Contest:
        cases, ours = self.cases, self.ours

        def seconds(count: int) -> float:
            return cases.to_aggregate(ours.read(count, columns="value,offset"), count)

        return self.contest(
            cases.rate(ours.name, seconds),
            [self.reading(cases.to_aggregate)(self.parquet)],
            [row("read to an aggregate, columns=value,offset", Parquet.name)],
            f"{AGGREGATE}; both read only these two columns",
        )

    def one_by_one(self) -> Contest:
        """Records that are stored in a batch each, read by one task."""
        cases, ours = self.cases, self.ours
        topics: dict[tuple[int, bool], str] = {}

        def seconds(count: int, *, apart: bool) -> float:
            if (count, apart) not in topics:
                topics[count, apart] = ours.filled(count, apart=apart)
            reader = ours.spark.read.format(ours.format).options(**ours.connection)
            return cases.to_noop(reader.option("subscribe", topics[count, apart]).load(), count)

        together = "hocket, stored together"
        contest = self.contest(
            Contender(ours.name, lambda count: {"rate": count / seconds(count, apart=True)}),
            [
                Contender(together, lambda count: {"rate": count / seconds(count, apart=False)}),
                fixed(ASKED, rate=100_000),
            ],
            [
                row("records stored one by one, read by one task", ASKED, 1.0),
                row("records stored one by one, against batches", together),
            ],
        )
        contest.count, contest.quick_count = ONE_BY_ONE, ONE_BY_ONE_QUICK
        return contest

    def into_parquet(self) -> Contest:
        side = self.reading(self.cases.to_parquet)
        return self.contest(
            side(self.ours),
            [side(self.parquet), *map(side, self.rivals)],
            [
                row("topic to Parquet", Parquet.name),
                row("topic to Parquet, against Kafka", Kafka.name),
            ],
            "all seven columns, written with Spark's defaults",
            SET,
        )

    # --- writing ---------------------------------------------------------------------------------

    def frame(self, count: int) -> DataFrame:
        return self.parquet.read(count).select("key", "value")

    def writing(self, broker: Broker) -> Contender:
        cases = self.cases
        return cases.rate(
            broker.name, lambda count: cases.to_topic(self.frame(count), broker, count)
        )

    def into_topic(self) -> Contest:
        cases = self.cases
        files = cases.rate(Parquet.name, lambda count: cases.to_parquet(self.frame(count), count))
        return self.contest(
            self.writing(self.ours),
            [files, *map(self.writing, [*self.rivals, *self.untuned])],
            [
                row("DataFrame to topic, against Kafka", Kafka.name, 1.0, STAGED),
                row("DataFrame to topic, against untuned Kafka", UntunedKafka.name),
                row("DataFrame to topic", Parquet.name),
            ],
            KEYED,
            SYNCED,
            ONCE,
            SET,
        )

    def into_topic_at_least_once(self) -> Contest:
        ours = AtLeastOnce(self.ours.spark, self.ours.data, self.ours.url)
        return self.contest(
            self.writing(ours),
            [*map(self.writing, self.rivals)],
            [row("DataFrame to topic at least once, against Kafka", Kafka.name, 1.0)],
            KEYED,
            "delivery=at-least-once, which is what Kafka's connector promises",
            SYNCED,
            SET,
        )

    # --- the lake --------------------------------------------------------------------------------

    def archive(self) -> Contest:
        cases = self.cases

        def plain(count: int) -> float:
            frame = self.parquet.read(count).drop("timestampType")
            return cases.to_dated_parquet(frame, count)

        def ours(count: int) -> float:
            return cases.to_lake(as_piped(self.ours.read(count, includeHeaders="true")), count)

        return self.contest(
            cases.rate(self.ours.name, ours),
            [cases.rate(Parquet.name, plain)],
            [row("archive: topic to lake", Parquet.name, 0.7)],
            "as the pipeline reads it, with the column headers, which no record has; against the "
            "same records, without that column, read from Parquet and written to Parquet by date",
            "the lake is synced to disk before it counts",
        )

    def replay(self) -> Contest:
        cases = self.cases
        lakes: dict[int, str] = {}

        def ours(count: int) -> float:
            if count not in lakes:
                frame = self.ours.read(count, includeHeaders="true")
                lakes[count] = cases.lake_of(as_piped(frame))
            lake = self.ours.spark.read.format("hocket").options(
                archive=lakes[count], subscribe=TOPIC, columns="key,value,headers"
            )
            return cases.to_topic(as_piped(lake.load()), self.ours, count)

        files = cases.rate(Parquet.name, lambda count: cases.to_parquet(self.frame(count), count))
        return self.contest(
            cases.rate(self.ours.name, ours),
            [files],
            [row("replay: lake to topic", Parquet.name, 0.7)],
            "as the pipeline does it: key, value, and headers, which no record has; against the "
            "same keys and values read from Parquet and written to Parquet",
            ONCE,
        )

    # --- streams ---------------------------------------------------------------------------------

    def catching_up(self) -> Contest:
        cases, one_job = self.cases, "hocket, one batch job"

        def side(broker: Broker) -> Contender:
            return cases.rate(broker.name, lambda count: cases.caught_up(broker, count))

        batch = cases.rate(one_job, lambda count: cases.to_noop(self.ours.read(count), count))
        return self.contest(
            side(self.ours),
            [batch, *map(side, self.rivals)],
            [
                row("stream catches up", one_job),
                row("stream catches up, against Kafka", Kafka.name, 1.0),
            ],
            "AvailableNow to noop, each with its default limits: both take all in one batch",
            SET,
        )

    def latency(self) -> Contest:
        cases, ours = self.cases, self.ours
        alone = cases.echo(ours)

        def p50(name: str, against: str) -> Row:
            return Row(name, "p50", "ms", None, less_is_better=True, against=against, also=("p90",))

        contest = self.contest(
            cases.latency(ours),
            [alone, *map(cases.latency, self.rivals)],
            [
                p50("latency of a stream, p50", alone.name),
                p50("latency of a stream, p50, against Kafka", Kafka.name),
            ],
            f"topic to topic; {self.latencies} records in each round, one at a time at random "
            "moments, from before its publish to its arrival from the other topic",
            ONCE,
        )
        contest.count = contest.quick_count = self.latencies
        return contest
