"""docs/protocol.md says what the code does: error codes, limits, kinds, and the example in hex."""

from __future__ import annotations

import re
from pathlib import Path

from hocket import model
from hocket.errors import BY_CODE
from hocket.frames import Hello
from hocket.wire import connection, structs
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


def test_the_hello_is_the_one_we_send_and_understand() -> None:
    words = re.findall(r"^([0-9a-f]{8} ?[0-9a-f]{8})    +\S", section("Hello"), re.M)
    frame = bytes.fromhex("".join(words))
    hello = Hello(1, client="me")
    assert frame == sent(connection.Connection("client"), hello)
    assert received(connection.Connection("server"), [frame]) == [(hello, b"")]


def test_the_limits_are_those_of_the_code() -> None:
    limits = model.Limits()
    said = {
        "1 MiB;": connection.HEADER_BYTES_MAX == 1 << 20,
        "64 KiB before the `welcome`": connection.OPENING_HEADER_BYTES_MAX == 64 << 10,
        "512 segments": structs.SEGMENTS_MAX == 512,
        "4096 more; 8 deep": (structs.SPARE_WORDS, structs.NESTING_MAX) == (4096, 8),
        "160 MiB by default": limits.frame_bytes_max == 160 << 20,
        "128 MiB by default": limits.batch_bytes_max == 128 << 20,
        "64 MiB |": model.MESSAGE_BYTES_MAX == 64 << 20,
        "32 by default": limits.in_flight_max == 32,
        "10,000 by default": limits.handles_max == 10_000,
        "1 GiB by default": limits.credit_bytes_max == 1 << 30,
        "1 to 255 letters": model.NAME_BYTES_MAX == 255,
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
