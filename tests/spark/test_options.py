"""The options of readers and writers: what each means, and what is refused with which words."""

from __future__ import annotations

import logging
import pickle
import subprocess
import sys
from typing import Any

import pytest

from hocket.errors import BadName, OutOfRange, WrongType
from hocket.model import HOUR_US, MINUTE_US, SECOND_US
from hocket.spark.bounds import Bound
from hocket.spark.options import (
    DEFAULT_ROWS_PER_TRIGGER,
    ConnectionOptions,
    ReadOptions,
    WriteOptions,
)
from hocket.spark.selection import Selection

SECRET = "hunter2-very-secret"


def lowered(options: dict[str, str]) -> dict[str, str]:
    """As Spark hands them over."""
    return {name.lower(): value for name, value in options.items()}


def reading(streaming: bool = False, **options: str) -> ReadOptions:
    given = {"servers": "localhost:4150"} | options
    if not {"subscribe", "subscribePattern", "assign"} & given.keys():
        given["subscribe"] = "orders"
    return ReadOptions.parse(lowered(given), streaming=streaming)


def streaming(**options: str) -> ReadOptions:
    return reading(streaming=True, **options)


def writing(streaming: bool = False, **options: str) -> WriteOptions:
    return WriteOptions.parse(lowered({"servers": "localhost:4150"} | options), streaming=streaming)


def refused(*words: str, **options: str) -> str:
    """Reading is refused, whether as a stream or as a batch, and the error has these words."""
    with pytest.raises((OutOfRange, BadName)) as batch:
        reading(**options)
    with pytest.raises((OutOfRange, BadName)) as stream:
        streaming(**options)
    assert str(batch.value) == str(stream.value)
    for each in words:
        assert each in str(batch.value)
    return str(batch.value)


# --- defaults ------------------------------------------------------------------------------------


def test_a_batch_reads_all_there_is_and_a_stream_what_comes() -> None:
    batch = reading()
    assert batch.starting.everywhere == Bound("earliest")
    assert batch.ending.everywhere == Bound("latest")
    assert streaming().starting.everywhere == Bound("latest")


def test_the_defaults_are_those_of_the_connector() -> None:
    assert streaming() == ReadOptions(
        connection=ConnectionOptions("hocket://localhost:4150"),
        selection=Selection(topics=("orders",)),
        starting=streaming().starting,
        ending=streaming().ending,
        columns=("key", "value", "topic", "partition", "offset", "timestamp", "timestampType"),
        fail_on_data_loss=True,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_us=15 * MINUTE_US,
        min_partitions=None,
        max_records_per_partition=None,
        index=None,
        index_prefix="spark-hocket",
        hold_retention=False,
        poll_timeout=120.0,
        retries=3,
        retry_interval=0.01,
        idle_wait=0.5,
        push_filters=False,
    )


def test_every_option_of_a_stream_arrives() -> None:
    found = streaming(
        failOnDataLoss="false",
        maxOffsetsPerTrigger="5000",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2h",
        minPartitions="8",
        maxRecordsPerPartition="1000",
        index="billing",
        groupIdPrefix="shop",
        holdRetention="TRUE",
        pollTimeoutMs="250",
        idleWaitMs="20",
        filterPushdown="true",
        **{"fetchOffset.numRetries": "7", "fetchOffset.retryIntervalMs": "1500"},
    )
    assert not found.fail_on_data_loss
    assert (found.min_offsets_per_trigger, found.max_offsets_per_trigger) == (10, 5000)
    assert found.max_trigger_delay_us == 2 * HOUR_US
    assert (found.min_partitions, found.max_records_per_partition) == (8, 1000)
    assert (found.index, found.index_prefix, found.hold_retention) == ("billing", "shop", True)
    assert (found.poll_timeout, found.idle_wait) == (0.25, 0.02)
    assert (found.retries, found.retry_interval, found.push_filters) == (7, 1.5, True)


def test_both_are_picklable() -> None:
    read = streaming(startingOffsets='{"orders":{"0":"-10 minutes"}}', token=SECRET)
    assert pickle.loads(pickle.dumps(read)) == read
    write = writing(topic="orders")
    assert pickle.loads(pickle.dumps(write)) == write


