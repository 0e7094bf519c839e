"""Records that are gone are named to the offset, or warned about with the same words."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest

import hocket
from hocket.model import PartitionDescription, TopicConfig, TopicDescription
from hocket.spark import reading
from hocket.spark.missing import DataLoss
from hocket.spark.options import ReadOptions
from hocket.spark.planning import Span
from hocket.spark.stream_reader import HocketStreamReader
from tests.support.spark import (
    SHORT_LIVED,
    Batches,
    failure_of,
    fill,
    fill_segments,
    run_to_end,
    shortened as shorten,
    stream,
)
from tests.support.threads import until

COUNT = 60


def options_of(broker, topic: str, *, streaming: bool = False, **more: str) -> ReadOptions:
    given = {"servers": broker.address, "subscribe": topic, "startingOffsets": "earliest", **more}
    return ReadOptions.parse(given, streaming=streaming)


def offsets(batches) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def shortened(client, topic) -> int:
    """A topic of 60 records whose first ones were removed; where it begins now."""
    client.create_topic(topic, **SHORT_LIVED)
    fill_segments(client, topic, COUNT)
    # Retention may begin while the topic is filled: this is when it has removed all that it will.
    until(lambda: client.describe(topic).partitions[0].disk_bytes <= SHORT_LIVED["disk_bytes"])
    return shorten(client, topic)


def test_what_retention_removed_is_named_exactly(broker, topic, shortened):
    with pytest.raises(DataLoss) as raised:
        offsets(reading.read(Span(topic, 0, 0, COUNT), options_of(broker, topic)))
    error = raised.value
    assert (error.topic, error.partition, error.start, error.end) == (topic, 0, 0, shortened)
    text = str(error)
    assert f"topic {topic!r}, partition 0: {shortened} records are gone" in text
    assert f"offsets 0 to {shortened} (that one excluded)" in text
    assert "failOnDataLoss" in text
    assert "holdRetention" in text


def test_without_fail_on_data_loss_it_is_a_warning_and_the_rest_is_read(
    broker, topic, shortened, caplog
):
    options = options_of(broker, topic, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "hocket.spark"):
        found = offsets(reading.read(Span(topic, 0, 0, COUNT), options))
    assert found == list(range(shortened, COUNT))
    assert f"{shortened} records are gone, offsets 0 to {shortened}" in caplog.text


def test_a_span_of_which_nothing_is_left(broker, topic, shortened, caplog):
    span = Span(topic, 0, 1, shortened - 1)
    with pytest.raises(DataLoss, match=rf"offsets 1 to {shortened - 1} \("):
        offsets(reading.read(span, options_of(broker, topic)))
    options = options_of(broker, topic, failOnDataLoss="false")
    assert offsets(reading.read(span, options)) == []
    assert "offsets 1 to" in caplog.text


def test_what_goes_while_it_is_read_is_reported_between_what_is_read(
    broker, client, topic, monkeypatch, caplog
):
    monkeypatch.setattr(reading, "CREDIT_BYTES", 1)
    monkeypatch.setattr(reading, "ROWS_ENOUGH", 1)
    client.create_topic(topic, **SHORT_LIVED | {"disk_bytes": "unlimited"})
    fill_segments(client, topic, COUNT)
    span = Span(topic, 0, 0, COUNT)
    batches = reading.read(span, options_of(broker, topic, failOnDataLoss="false"))
    found = offsets([next(batches)])
    client.alter_topic(topic, disk_bytes=SHORT_LIVED["disk_bytes"])
    begin = shorten(client, topic)
    found += offsets(batches)
    (gap,) = [(a + 1, b) for a, b in pairwise(found) if b != a + 1]
    assert gap[1] == begin
    assert found == [*range(gap[0]), *range(begin, COUNT)]
    assert f"{begin - gap[0]} records are gone, offsets {gap[0]} to {begin} " in caplog.text


def test_what_nobody_knows_just_now_is_not_gone():
    """A broker whose other node, which holds the topic, does not answer."""
    away = PartitionDescription(0, 0, 0, 0, 0, 0, 0, 0, "n1", ("n1",), "it is away", known=False)

    class Asked:
        def describe(self, name: str, **_options: object) -> TopicDescription:
            return TopicDescription(name, TopicConfig(), (away,))

    options = ReadOptions.parse({"servers": "127.0.0.1:1", "subscribe": "t"}, streaming=False)
    stretch = reading._Stretch(Asked(), Span("t", 0, 0, 9), options)  # type: ignore[arg-type]
    assert stretch._look() is False
    assert stretch.position == 0


def test_a_topic_that_was_deleted_or_made_anew(broker, client, topic):
    options = options_of(broker, topic)
    with pytest.raises(DataLoss, match=r"10 records are gone, offsets 2 to 12 .*was deleted"):
        offsets(reading.read(Span(topic, 0, 2, 12), options))
    client.create_topic(topic)
    fill(client, topic, 4)
    with pytest.raises(DataLoss, match=r"offsets 4 to 12 .*ends at 4 now.*created anew"):
        offsets(reading.read(Span(topic, 0, 2, 12), options))
    with pytest.raises(DataLoss, match=r"offsets 6 to 12 .*created anew"):
        offsets(reading.read(Span(topic, 0, 6, 12), options))
    with pytest.raises(DataLoss, match=r"offsets 0 to 3 .*has 1 partitions now"):
        offsets(reading.read(Span(topic, 5, 0, 3), options))
    lenient = options_of(broker, topic, failOnDataLoss="false")
    assert offsets(reading.read(Span(topic, 0, 2, 12), lenient)) == [2, 3]


# --- at planning ---------------------------------------------------------------------------------


def test_a_stream_is_told_of_a_topic_that_was_deleted_and_goes_on_if_it_may(
    broker, client, topic, caplog
):
    client.create_topic(topic)
    fill(client, topic, 5)
    strict = HocketStreamReader(options_of(broker, topic, streaming=True))
    start = strict.initialOffset()
    limit = strict.getDefaultReadLimit()
    end = strict.latestOffset(start, limit)
    client.delete_topic(topic)
    with pytest.raises(DataLoss, match=r"from offset 5 on are gone.*was deleted"):
        strict.latestOffset(end, limit)
    with pytest.raises(DataLoss, match="5 records are gone, offsets 0 to 5 "):
        strict.partitions(start, end)
    lenient = HocketStreamReader(
        options_of(broker, topic, streaming=True, failOnDataLoss="false", idleWaitMs="0")
    )
    assert lenient.latestOffset(end, limit) == end
    assert lenient.partitions(start, end) == []
    warnings = len(caplog.records)
    assert warnings >= 2
    assert lenient.latestOffset(end, limit) == end
    assert len(caplog.records) == warnings  # once is enough
    client.create_topic(topic)
    fill(client, topic, 3)
    anew = lenient.latestOffset(end, limit)
    assert anew["offsets"] == {topic: {"0": 3}}
    (planned,) = lenient.partitions(end, anew)
    assert (planned.span.start, planned.span.end) == (0, 3)
    with pytest.raises(DataLoss, match="ends at 3 now: its topic was created anew"):
        strict.latestOffset(end, limit)


def test_a_query_that_retention_has_overtaken_names_the_offsets(
    spark, broker, client, topic, tmp_path
):
    client.create_topic(topic, **SHORT_LIVED | {"disk_bytes": "unlimited"})
    fill_segments(client, topic, 2)
    run_to_end(stream(spark, broker, topic), tmp_path)
    fill_segments(client, topic, COUNT)
    client.alter_topic(topic, disk_bytes=SHORT_LIVED["disk_bytes"])
    begin = shorten(client, topic)
    said = failure_of(lambda: run_to_end(stream(spark, broker, topic), tmp_path))
    assert f"{begin - 2} records are gone, offsets 2 to {begin} " in said
    found = Batches()
    run_to_end(stream(spark, broker, topic, failOnDataLoss="false"), tmp_path, found)
    assert [offset for _, _, offset in found.rows] == list(range(begin, COUNT + 2))


def test_it_is_an_error_of_the_package():
    assert issubclass(DataLoss, hocket.errors.HocketError)
