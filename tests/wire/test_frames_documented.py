"""docs/protocol.md says what the code does: error codes, limits, kinds, and the example in hex."""

from __future__ import annotations

import re
from pathlib import Path

from hocket import model, node_frames
from hocket.errors import BY_CODE
from hocket.frames import Hello
from hocket.node.messages import CODEC
from hocket.wire import connection, framing, node_codec, structs
from hocket.wire.schema import hocket_capnp
from hocket.wire.structs import camel
from tests.support.wire.frame_strategies import KINDS
from tests.support.wire.joined import received, sent

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "protocol.md").read_text()


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def test_the_error_codes_are_those_of_the_code() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| (?:yes|no|only)\b.* \|$", section("Error codes"), re.M)
    assert rows == list(BY_CODE)


def test_every_kind_of_frame_is_explained() -> None:
    assert [kind for kind in KINDS if f"`{camel(kind.__name__)}`" not in PAGE] == []


def test_every_message_between_nodes_is_explained() -> None:
    text = section("Between nodes")
    assert [each for each in CODEC.classes if f"`{camel(each.__name__)}`" not in text] == []


def test_the_refusals_of_a_hello_are_those_of_the_code() -> None:
    table = section("Between nodes").split("| code of `helloRefused` |")[1].split("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", table, re.M)) == node_frames.REFUSALS


def test_the_limits_between_nodes_are_those_of_the_code() -> None:
    said = {
        "(2^31)": framing.NODE_MARK == 1 << 31,
        "1 MiB; 64 KiB before the answer": framing.OPENING_HEADER_BYTES_MAX == 64 << 10,
        "160 MiB by default": node_frames.PAYLOAD_BYTES_MAX == 160 << 20,
        "| 255 characters |": node_codec.TEXT_MAX == 255,
        "| 10,000 characters |": node_codec.REASON_MAX == 10_000,
        "| 1024 |": node_codec.ITEMS_MAX == 1024,
        "| 16,384; none of them empty |": node_codec.PIECES_MAX == 16_384,
        "| below 4096 |": model.PARTITIONS_MAX == 4096,
        "This is version 1.": node_frames.NODE_PROTOCOL_VERSION == 1,
    }
    text = section("Between nodes")
    assert [words for words in said if words not in text] == []
    assert [words for words, true in said.items() if not true] == []


def test_the_hello_is_the_one_we_send_and_understand() -> None:
    words = re.findall(r"^([0-9a-f]{8} ?[0-9a-f]{8})    +\S", section("Hello"), re.M)
    frame = bytes.fromhex("".join(words))
    hello = Hello(1, client="me")
    assert frame == sent(connection.Connection("client"), hello)
    assert received(connection.Connection("server"), [frame]) == [(hello, b"")]


def test_the_limits_are_those_of_the_code() -> None:
    limits = model.Limits()
    said = {
        "1 MiB;": framing.HEADER_BYTES_MAX == 1 << 20,
        "64 KiB before the `welcome`": framing.OPENING_HEADER_BYTES_MAX == 64 << 10,
        "512 segments": structs.SEGMENTS_MAX == 512,
        "4096 more; 8 deep": (structs.SPARE_WORDS, structs.NESTING_MAX) == (4096, 8),
        "160 MiB by default": limits.frame_bytes_max == 160 << 20,
        "128 MiB by default": limits.batch_bytes_max == 128 << 20,
        "64 MiB |": model.MESSAGE_BYTES_MAX == 64 << 20,
        "32 by default": limits.in_flight_max == 32,
        "10,000 by default": limits.handles_max == 10_000,
        "1 GiB by default": limits.credit_bytes_max == 1 << 30,
        "1 to 255 ASCII letters": model.NAME_BYTES_MAX == 255,
        "4096 per topic": model.PARTITIONS_MAX == 4096,
    }
    text = section("Limits")
    assert [words for words in said if words not in text] == []
    assert [words for words, true in said.items() if not true] == []


def test_every_field_of_the_schema_has_its_comment() -> None:
    """A field's comment stands in the line after it; the union's members are named for structs."""
    source = (ROOT / "src" / "hocket" / "schema" / "hocket.capnp").read_text()
    body = source.split("\nstruct FrameKind {")[1]
    fields = re.findall(r"^ +\w+ @\d+.*;\n(.*)$", body, re.M)
    assert len(fields) > 100
    assert [after for after in fields if not after.strip().startswith("# ")] == []
    assert set(hocket_capnp.Frame.schema.non_union_fields) == {"request"}