def test_parsing_needs_neither_spark_nor_arrow() -> None:
    code = (
        "import sys, hocket.spark.options\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'pyspark', 'pyarrow'}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert found.stdout.strip() == b"[]"


# --- the connection ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("servers", "url"),
    [
        ("h1:4150", "hocket://h1:4150"),
        ("h1", "hocket://h1:4150"),
        ("h1:1, h2:2", "hocket://h1:1,h2:2"),
        ("hocket://h1:4150", "hocket://h1:4150"),
        ("hockets://h1:4150,h2:4151", "hockets://h1:4150,h2:4151"),
        ("[::1]:4150", "hocket://[::1]:4150"),
    ],
)
def test_servers(servers: str, url: str) -> None:
    assert reading(servers=servers).connection.url == url
    assert writing(servers=servers).connection.url == url


def test_certificates_make_it_tls() -> None:
    found = reading(servers="h1:4150", tlsCa="ca.pem", tlsCert="me.pem", tlsKey="me.key").connection
    assert found == ConnectionOptions(
        "hockets://h1:4150", tls_ca="ca.pem", tls_cert="me.pem", tls_key="me.key"
    )
    refused("hockets://", "tlsCa", servers="hocket://h1:4150", tlsCa="ca.pem")
    refused("tlsKey", "tlsCert", tlsKey="me.key")


@pytest.mark.parametrize("servers", ["h1:port", "h1:0", "a b", "http://h1:80", "h1,,h2"])
def test_servers_that_are_none_are_refused(servers: str) -> None:
    refused(servers=servers)


def test_a_missing_address_says_which_option_to_use() -> None:
    with pytest.raises(OutOfRange, match="servers is missing"):
        ReadOptions.parse({"subscribe": "orders"}, streaming=True)
    with pytest.raises(OutOfRange, match="option servers"):
        ReadOptions.parse(
            {"kafka.bootstrap.servers": "h1:9092", "subscribe": "orders"}, streaming=True
        )


def test_credentials_arrive_and_are_not_shown() -> None:
    found = reading(token=SECRET)
    assert found.connection.token == SECRET
    assert SECRET not in repr(found)
    assert SECRET not in repr(writing(token=SECRET))
    assert reading(tokenFile="/run/token").connection.token_file == "/run/token"


@pytest.mark.parametrize(
    "options",
    [
        {"token": SECRET, "tokenFile": "/run/token"},
        {"token": SECRET, "token_": "other"},
        {"token": SECRET, "servers": "h1:none"},
        {"token": SECRET, "startingOffsets": "nowhere"},
        {"tokn": SECRET},
        {"servers": f"hocket://me:{SECRET}@h1:4150"},
        {"servers": f"{SECRET}@h1"},
        {"kafka.sasl.jaas.config": f"password={SECRET}"},
        {"kafka.ssl.key.password": SECRET},
        {"kafka.security.protocol": SECRET},
    ],
)
def test_no_error_repeats_a_secret(options: dict[str, str]) -> None:
    assert SECRET not in refused(**options)


def test_the_security_of_kafka_is_refused_with_the_options_to_use_instead() -> None:
    refused("kafka.sasl.mechanism", "tokenFile", "tlsCa", **{"kafka.sasl.mechanism": "PLAIN"})


# --- names ---------------------------------------------------------------------------------------


def test_names_are_one_in_every_spelling() -> None:
    for name in ("holdRetention", "holdretention", "hold_retention", "HOLD_RETENTION"):
        assert streaming(**{name: "true"}).hold_retention
    found = reading(servers="h1", tls_ca="ca.pem", token_file="/run/token").connection
    assert (found.tls_ca, found.token_file) == ("ca.pem", "/run/token")


def test_two_spellings_of_one_option_must_agree() -> None:
    assert streaming(hold_retention="true", holdRetention="true").hold_retention
    refused("twice", hold_retention="true", holdRetention="false")


@pytest.mark.parametrize(
    ("slip", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failsOnDataLoss", "failOnDataLoss"),
        ("subscribePatern", "subscribePattern"),
        ("server", "servers"),
        ("idnex", "index"),
        ("include_header", "includeHeaders"),
    ],
)
def test_slips_are_refused_with_what_was_meant(slip: str, meant: str) -> None:
    refused(
        f"{slip.lower().replace('_', '')} is not an option; did you mean {meant}?", **{slip: "1"}
    )


def test_a_slip_is_one_of_the_options_of_its_own_side() -> None:
    with pytest.raises(OutOfRange, match="did you mean transactionId"):
        writing(transactionIds="1")
    assert reading(transactionIds="1") == reading()
    assert reading(topics="orders") == reading()
    with pytest.raises(OutOfRange, match=r"topics is not an option; did you mean topic\?"):
        writing(topics="orders")
    with pytest.raises(OutOfRange, match="did you mean servers"):
        writing(server="h1")


