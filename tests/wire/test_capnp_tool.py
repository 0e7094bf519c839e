"""The schema is the contract: what Cap'n Proto's own tool writes we read, and the other way."""

from __future__ import annotations

import pytest

from hocket.frames import (
    Commit,
    CreateTopic,
    Credit,
    Deliver,
    Failure,
    Frame,
    Hello,
    Indexes,
    OpenSubscription,
    Ping,
    Publish,
    Published,
    Push,
    PushAcked,
    SeekIndex,
    Topics,
    Welcome,
    packed,
)
from hocket.model import (
    IndexDescription,
    IndexPartition,
    Limits,
    PartitionDescription,
    Start,
    TopicConfig,
    TopicDescription,
)
from hocket.wire.connection import Connection
from hocket.wire.framing import PREFIX_BYTES
from tests.support.wire.capnp_tool import decode_with_tool, encode_with_tool, framed, needs_tool
from tests.support.wire.joined import opened, received, sent

pytestmark = needs_tool

HELLO = '(request = 1, hello = (client = "tool", features = ["a", "b"], token = "secret"))'

FROM_A_CLIENT: list[tuple[str, bytes, Frame]] = [
    ("(request = 2, ping = ())", b"", Ping(2)),
    (
        """(request = 3, createTopic = (topic = "orders", config = (
            partitions = 4, replication = (some = 3), diskRetentionUs = (none = void),
            durability = memory)))""",
        b"",
        CreateTopic(3, "orders", TopicConfig(4, 3, disk_retention_us=None, durability="memory")),
    ),
    ('(request = 4, publish = (topic = "orders"))', b"a batch", Publish(4, "orders", -1)),
    ('(request = 4, publish = (topic = "ä", partition = 2))', b"12345678", Publish(4, "ä", 2)),
    ("(push = (handle = 18446744073709551615, partition = 7))", b"x", Push(0, 2**64 - 1, 7)),
    (
        """(request = 5, openSubscription = (topic = "orders", index = "billing",
            mode = keyShared, start = (kind = time, value = -5), holdRetention = true,
            creditBytes = 1048576))""",
        b"",
        OpenSubscription(
            5,
            "orders",
            "billing",
            "key_shared",
            Start("time", -5),
            hold_retention=True,
            credit_bytes=1 << 20,
        ),
    ),
    ("(credit = (handle = 1, bytes = 4096))", b"", Credit(0, 1, 4096)),
    (
        '(request = 6, commit = (handle = 1, positions = 0x"00000000000000000700000000000000"))',
        b"",
        Commit(6, 1, packed([0, 7])),
    ),
    (
        '(request = 7, seekIndex = (topic = "t", index = "i", start = (kind = latest)))',
        b"",
        SeekIndex(7, "t", "i", Start("latest")),
    ),
]


def test_the_tool_opens_a_connection_and_asks() -> None:
    server = Connection("server")
    hello = framed(encode_with_tool(HELLO))
    assert received(server, [hello]) == [(Hello(1, 1, 1, "tool", ("a", "b"), "secret"), b"")]
    server.send(Welcome(1, 1, "node", "software", (), Limits()))
    stream = b"".join(framed(encode_with_tool(text), data) for text, data, _ in FROM_A_CLIENT)
    assert received(server, [stream]) == [(frame, data) for _, data, frame in FROM_A_CLIENT]


FROM_A_SERVER: list[tuple[Frame, str]] = [
    (
        Failure(3, "topicExists", "there is one"),
        '(request = 3, failure = (code = "topicExists", message = "there is one", '
        'mayHaveHappened = false, node = "", address = ""))',
    ),
    (Published(4, 2, 77), "(request = 4, published = (partition = 2, offset = 77))"),
    (
        PushAcked(0, 1, 2, 3, b"12345678"),
        "(request = 0, pushAcked = (handle = 1, partition = 2, sequence = 3, "
        'offsets = "12345678"))',
    ),
    (
        Deliver(0, 1, 2, 3, 4),
        "(request = 0, deliver = (handle = 1, partition = 2, offset = 3, end = 4))",
    ),
]


@pytest.mark.parametrize(("frame", "text"), FROM_A_SERVER, ids=lambda each: type(each).__name__)
def test_the_tool_reads_an_answer(frame: Frame, text: str) -> None:
    _, server = opened()
    header = sent(server, frame)[PREFIX_BYTES:]
    assert decode_with_tool(header) == text


def test_the_tool_reads_and_writes_a_large_answer_as_we_do() -> None:
    """Through the tool's text and back: nothing that we write is lost on it, nor it on us."""
    client, server = opened()
    partition = PartitionDescription(1, 2, 3, 4, 5, 6, 7, 8, "leader", ("a", "b"), "a problem")
    for frame in (
        Topics(
            9,
            tuple(
                TopicDescription(f"topic-{number}", TopicConfig(number, 1), 3 * (partition,))
                for number in range(50)
            ),
        ),
        Indexes(9, (IndexDescription("all", "own", True, (IndexPartition(0, 5, 9, True),)),)),
    ):
        text = decode_with_tool(sent(server, frame)[PREFIX_BYTES:])
        assert received(client, [framed(encode_with_tool(text))]) == [(frame, b"")]
