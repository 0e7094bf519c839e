"""What is wrong with topics and options of a pipeline is said before Spark does anything."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

import hocket
from hocket import Client

pytest.importorskip("pyspark.pipelines")

from hocket.pipelines.checking import check_topics, master_problem, problems
from hocket.pipelines.declared import Declared, Source, Target
from hocket.pipelines.faults import PipelineFault, Place, Places

AT = Place("transformations/a.py", 7)
SECONDS = 5.0


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with hocket.embedded(tmp_path_factory.mktemp("data")) as client:
        client.create_topic("orders")
        yield client


def source(*topics: str, **options: str) -> Source:
    given = {"servers": "127.0.0.1:4150", "subscribe": ",".join(topics), **options}
    return Source("flow", AT, topics, "shop.flow", given)


def target(topic: str, **options: str) -> Target:
    given = {"servers": "127.0.0.1:4150", "topic": topic, **options}
    return Target("result", AT, topic, is_misfits=False, options=given)


def declared(*parts: Source | Target) -> Declared:
    found = Declared(Places(Path("/srv/shop")))
    for part in parts:
        if isinstance(part, Source):
            found.sources.append(part)
        else:
            found.targets.append(part)
    return found


def test_topics_that_are_there_are_no_problem(ours: Client) -> None:
    check_topics(ours, declared(source("orders"), target("orders")), SECONDS)


def test_all_that_is_missing_is_said_at_once_each_with_its_line(ours: Client) -> None:
    with pytest.raises(PipelineFault) as caught:
        check_topics(ours, declared(source("orders", "ordres"), target("result")), SECONDS)
    assert str(caught.value) == (
        "transformations/a.py:7: there is no topic 'ordres' to read; `hocket topic create ordres` "
        "makes it; transformations/a.py:7: there is no topic 'result' to write; `hocket topic "
        "create result` makes it"
    )


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            source("orders", startingofsets="latest"),
            "startingofsets is not an option; did you mean",
        ),
        (source("orders", startingoffsets="yesterday"), "transformations/a.py:7: startingOffsets"),
        (target("orders", topci="x"), "topci is not an option; did you mean topic?"),
        (source("no/name"), "transformations/a.py:7: "),
    ],
)
def test_options_that_cannot_be_are_said_with_their_line(
    ours: Client, part: Source | Target, words: str
) -> None:
    (said,) = problems(ours, declared(part), SECONDS)
    assert words in said
    assert said.startswith("transformations/a.py:7: ")


def test_a_lake_needs_no_topic_of_the_broker(ours: Client) -> None:
    found = Source("flow", AT, ("gone",), "", {"archive": "/srv/lake", "subscribe": "gone"})
    assert problems(ours, declared(found), SECONDS) == []


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert master_problem(f"spark://127.0.0.1:1,127.0.0.1:{port}") == ""
    said = master_problem("spark://127.0.0.1:1")
    assert said == "no master answers at 127.0.0.1:1 (Connection refused)"


@pytest.mark.parametrize("master", ["nowhere", "spark://", "spark://a:b", "http://a:7077"])
def test_what_is_no_master_is_said(master: str) -> None:
    assert "is no master" in master_problem(master)