@pytest.mark.parametrize(
    "name",
    [
        "path", "paths", "queryName", "checkpointLocation", "recursiveFileLookup", "outputMode",
        "pathGlobFilter", "modifiedBefore", "modifiedAfter", "ignoreMissingFiles", "mergeSchema",
        "ignoreCorruptFiles", "maxFilesPerTrigger", "timeZone", "truncate", "numRows", "header",
        "triggerInterval", "asyncProgressTrackingEnabled", "spark.sql.shuffle.partitions",
        "asyncProgressTrackingCheckpointIntervalMs", "batchId", "mode", "format", "table",
        "dbtable", "url", "compression", "dateFormat", "timestampFormat", "timestampNTZFormat",
        "inferSchema", "pipelines.reset", "somethingOfMyOwn",
    ],
)  # fmt: skip
def test_what_is_not_ours_passes(name: str) -> None:
    assert reading(**{name: "1"}) == reading()
    assert writing(**{name: "1"}) == writing()


def test_options_of_the_other_side_pass() -> None:
    assert reading(topic="copy", codec="lz4") == reading()
    assert writing(subscribe="orders", startingOffsets="earliest") == writing()


def test_kafka_s_own_options_are_ignored_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="hocket.spark"):
        found = streaming(
            **{"kafka.bootstrap.servers": "h1:9092", "kafka.max.poll.records": SECRET}
        )
    assert found == streaming()
    assert len(caplog.records) == 1
    assert "kafka.bootstrap.servers, kafka.max.poll.records" in caplog.text
    assert SECRET not in caplog.text


def test_what_counts_in_streams_only_is_said_of_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="hocket.spark"):
        streaming(maxOffsetsPerTrigger="5")
        assert not caplog.records
        reading(maxOffsetsPerTrigger="5")
    assert "maxOffsetsPerTrigger" in caplog.text


def test_none_is_not_given() -> None:
    given: Any = {"servers": "h1", "subscribe": "orders", "assign": None, "minpartitions": None}
    assert ReadOptions.parse(given, streaming=False).min_partitions is None


def test_values_that_are_not_text_are_refused() -> None:
    wrong: Any = {"servers": "h1", "subscribe": "orders", "minpartitions": 3}
    with pytest.raises(WrongType, match="minpartitions"):
        ReadOptions.parse(wrong, streaming=False)


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "minPartitions", "maxRecordsPerPartition",
        "pollTimeoutMs", "kafkaConsumer.pollTimeoutMs",
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", ["0", "-1", "many", "1.5", "", "99999999999999999999", "1_0"])
def test_numbers_that_are_none_are_refused(name: str, value: str) -> None:
    refused(name, **{name: value})


@pytest.mark.parametrize(
    "name", ["fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "idleWaitMs"]
)
def test_none_at_all_is_a_number_here(name: str) -> None:
    streaming(**{name: "0"})
    refused(name, **{name: "-1"})


@pytest.mark.parametrize(
    "name", ["failOnDataLoss", "includeHeaders", "holdRetention", "filterPushdown"]
)
def test_booleans(name: str) -> None:
    streaming(**{name: "False"})
    refused(f"{name} must be true or false, not 'yes'", **{name: "yes"})


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("15m", 15 * MINUTE_US),
        ("15 minutes", 15 * MINUTE_US),
        ("90 s", 90 * SECOND_US),
        ("1.5h", 90 * MINUTE_US),
        ("500ms", 500_000),
        ("250", 250_000),  # milliseconds, as Spark has it
        ("0s", 0),
    ],
)
def test_the_delay_of_a_trigger(text: str, microseconds: int) -> None:
    assert streaming(maxTriggerDelay=text).max_trigger_delay_us == microseconds


@pytest.mark.parametrize("text", ["soon", "-1s", "5 fortnights", "999999d", "1.2.3s"])
def test_delays_that_are_none_are_refused(text: str) -> None:
    refused("maxTriggerDelay", maxTriggerDelay=text)


def test_both_names_of_the_poll_timeout() -> None:
    assert reading(**{"kafkaConsumer.pollTimeoutMs": "512"}).poll_timeout == 0.512
    assert reading(**{"kafkaConsumer.pollTimeoutMs": "9", "pollTimeoutMs": "9"}).poll_timeout
    refused("differ", **{"kafkaConsumer.pollTimeoutMs": "9", "pollTimeoutMs": "10"})


