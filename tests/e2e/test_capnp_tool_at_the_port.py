"""A client made of Cap'n Proto's own tool and a socket, at a real port."""

from __future__ import annotations

import re
import time

import pytest

from hocket.wire import batch as batches
from tests.support.node.running import RawConnection, listening
from tests.support.wire.capnp_tool import decode_with_tool, encode_with_tool, framed, needs_tool

pytestmark = needs_tool


def now_us() -> int:
    """Records of long ago would fall to retention while the tool is still at work."""
    return int(time.time() * 1e6)


class ToolClient(RawConnection):
    def tell(self, text: str, payload: bytes = b"") -> None:
        self.send(framed(encode_with_tool(text), payload))

    def ask(self, text: str, payload: bytes = b"") -> str:
        self.tell(text, payload)
        return self.hear()[0]

    def hear(self) -> tuple[str, bytes]:
        header, payload = self.receive()
        return decode_with_tool(header), payload


@pytest.fixture
def tool(tmp_path):
    with listening(tmp_path / "data") as address, ToolClient(address) as client:
        yield client


def greeted(tool: ToolClient) -> ToolClient:
    answer = tool.ask('(request = 1, hello = (client = "capnp tool"))')
    assert re.match(r"\(request = 1, welcome = \(version = 1, node = ", answer), answer
    return tool


def number(text: str, name: str) -> int:
    """The first number by this name; a number that is not written is the default, 0."""
    found = re.search(rf"{name} = (-?\d+)", text)
    return int(found[1]) if found else 0


def test_a_message_is_published_and_read_back(tool):
    greeted(tool)
    created = tool.ask('(request = 2, createTopic = (topic = "t", config = (partitions = 2)))')
    assert created == "(request = 2, done = ())"

    one = batches.encode([b"one"], timestamps=now_us())
    published = tool.ask('(request = 3, publish = (topic = "t", partition = 1))', one)
    assert published.startswith("(request = 3, published = (partition = 1, offset = 0")

    opened = tool.ask('(request = 4, openSubscription = (topic = "t", creditBytes = 1000000))')
    handle = number(opened, "handle")
    assert "subscriptionOpened" in opened
    assert handle > 0
    delivered, payload = tool.hear()
    assert f"deliver = (handle = {handle}, partition = 1, offset = 0, end = 1)" in delivered
    assert batches.parse(payload).values() == [b"one"]


def test_a_producer_streams_and_a_retry_is_not_stored_twice(tool):
    greeted(tool)
    tool.ask('(request = 2, createTopic = (topic = "t", config = (partitions = 1)))')
    opened = tool.ask(
        '(request = 3, openProducer = (topic = "t", producerId = "0123456789abcdef"))'
    )
    handle = number(opened, "handle")
    for sequence in (0, 1, 1):
        pushed = batches.encode(
            [b"a", b"b"],
            timestamps=1,
            producer_id=b"0123456789abcdef",
            sequence=sequence,
        )
        acked = tool.ask(f"(push = (handle = {handle}, partition = 0))", pushed)
        assert "pushAcked" in acked
        assert number(acked, "sequence") == sequence
    described = tool.ask('(request = 4, describeTopic = (topic = "t"))')
    assert number(described, "end") == 4


def test_an_index_is_committed_and_listed(tool):
    greeted(tool)
    tool.ask('(request = 2, createTopic = (topic = "t", config = (partitions = 1)))')
    tool.ask(
        '(request = 3, publish = (topic = "t"))', batches.encode([b"x"] * 3, timestamps=now_us())
    )
    opened = tool.ask('(request = 4, openSubscription = (topic = "t", index = "i"))')
    handle = number(opened, "handle")
    place = "\\x00" * 8 + "\\x02" + "\\x00" * 7  # partition 0, offset 2
    committed = tool.ask(f'(request = 5, commit = (handle = {handle}, positions = "{place}"))')
    assert committed == "(request = 5, done = ())"
    indexes = tool.ask('(request = 6, listIndexes = (topic = "t"))')
    assert 'name = "i"' in indexes
    assert (number(indexes, "position"), number(indexes, "end")) == (2, 3)


def test_errors_are_values(tool):
    greeted(tool)
    answer = tool.ask('(request = 2, describeTopic = (topic = "nothing"))')
    assert answer.startswith('(request = 2, failure = (code = "unknownTopic", message = "there is')
    assert tool.ask("(request = 3, ping = ())") == "(request = 3, done = ())"


def test_a_version_from_the_future_is_refused_with_words_and_the_connection_closed(tool):
    answer = tool.ask("(request = 1, hello = (versionMin = 7, versionMax = 9))")
    assert 'code = "wrongVersion"' in answer
    assert "7 to 9" in answer
    assert tool.at_end()


def test_what_breaks_the_protocol_costs_its_own_connection_and_no_other(tool, tmp_path):
    greeted(tool)
    with ToolClient(tool.socket.getpeername()) as other:
        other.tell("(request = 1, ping = ())")  # before its hello
        assert "failure" in other.hear()[0]
        assert other.at_end()
    assert tool.ask("(request = 2, ping = ())") == "(request = 2, done = ())"