def test_the_least_rows_must_fit_into_the_most() -> None:
    refused("minOffsetsPerTrigger=6", minOffsetsPerTrigger="6", maxOffsetsPerTrigger="5")
    assert streaming(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")
    too_many = str(DEFAULT_ROWS_PER_TRIGGER + 1)
    refused("maxOffsetsPerTrigger", "its default", minOffsetsPerTrigger=too_many)
    assert streaming(minOffsetsPerTrigger=too_many, maxOffsetsPerTrigger=too_many)


def test_kafka_s_group_is_the_index() -> None:
    assert streaming(**{"kafka.group.id": "billing"}).index == "billing"
    assert streaming(**{"kafka.group.id": "billing"}, index="billing").index == "billing"
    refused("differ", **{"kafka.group.id": "billing"}, index="shipping")
    refused("index", index="not a name")
    refused("kafka.group.id", **{"kafka.group.id": "not a name"})


def test_the_prefix_leaves_room_for_the_rest_of_the_name() -> None:
    assert streaming(groupIdPrefix="p" * 246).index_prefix == "p" * 246
    refused("groupIdPrefix must be 246", groupIdPrefix="p" * 247)
    refused("groupIdPrefix", groupIdPrefix="a b")


def test_columns_are_those_named_in_their_order() -> None:
    assert reading(columns="value, key").columns == ("value", "key")
    assert reading(columns="timestamptype,OFFSET").columns == ("timestampType", "offset")
    assert reading(columns="value", includeHeaders="true").columns == ("value", "headers")
    assert reading(columns="headers,value").columns == ("headers", "value")
    assert reading(includeHeaders="true").columns[-2:] == ("timestampType", "headers")


def test_columns_that_there_are_not_are_refused() -> None:
    refused("'vlaue'", "key, value, topic", columns="key,vlaue")
    refused("''", columns="key,,value")
    refused("twice", columns="key,key")
    refused("includeHeaders is false", columns="headers", includeHeaders="false")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(OutOfRange, match=f"{name} is for batches"):
        streaming(**{name: "latest"})


# --- writing -------------------------------------------------------------------------------------


def test_every_option_of_a_batch_write_arrives() -> None:
    found = writing(
        topic="orders",
        includeHeaders="true",
        codec="zstd",
        transactionId="nightly",
        transactionNumber="12",
        commitTimeout="90s",
        token=SECRET,
    )
    assert found == WriteOptions(
        ConnectionOptions("hocket://localhost:4150", token=SECRET),
        "orders", True, "zstd", "nightly", 12, 90.0,
    )  # fmt: skip


def test_the_defaults_of_a_write() -> None:
    for each in (writing(), writing(streaming=True)):
        assert each == WriteOptions(ConnectionOptions("hocket://localhost:4150"))


def test_delivery_is_exactly_once_unless_less_is_asked_for() -> None:
    assert writing(delivery="exactly-once") == writing()
    for stream in (False, True):
        assert not writing(streaming=stream, delivery="at-least-once").exactly_once


def test_a_stream_has_transactions_of_its_own() -> None:
    for name in ("transactionId", "transactionNumber"):
        with pytest.raises(OutOfRange, match=f"{name} is for batches"):
            writing(streaming=True, **{name: "1"})


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("codec must be one of none, lz4, zstd", {"codec": "gzip"}),
        ("topic must be", {"topic": "not a name"}),
        ("delivery must be one of exactly-once, at-least-once", {"delivery": "at-most-once"}),
        (
            "transactionId is for delivery=exactly-once",
            {"delivery": "at-least-once", "transactionId": "nightly", "transactionNumber": "1"},
        ),
        ("belong together", {"transactionId": "nightly"}),
        ("belong together", {"transactionNumber": "1"}),
        ("transactionNumber must be", {"transactionId": "nightly", "transactionNumber": "-1"}),
        ("transactionId must be", {"transactionId": "a b", "transactionNumber": "1"}),
        ("commitTimeout must look like", {"commitTimeout": "soon"}),
        ("commitTimeout must be more than 0", {"commitTimeout": "0"}),
        ("includeHeaders must be true or false", {"includeHeaders": "1"}),
    ],
)
def test_writes_that_are_refused(words: str, options: dict[str, str]) -> None:
    with pytest.raises((OutOfRange, BadName), match=words):
        writing(**options)


def test_a_bare_commit_timeout_is_in_seconds() -> None:
    assert writing(commitTimeout="45").commit_timeout == 45.0
